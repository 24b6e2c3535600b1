# SPDX-License-Identifier: MIT
"""Winograd's minimal filtering: its matrices, its products in any precision, and the bound of its rounding errors.

``F(m, r)`` gives m neighbouring outputs of a filter of r taps from m + r - 1 inputs by as many products:
``y = A^T ((G w) * (B^T d))``, and in two dimensions by the same along each axis. A product mixes inputs that an output
does not see, so that the error of a sum of products does not bound it; the same transforms of absolute values do:

    E = s(n) * |A^T| ((|G| |w|) * (|B^T| |d|))        n = roundings on the way of one input to one output

Sources: A. Lavin and S. Gray, CVPR 2016 (tiles, points); B. Barabasz, A. Anderson, K. M. Soodhalter and D. Gregg, ACM
Trans. Math. Softw. 46 (2020) 37 (errors; points).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from bridge.judge.oracle.error_model import rounding_factor

Array = np.ndarray

#: Where libraries evaluate the polynomials, in the order in which they take them; besides, at infinity
POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
#: Elements of the transformed tiles that are in memory at a time
BLOCK = 1 << 22


class Matrices(NamedTuple):
    """Of F(m, r), with t = m + r - 1: ``y = at @ ((g @ w) * (bt @ d))``.

    Attributes
    ----------
    at, g, bt : (m, t), (t, r), (t, t)
    """

    at: Array
    g: Array
    bt: Array


@functools.cache
def matrices(m: int, r: int) -> Matrices:
    """Return the matrices of F(m, r); of one tap or one output, those of the plain sum.

    >>> matrices(2, 3).at
    array([[ 1.,  1.,  1.,  0.],
           [ 0.,  1., -1.,  1.]])
    """
    t = m + r - 1
    if m == 1 or r == 1:
        return Matrices(np.ones((1, t)) if m == 1 else np.eye(m), np.eye(r) if m == 1 else np.ones((m, 1)), np.eye(t))
    points = np.array(POINTS[: t - 1])
    at, g, bt = np.zeros((m, t)), np.zeros((t, r)), np.zeros((t, t))
    for i, point in enumerate(points):
        others = np.delete(points, i)
        at[:, i] = point ** np.arange(m)
        g[i] = point ** np.arange(r) / np.prod(point - others)
        bt[i, : t - 1] = np.poly(others)[::-1]
    at[-1, -1] = g[-1, -1] = 1.0
    bt[-1] = np.poly(points)[::-1]
    return Matrices(at, g, bt)


@dataclass(frozen=True)
class Filtering:
    """Correlation of whole images without padding, stride 1: tiles of ``F(m_h x m_w, r_h x r_w)``.

    Attributes
    ----------
    m : outputs of a tile along h and w; 1 is the plain sum along that axis
    r : taps along h and w
    """

    m: tuple[int, int]
    r: tuple[int, int]

    def correlate(self, x: Array, w: Array) -> Array:
        """Return what the algorithm gives in the element type of x.

        Parameters
        ----------
        x : (c, h, w), padded
        w : (k, c, r, s)
        """
        return self._apply(x, w, absolute=False)

    def bound(self, x: Array, w: Array) -> Array:
        """Return the bound of its error, in units of the roundoff, from absolute values of the operands."""
        return self._apply(x, w, absolute=True) * rounding_factor(x.shape[0] + self._roundings(), 1.0)

    def filter_bound(self, x: Array, dz: Array) -> Array:
        """Return the same of the filter gradient, the transposed algorithm: (k, c, r, s).

        Parameters
        ----------
        x : (c, h, w), padded
        dz : (k, p, q)
        """
        (at_h, g_h, bt_h), (at_w, g_w, bt_w) = self._matrices(x.dtype, absolute=True)
        total, tiles = np.zeros((bt_h.shape[0], bt_w.shape[0], dz.shape[0], x.shape[0])), 0
        for _, inputs, outputs in self._blocks(x, dz):
            d = np.einsum("ia,jb,ctuab->ijctu", bt_h, bt_w, inputs, optimize=True)
            z = np.einsum("pi,qj,ktupq->ijktu", at_h, at_w, outputs, optimize=True)
            total += z.reshape(*z.shape[:3], -1) @ d.reshape(*d.shape[:3], -1).swapaxes(2, 3)
            tiles += d.shape[3] * d.shape[4]
        found = np.einsum("ir,js,ijkc->kcrs", g_h, g_w, total, optimize=True)
        return found * rounding_factor(tiles + self._roundings(), 1.0)

    def _apply(self, x: Array, w: Array, *, absolute: bool) -> Array:
        (at_h, g_h, bt_h), (at_w, g_w, bt_w) = self._matrices(x.dtype, absolute=absolute)
        size = tuple(n - r + 1 for n, r in zip(x.shape[1:], self.r, strict=True))
        kernels = np.einsum("ir,js,kcrs->ijkc", g_h, g_w, w, optimize=True)
        y = np.zeros((w.shape[0], *(-(-n // m) * m for n, m in zip(size, self.m, strict=True))), x.dtype)
        for rows, inputs, _ in self._blocks(x):
            d = np.einsum("ia,jb,ctuab->ijctu", bt_h, bt_w, inputs, optimize=True)
            products = (kernels @ d.reshape(*d.shape[:3], -1)).reshape(*d.shape[:2], w.shape[0], *d.shape[3:])
            part = np.einsum("pi,qj,ijktu->ktpuq", at_h, at_w, products, optimize=True)
            y[:, rows] = part.reshape(w.shape[0], -1, y.shape[2])
        return y[:, : size[0], : size[1]]

    def _blocks(self, x: Array, dz: Array | None = None) -> Iterator[tuple[slice, Array, Array]]:
        """Rows of tiles: the rows of the output, inputs (c, th, tw, t, t), outputs (k, th, tw, m, m) of dz."""
        (m_h, m_w), (t_h, t_w) = self.m, (m + r - 1 for m, r in zip(self.m, self.r, strict=True))
        down, across = (-(-(n - r + 1) // m) for n, r, m in zip(x.shape[1:], self.r, self.m, strict=True))
        x = _extended(x, (down * m_h + self.r[0] - 1, across * m_w + self.r[1] - 1))
        dz = np.zeros((0, down * m_h, across * m_w)) if dz is None else _extended(dz, (down * m_h, across * m_w))
        step = max(1, BLOCK // (t_h * t_w * (x.shape[0] + dz.shape[0]) * across))
        for first in range(0, down, step):
            count = min(step, down - first)
            rows = slice(first * m_h, (first + count) * m_h)
            inputs = _tiles(x[:, rows.start :], (count, across), self.m, (t_h, t_w))
            yield rows, inputs, _tiles(dz[:, rows.start :], (count, across), self.m, self.m)

    def _matrices(self, dtype: np.dtype, *, absolute: bool) -> tuple[Matrices, Matrices]:
        along = [matrices(m, r) for m, r in zip(self.m, self.r, strict=True)]
        given = [[(np.abs(one) if absolute else one).astype(dtype) for one in axis] for axis in along]
        return Matrices(*given[0]), Matrices(*given[1])

    def _roundings(self) -> int:
        """On the way of one number through all transforms, the products' sum apart; constants are rounded, too."""
        return sum(int((one != 0).sum(1).max()) + 1 for m, r in zip(self.m, self.r, strict=True)
                   for one in matrices(m, r))


def _extended(x: Array, size: tuple[int, int]) -> Array:
    """With zeros below and to the right."""
    return np.pad(x, ((0, 0), (0, size[0] - x.shape[1]), (0, size[1] - x.shape[2])))


def _tiles(x: Array, count: tuple[int, int], step: tuple[int, int], size: tuple[int, int]) -> Array:
    """Overlapping tiles as a view, (channels, *count, *size)."""
    c, h, w = x.strides
    return as_strided(x, (x.shape[0], *count, *size), (c, h * step[0], w * step[1], h, w), writeable=False)
