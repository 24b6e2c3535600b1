# SPDX-License-Identifier: MIT
"""Convolutions by the fast Fourier transform, of a whole image or of tiles.

Each frequency is rounded by about u*sqrt(log2(N)) of the root mean square of all; the way back spreads that evenly over
the N pixels of the tile. So the error does not fall where the result is small, nor where it is 0.

Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 24 (theorem 24.2 is the worst case;
here roundings have mean zero, as in the bound of long sums).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bridge.exchange.model import Conv2d, Pair
from bridge.judge.oracle.algorithm import Correlation

Array = np.ndarray


@dataclass(frozen=True)
class Fourier(Correlation):
    """Products of transforms of the whole image, or of tiles of `tile` pixels; 0 is the whole image."""

    tile: int = 0

    def _tiles(self, x: Array, taps: Pair) -> tuple[list[tuple[slice, slice, Array]], Pair]:
        """Places in the result with the pixels that they see, and the size of the transform."""
        size = x.shape[1] - taps[0] + 1, x.shape[2] - taps[1] + 1
        if not self.tile:
            side = (1 << (x.shape[1] - 1).bit_length(), 1 << (x.shape[2] - 1).bit_length())
            return [(slice(0, size[0]), slice(0, size[1]), x)], side
        step = [self.tile - tap + 1 for tap in taps]
        found = []
        for i in range(0, size[0], step[0]):
            for j in range(0, size[1], step[1]):
                rows, columns = slice(i, min(size[0], i + step[0])), slice(j, min(size[1], j + step[1]))
                found.append((rows, columns, x[:, i : i + self.tile, j : j + self.tile]))
        return found, (self.tile, self.tile)

    def applies(self, layer: Conv2d) -> bool:
        return super().applies(layer) and (not self.tile or max(layer.kernel_size) <= self.tile // 2)

    def _correlation(self, x: Array, w: Array) -> Array:
        taps = (w.shape[2], w.shape[3])
        tiles, side = self._tiles(x, taps)
        y = np.empty((len(w), x.shape[1] - taps[0] + 1, x.shape[2] - taps[1] + 1), x.dtype)
        kernels = np.conj(_transformed(w, side))
        for rows, columns, part in tiles:
            products = np.einsum("kcij,cij->kij", kernels, _transformed(part, side))
            y[:, rows, columns] = _back(products, side, x.dtype)[:, : rows.stop - rows.start,
                                                                 : columns.stop - columns.start]
        return y

    def _correlation_noise(self, x: Array, w: Array) -> Array:
        taps = (w.shape[2], w.shape[3])
        tiles, side = self._tiles(np.abs(x), taps)
        y = np.empty((len(w), x.shape[1] - taps[0] + 1, x.shape[2] - taps[1] + 1))
        kernels = np.abs(w).sum((2, 3))
        for rows, columns, part in tiles:
            y[:, rows, columns] = (kernels @ _root_mean_square(part, side))[:, None, None]
        return self._factor(side, w.shape[1]) * y

    def _filter(self, x: Array, dy: Array, layer: Conv2d) -> Array:
        side = tuple(1 << (n - 1).bit_length() for n in x.shape[1:])
        side = (side[0], side[1])
        products = np.einsum("kij,cij->kcij", np.conj(_transformed(dy, side)), _transformed(x, side))
        return _back(products, side, x.dtype)[:, :, : layer.kernel_size[0], : layer.kernel_size[1]]

    def _filter_noise(self, x: Array, dy: Array, layer: Conv2d) -> Array:
        one, other = (np.sqrt(np.square(array).sum((1, 2))) for array in (x, dy))
        found = self._factor((x.shape[1], x.shape[2]), 1) * np.outer(other, one)
        return np.broadcast_to(found[:, :, None, None], (*found.shape, *layer.kernel_size)).copy()

    @staticmethod
    def _factor(side: Pair, terms: int) -> float:
        """Three transforms, each log2 of its size roundings deep, and a sum; roundings of mean zero."""
        return 9.0 * math.sqrt(3 * math.log2(max(2, side[0] * side[1])) + terms)


def _transformed(x: Array, side: Pair) -> Array:
    """In the precision of the operands: numpy transforms float32 in float32."""
    return np.fft.rfft2(x, side)


def _back(products: Array, side: Pair, dtype: np.dtype) -> Array:
    return np.fft.irfft2(products, side).astype(dtype)


def _root_mean_square(x: Array, side: Pair) -> Array:
    return np.sqrt(np.square(x).sum((1, 2)) / math.prod(side))
