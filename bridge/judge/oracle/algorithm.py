# SPDX-License-Identifier: MIT
"""What an algorithm of convolution says of itself; `bridge.judge.oracle.algorithms` has those that are known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bridge.exchange.model import Conv2d, Pair

Array = np.ndarray


@dataclass(frozen=True)
class Algorithm(ABC):
    """How convolutions and their gradients are computed.

    Attributes
    ----------
    name : "Winograd F(4x4,3x3)"
    family : one of `bridge.judge.oracle.algorithms.FAMILIES`
    operand : relative error of each operand of a product
    """

    name: str
    family: str
    operand: float = 0.0

    @abstractmethod
    def applies(self, layer: Conv2d) -> bool:
        """Return whether libraries use it for such a layer."""

    @abstractmethod
    def forward(self, x: Array, w: Array, layer: Conv2d) -> Array:
        """Return what it gives for one image (c, h, w) in the element type of x, without bias."""

    def forward_of(self, image: int, images: Callable[[], Array], w: Array, layer: Conv2d) -> Array | None:
        """Return the same of an image of a batch (n, c, h, w); None where each image is computed by itself."""
        return None

    @abstractmethod
    def forward_bound(self, x: Array, w: Array, layer: Conv2d) -> Array:
        """Return how far it may be from the right result in units of the roundoff, the operands' error apart.

        Parameters
        ----------
        x, w : absolute values
        """

    def data_bound(self, dz: Array, w: Array, layer: Conv2d, size: Pair) -> Array:
        """Return the same of the data gradient; 0 where it does not apply."""
        turned = transposed(layer)
        return np.zeros(1) if turned is None else self.forward_bound(dz, turned_kernels(w, layer.groups), turned)

    @abstractmethod
    def filter_bound(self, x: Array, dz: Array, layer: Conv2d) -> Array:
        """Return the same of one image's filter gradient."""


def transposed(layer: Conv2d) -> Conv2d | None:
    """Return the convolution of dz that gives the data gradient; None for strides, which have none."""
    if layer.stride != (1, 1):
        return None
    padding = [d * (r - 1) - p for d, r, p in zip(layer.dilation, layer.kernel_size, layer.padding, strict=True)]
    return replace(layer, in_channels=layer.out_channels, out_channels=layer.in_channels, bias=False,
                   padding=(padding[0], padding[1]))


def turned_kernels(w: Array, groups: int) -> Array:
    """Return the filters turned by 180 degrees, with their channels swapped in each group."""
    k, cg, r, s = w.shape
    turned = w.reshape(groups, k // groups, cg, r, s)[..., ::-1, ::-1].swapaxes(1, 2)
    return np.ascontiguousarray(turned).reshape(groups * cg, k // groups, r, s)
