# SPDX-License-Identifier: MIT
"""Operations that take one number out of each window of an image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Gradients, Number, Operation, Shape

Pair = tuple[int, int]


@dataclass(frozen=True)
class _Pooling(Operation):
    """Windows of an image (n, c, h, w). Pairs are (height, width).

    A class that extends it has the sizes `kernel_size`, `stride` and `padding`.
    """

    kernel_size: Pair
    stride: Pair
    padding: Pair = (0, 0)

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, c, number of windows in h, in w)."""
        (shape,) = shapes
        if len(shape) != 4:
            raise self.refuse(f"input {shape}", "a shape (n, c, h, w)")
        if any(2 * pad > kernel for pad, kernel in zip(self.padding, self.kernel_size, strict=True)):
            raise self.refuse(f"padding {self.padding}", f"at most half of the kernel {self.kernel_size}")
        p, q = ((length + 2 * pad - kernel) // stride + 1 for length, pad, kernel, stride in zip(
            shape[2:], self.padding, self.kernel_size, self.stride, strict=True))
        if p < 1 or q < 1:
            raise self.refuse(f"input {shape}", f"an image of the kernel's size {self.kernel_size} or more")
        return (*shape[:2], p, q)


@dataclass(frozen=True)
class MaxPool2d(_Pooling):
    """The largest number of each window; its gradient goes to where that stood, of equal ones to the first."""

    kind: ClassVar[str] = "max_pool2d"
    sample_rank: ClassVar[int | None] = 3

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the maxima."""
        return inputs[0].windows(self.kernel_size, self.stride, self.padding, -math.inf).max((-2, -1))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy at the places of the maxima, summed where windows overlap."""
        (x,) = inputs
        largest = x.windows(self.kernel_size, self.stride, self.padding, -math.inf).where_max()
        chosen = largest.choose(dy.reshape((*dy.shape, 1, 1)), 0.0)
        return [chosen.folded(self.stride, self.padding, x.shape)], {}

    def choices(self, shape: Shape) -> tuple[tuple[int, ...], int]:
        """Return the image's axes, and the size of a window."""
        return (2, 3), math.prod(self.kernel_size)

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.max_pool2d``."""
        from torch.nn import functional

        return functional.max_pool2d(inputs[0], self.kernel_size, self.stride, self.padding)


@dataclass(frozen=True)
class AvgPool2d(_Pooling):
    """The mean of each window, in which padding counts as zeros (torch's ``count_include_pad=True``)."""

    kind: ClassVar[str] = "avg_pool2d"
    sample_rank: ClassVar[int | None] = 3

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the means."""
        windows = inputs[0].windows(self.kernel_size, self.stride, self.padding, 0.0)
        count = math.prod(self.kernel_size)
        return (windows.sum((-2, -1)) / count).by_terms(count)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return an equal part of dy for each number of its window, summed where windows overlap."""
        part = (dy / math.prod(self.kernel_size)).reshape((*dy.shape, 1, 1))
        each = part.broadcast((*dy.shape, *self.kernel_size))
        return [each.folded(self.stride, self.padding, inputs[0].shape)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.avg_pool2d``."""
        from torch.nn import functional

        return functional.avg_pool2d(inputs[0], self.kernel_size, self.stride, self.padding)


@dataclass(frozen=True)
class GlobalAvgPool2d(Operation):
    """The mean of each channel, (n, c, 1, 1): torch's ``adaptive_avg_pool2d(x, 1)``."""

    kind: ClassVar[str] = "global_avg_pool2d"
    sample_rank: ClassVar[int | None] = 3

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, c, 1, 1)."""
        (shape,) = shapes
        if len(shape) != 4:
            raise self.refuse(f"input {shape}", "a shape (n, c, h, w)")
        return (*shape[:2], 1, 1)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the means."""
        (x,) = inputs
        count = math.prod(x.shape[2:])
        return (x.sum((2, 3)) / count).by_terms(count).reshape((*x.shape[:2], 1, 1))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return an equal part of dy for each number of its channel."""
        (x,) = inputs
        return [(dy / math.prod(x.shape[2:])).broadcast(x.shape)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.adaptive_avg_pool2d(x, 1)``."""
        from torch.nn import functional

        return functional.adaptive_avg_pool2d(inputs[0], 1)
