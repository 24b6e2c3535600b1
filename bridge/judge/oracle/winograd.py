# SPDX-License-Identifier: MIT
"""Winograd's convolution F(m, r): m outputs of r taps from m + r - 1 products, along each axis of an image.

    Y = A^T ((G w G^T) * (B^T d B)) A          dw = G^T ((A dy A^T) * (B^T d B)) G

An element mixes all pixels of its tile, so its rounding is not bounded by the sum of its own products. With absolute
values in place of all numbers the same formula bounds it, times the number of roundings of the longest way through it.

Sources: A. Lavin and S. Gray, CVPR 2016; B. Barabasz, A. Anderson, K. M. Soodhalter and D. Gregg, ACM Trans. Math.
Software 46 (2020) 37 (bounds, and the usual points); checked against direct sums in
`tests/judge/oracle/test_fast_algorithms.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from bridge.exchange.model import Conv2d, Pair
from bridge.judge.oracle.algorithm import Correlation
from bridge.judge.oracle.error_model import rounding_factor

Array = np.ndarray

#: Finite points of interpolation in the order in which they are used; infinity is the last one
POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)


@dataclass(frozen=True)
class Transform:
    """F(m, r) along one axis: A^T (m, n), G (n, r), B^T (n, n) with n = m + r - 1."""

    at: Array
    g: Array
    bt: Array

    @property
    def roundings(self) -> int:
        """Return the roundings of the longest way through the three transforms; a sum of k terms has k."""
        return sum(int(np.count_nonzero(one, axis=1).max()) for one in (self.at, self.g, self.bt))

    def absolute(self) -> Transform:
        """Return the transform with absolute values."""
        return Transform(np.abs(self.at), np.abs(self.g), np.abs(self.bt))

    def cast(self, dtype: np.dtype) -> Transform:
        """Return the transform in another precision."""
        return Transform(*(one.astype(dtype) for one in (self.at, self.g, self.bt)))


@cache
def transform(m: int, r: int) -> Transform:
    """Return F(m, r); F(1, r) is the direct sum.

    >>> transform(2, 3).bt.astype(int).tolist()
    [[-1, 0, 1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, -1, 0, 1]]
    """
    if m == 1:
        return Transform(np.ones((1, r)), np.eye(r), np.eye(r))
    n = m + r - 1
    points = np.array(POINTS[: n - 1])
    at, g, bt = np.zeros((m, n)), np.zeros((n, r)), np.zeros((n, n))
    for i, a in enumerate(points):
        others = np.delete(points, i)
        at[:, i] = a ** np.arange(m)
        g[i] = a ** np.arange(r) / np.prod(a - others)
        bt[i, : n - 1] = np.poly(others)[::-1]
    at[-1, -1] = g[-1, -1] = 1.0
    bt[-1] = np.poly(points)[::-1]
    return Transform(at, g, bt)


def correlate(x: Array, w: Array, along: tuple[Transform, Transform]) -> Array:
    """Return the correlation without padding of an image (c, h, w) with filters (k, c, r, s), (k, p, q)."""
    size = x.shape[1] - w.shape[2] + 1, x.shape[2] - w.shape[3] + 1
    (rows, columns), (k, c) = along, w.shape[:2]
    v = _spectrum(x, along, size)
    u = np.einsum("ir,kcrs,js->ijkc", rows.g, w, columns.g, optimize=True)
    products = u @ v.reshape(*v.shape[:2], c, -1)
    products = products.reshape(*v.shape[:2], k, *v.shape[3:])
    y = np.einsum("ai,ijktu,bj->ktaub", rows.at, products, columns.at, optimize=True)
    return y.reshape(k, v.shape[3] * rows.at.shape[0], -1)[:, : size[0], : size[1]]


def filter_gradient(x: Array, dy: Array, along: tuple[Transform, Transform]) -> Array:
    """Return the gradient of the filters (k, c, r, s) of `correlate`, from its image and the gradient of its result."""
    rows, columns = along
    tall, wide = rows.at.shape[0], columns.at.shape[0]
    v = _spectrum(x, along, (dy.shape[1], dy.shape[2]))
    t, u = v.shape[3:]
    tiles = np.pad(dy, ((0, 0), (0, t * tall - dy.shape[1]), (0, u * wide - dy.shape[2])))
    tiles = tiles.reshape(len(dy), t, tall, u, wide)
    z = np.einsum("ai,ktaub,bj->ijktu", rows.at, tiles, columns.at, optimize=True)
    products = z.reshape(*z.shape[:3], -1) @ v.reshape(*v.shape[:3], -1).swapaxes(2, 3)
    return np.einsum("ir,ijkc,js->kcrs", rows.g, products, columns.g, optimize=True)


def _spectrum(x: Array, along: tuple[Transform, Transform], size: tuple[int, int]) -> Array:
    """B^T d B of all tiles, (n, n, c, tiles, tiles)."""
    rows, columns = along
    steps, reach = (rows.at.shape[0], columns.at.shape[0]), (len(rows.bt), len(columns.bt))
    count = tuple(-(-total // step) for total, step in zip(size, steps, strict=True))
    room = [(n - 1) * step + width for n, step, width in zip(count, steps, reach, strict=True)]
    x = np.pad(x, ((0, 0), *((0, max(0, need - have)) for need, have in zip(room, x.shape[1:], strict=True))))
    tiles = sliding_window_view(x, reach, axis=(1, 2))[:, :: steps[0], :: steps[1]][:, : count[0], : count[1]]
    return np.einsum("ia,ctuab,jb->ijctu", rows.bt, tiles, columns.bt, optimize=True)


@dataclass(frozen=True)
class Winograd(Correlation):
    """F(m, r) along both axes; m = 1 is a direct sum along that axis."""

    outputs: Pair = (2, 2)
    taps: Pair = (3, 3)

    def applies(self, layer: Conv2d) -> bool:
        return super().applies(layer) and layer.kernel_size == self.taps

    def _along(self, dtype: np.dtype) -> tuple[Transform, Transform]:
        rows, columns = (transform(m, r).cast(dtype) for m, r in zip(self.outputs, self.taps, strict=True))
        return rows, columns

    def _absolute(self) -> tuple[Transform, Transform]:
        rows, columns = (one.absolute() for one in self._along(np.dtype(np.float64)))
        return rows, columns

    def _roundings(self, terms: int) -> float:
        """Of the transforms, the product, and the sum of so many of them."""
        return sum(one.roundings for one in self._absolute()) + 1 + float(rounding_factor(terms, 1.0))

    def _correlation(self, x: Array, w: Array) -> Array:
        return correlate(x, w, self._along(x.dtype))

    def _correlation_noise(self, x: Array, w: Array) -> Array:
        return self._roundings(w.shape[1]) * correlate(np.abs(x), np.abs(w), self._absolute())

    def _filter(self, x: Array, dy: Array, layer: Conv2d) -> Array:
        return filter_gradient(x, dy, self._along(x.dtype))

    def _filter_noise(self, x: Array, dy: Array, layer: Conv2d) -> Array:
        tiles = math.prod(-(-n // m) for n, m in zip(dy.shape[1:], self.outputs, strict=True))
        return self._roundings(tiles) * filter_gradient(np.abs(x), np.abs(dy), self._absolute())


def winograd(outputs: Pair, taps: Pair) -> Winograd:
    """Return F(m, r) by its pairs (h, w).

    >>> winograd((4, 4), (3, 3)).name, winograd((1, 4), (3, 3)).name
    ('Winograd F(4x4,3x3)', 'Winograd F(4,3) along w')
    """
    if 1 in outputs:
        axis = int(outputs[0] == 1)
        name = f"Winograd F({outputs[axis]},{taps[axis]}) along {'hw'[axis]}"
    else:
        name = f"Winograd F({outputs[0]}x{outputs[1]},{taps[0]}x{taps[1]})"
    return Winograd(name, "winograd", outputs, taps)
