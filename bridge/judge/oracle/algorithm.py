# SPDX-License-Identifier: MIT
"""An arithmetic class: an algorithm that is no sum of products in some order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from bridge.exchange.model import Conv2d, Pair

Array = np.ndarray


@dataclass(frozen=True)
class Algorithm(ABC):
    """A class of arithmetic. Images are (c, h, w), as in `bridge.judge.oracle.convolution`; noise is in units of u.

    Attributes
    ----------
    name : as in a report, "Winograd F(4x4,3x3)"
    family : as it is allowed by, "winograd"
    """

    name: str
    family: str

    def applies(self, layer: Conv2d) -> bool:
        """Return whether a library would compute this layer so."""
        return True

    @abstractmethod
    def forward(self, x: Array, w: Array, layer: Conv2d, *, noise: bool = False) -> Array:
        """Return a convolution without bias in the precision of the operands; or its noise."""

    @abstractmethod
    def backward_data(self, dy: Array, w: Array, layer: Conv2d, size: Pair, *, noise: bool = False) -> Array:
        """Return the gradient of the input, of height and width `size`; or its noise."""

    @abstractmethod
    def backward_filter(self, x: Array, dy: Array, layer: Conv2d, *, noise: bool = False) -> Array:
        """Return the gradient of the filters of one image; or its noise."""


@dataclass(frozen=True)
class Correlation(Algorithm):
    """An algorithm for correlations with stride 1 of one group, in which the other two are expressed."""

    def applies(self, layer: Conv2d) -> bool:
        return layer.stride == (1, 1) and layer.dilation == (1, 1) and max(layer.kernel_size) > 1

    def forward(self, x: Array, w: Array, layer: Conv2d, *, noise: bool = False) -> Array:
        padded = np.pad(x, ((0, 0), *((pad, pad) for pad in layer.padding)))
        return self._grouped(padded, w, layer, noise)

    def backward_data(self, dy: Array, w: Array, layer: Conv2d, size: Pair, *, noise: bool = False) -> Array:
        groups, (k, cg, r, s) = layer.groups, w.shape
        turned = w.reshape(groups, k // groups, cg, r, s)[..., ::-1, ::-1].swapaxes(1, 2)
        turned = np.ascontiguousarray(turned).reshape(groups * cg, k // groups, r, s)
        before = [tap - 1 - pad for tap, pad in zip((r, s), layer.padding, strict=True)]
        after = [n + tap - 1 - have - first
                 for n, tap, have, first in zip(size, (r, s), dy.shape[1:], before, strict=True)]
        spread = np.pad(dy, ((0, 0), *((max(0, a), max(0, b)) for a, b in zip(before, after, strict=True))))
        rows, columns = (slice(max(0, -a), total - max(0, -b))
                         for a, b, total in zip(before, after, spread.shape[1:], strict=True))
        return self._grouped(spread[:, rows, columns], turned, layer, noise)

    def backward_filter(self, x: Array, dy: Array, layer: Conv2d, *, noise: bool = False) -> Array:
        padded = np.pad(x, ((0, 0), *((pad, pad) for pad in layer.padding)))
        pairs = zip(np.split(padded, layer.groups), np.split(dy, layer.groups), strict=True)
        act = self._filter_noise if noise else self._filter
        return np.concatenate([act(part, upstream, layer) for part, upstream in pairs])

    def _grouped(self, padded: Array, w: Array, layer: Conv2d, noise: bool) -> Array:
        act = self._correlation_noise if noise else self._correlation
        pairs = zip(np.split(padded, layer.groups), np.split(w, layer.groups), strict=True)
        return np.concatenate([act(part, kernels) for part, kernels in pairs])

    @abstractmethod
    def _correlation(self, x: Array, w: Array) -> Array: ...

    @abstractmethod
    def _correlation_noise(self, x: Array, w: Array) -> Array: ...

    @abstractmethod
    def _filter(self, x: Array, dy: Array, layer: Conv2d) -> Array: ...

    @abstractmethod
    def _filter_noise(self, x: Array, dy: Array, layer: Conv2d) -> Array: ...
