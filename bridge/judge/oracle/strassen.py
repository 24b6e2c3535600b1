# SPDX-License-Identifier: MIT
"""Convolutions by Strassen's product of matrices.

Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 23 (theorem 23.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bridge.exchange.model import Conv2d
from bridge.judge.oracle.algorithm import Correlation
from bridge.judge.oracle.error_model import rounding_factor

Array = np.ndarray


@dataclass(frozen=True)
class Strassen(Correlation):
    """Strassen's product of the matrices of im2col, so many levels deep."""

    levels: int = 1

    def _correlation(self, x: Array, w: Array) -> Array:
        size = x.shape[1] - w.shape[2] + 1, x.shape[2] - w.shape[3] + 1
        return product(w.reshape(len(w), -1), _columns(x, w.shape[2:]), self.levels).reshape(len(w), *size)

    def _correlation_noise(self, x: Array, w: Array) -> Array:
        size = x.shape[1] - w.shape[2] + 1, x.shape[2] - w.shape[3] + 1
        return np.full((len(w), *size), self._norm(math.prod(w.shape[1:]), x, w))

    def _filter(self, x: Array, dy: Array, layer: Conv2d) -> Array:
        found = product(dy.reshape(len(dy), -1), _columns(x, layer.kernel_size).T, self.levels)
        return found.reshape(len(dy), len(x), *layer.kernel_size)

    def _filter_noise(self, x: Array, dy: Array, layer: Conv2d) -> Array:
        return np.full((len(dy), len(x), *layer.kernel_size), self._norm(math.prod(dy.shape[1:]), x, dy))

    def _norm(self, n: int, one: Array, other: Array) -> float:
        """Theorem 23.2, with s(n) for n in the sums at the bottom."""
        bottom = -(-n // 2**self.levels)
        factor = 12**self.levels * (float(rounding_factor(bottom, 1.0)) + 5) * bottom
        return factor * float(np.abs(one).max()) * float(np.abs(other).max())


def product(a: Array, b: Array, levels: int) -> Array:
    """Return a @ b by Strassen's method; odd sides get a zero.

    >>> product(np.eye(3), np.arange(9.0).reshape(3, 3), 2)[2].tolist()
    [6.0, 7.0, 8.0]
    """
    if levels == 0 or min(*a.shape, b.shape[1]) < 2:
        return a @ b
    rows, columns = a.shape[0], b.shape[1]
    a, b = (np.pad(one, [(0, n % 2) for n in one.shape]) for one in (a, b))
    (a11, a12), (a21, a22) = (np.hsplit(half, 2) for half in np.vsplit(a, 2))
    (b11, b12), (b21, b22) = (np.hsplit(half, 2) for half in np.vsplit(b, 2))
    pairs = ((a11 + a22, b11 + b22), (a21 + a22, b11), (a11, b12 - b22), (a22, b21 - b11), (a11 + a12, b22),
             (a21 - a11, b11 + b12), (a12 - a22, b21 + b22))
    m = [product(one, other, levels - 1) for one, other in pairs]
    c = np.block([[m[0] + m[3] - m[4] + m[6], m[2] + m[4]], [m[1] + m[3], m[0] - m[1] + m[2] + m[5]]])
    return c[:rows, :columns]


def _columns(x: Array, taps: tuple[int, ...]) -> Array:
    """What each output sees, (c * r * s, pixels)."""
    seen = np.lib.stride_tricks.sliding_window_view(x, taps, axis=(1, 2))
    return seen.transpose(0, 3, 4, 1, 2).reshape(len(x) * math.prod(taps), -1)
