# SPDX-License-Identifier: MIT
"""Operations that take one number out of each window of an image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.resizing import adaptive_windows

Pair = tuple[int, int]
#: Of each window along an axis its pixels
Places = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Windows(Operation):
    """Windows of an image (n, c, h, w). Pairs are (height, width)."""

    def places(self, length: int, axis: int) -> Places:
        """Return the pixels of each window along an axis, 0 for h and 1 for w, of `length` pixels.

        What is below 0, or from `length` on, is what surrounds an image.
        """
        raise NotImplementedError

    def windows(self, shape: Shape) -> tuple[Places, Places]:
        """Return those of both axes of an image of a shape (n, c, h, w)."""
        return self.places(shape[2], 0), self.places(shape[3], 1)

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, c, number of windows in h, in w)."""
        (shape,) = shapes
        if len(shape) != 4:
            raise self.refuse(f"input {shape}", "a shape (n, c, h, w)")
        return (*shape[:2], *map(len, self.windows(shape)))


@dataclass(frozen=True)
class _Largest(_Windows):
    """The largest number of each window; its gradient goes to where that stood, of equal ones to the first."""

    sample_rank: ClassVar[int | None] = 3

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the maxima."""
        return inputs[0].windows(*self.windows(inputs[0].shape), -math.inf).max((-2, -1))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy at the places of the maxima, summed where windows overlap."""
        (x,) = inputs
        windows = self.windows(x.shape)
        largest = x.windows(*windows, -math.inf).where_max()
        return [largest.choose(dy.reshape((*dy.shape, 1, 1)), 0.0).folded(*windows, x.shape)], {}

    def choices(self, shape: Shape) -> tuple[tuple[int, ...], int]:
        """Return the image's axes, and the size of a window."""
        return (2, 3), math.prod(len(places[0]) for places in self.windows(shape))


@dataclass(frozen=True)
class _Sliding(_Windows):
    """Windows of one size at equal distances.

    With `ceil_mode`, which classes that extend it have, windows may reach beyond the padding: there is one more, if it
    begins inside the image or the padding before it.
    """

    kernel_size: Pair
    stride: Pair
    padding: Pair = (0, 0)

    def settings(self) -> tuple[Pair, bool]:
        """Return the distances of the pixels of a window, and whether there is one more."""
        raise NotImplementedError

    def starts(self, length: int, axis: int) -> range:
        """Return where the windows of an axis begin."""
        holes, one_more = self.settings()
        kernel, stride, padding = self.kernel_size[axis], self.stride[axis], self.padding[axis]
        room = length + 2 * padding - holes[axis] * (kernel - 1) - 1
        count = (room + (stride - 1) * one_more) // stride + 1
        if one_more and (count - 1) * stride >= length + padding:
            count -= 1
        return range(-padding, -padding + count * stride, stride)

    def places(self, length: int, axis: int) -> Places:
        """Return the pixels of each window along an axis."""
        hole = self.settings()[0][axis]
        return tuple(tuple(range(start, start + hole * self.kernel_size[axis], hole))
                     for start in self.starts(length, axis))

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, c, number of windows in h, in w)."""
        (shape,) = shapes
        if any(2 * pad > kernel for pad, kernel in zip(self.padding, self.kernel_size, strict=True)):
            raise self.refuse(f"padding {self.padding}", f"at most half of the kernel {self.kernel_size}")
        found = super().output_shape(shape)
        holes = self.settings()[0]
        if min(found[2:]) < 1:
            raise self.refuse(f"input {shape}", f"an image of the kernel's size {self.kernel_size} or more")
        if any(pad and hole > n for pad, hole, n in zip(self.padding, holes, shape[2:], strict=True)):
            raise self.refuse(f"input {shape}", f"an image of the size of the dilation {holes} or more")
        return found


@dataclass(frozen=True)
class MaxPool2d(_Sliding, _Largest):
    """The largest number of each window; its gradient goes to where that stood, of equal ones to the first.

    The pixels of a window are `dilation` apart. With `ceil_mode` a window may reach beyond the padding.
    """

    dilation: Pair = (1, 1)
    ceil_mode: bool = False
    kind: ClassVar[str] = "max_pool2d"

    def settings(self) -> tuple[Pair, bool]:
        """Return the distances of the pixels of a window, and whether there is one more."""
        return self.dilation, self.ceil_mode

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.max_pool2d``."""
        from torch.nn import functional

        return functional.max_pool2d(inputs[0], self.kernel_size, self.stride, self.padding, self.dilation,
                                     self.ceil_mode)


@dataclass(frozen=True)
class AdaptiveMaxPool2d(_Largest):
    """The largest numbers of as many windows as wanted, which are those of `AdaptiveAvgPool2d`."""

    output_size: Pair
    kind: ClassVar[str] = "adaptive_max_pool2d"

    def places(self, length: int, axis: int) -> Places:
        """Return the pixels of each window along an axis; of shorter ones the last are outside."""
        begins, ends = adaptive_windows(length, self.output_size[axis])
        longest = int((ends - begins).max())
        return tuple(tuple(at if at < end else length for at in range(begin, begin + longest))
                     for begin, end in zip(begins.tolist(), ends.tolist(), strict=True))

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.adaptive_max_pool2d``."""
        from torch.nn import functional

        return functional.adaptive_max_pool2d(inputs[0], self.output_size)


@dataclass(frozen=True)
class AvgPool2d(_Sliding):
    """The mean of each window, in which padding counts as zeros, or not at all without `count_include_pad`.

    With `ceil_mode` a window may reach beyond the padding, and what is there never counts. A `divisor_override` other
    than 0 stands in the place of the count.
    """

    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int = 0
    kind: ClassVar[str] = "avg_pool2d"
    sample_rank: ClassVar[int | None] = 3

    def settings(self) -> tuple[Pair, bool]:
        """Return the distances of the pixels of a window, and whether there is one more."""
        return (1, 1), self.ceil_mode

    def counts(self, length: int, axis: int) -> np.ndarray:
        """Return of each window along an axis how many pixels count."""
        around = self.padding[axis] if self.count_include_pad else 0
        start = np.array(self.starts(length, axis))
        counts: np.ndarray = np.minimum(start + self.kernel_size[axis], length + around) - np.maximum(start, -around)
        return counts

    def divided(self, total: Number, shape: Shape) -> Number:
        """Return the sums of windows (n, c, p, q), of images of a shape, divided by their counts.

        Where these differ, a right program takes the mean of rows and of columns, by the reciprocals of both.
        """
        if self.divisor_override:
            return total / self.divisor_override
        down, across = (self.counts(length, axis) for axis, length in enumerate(shape[2:]))
        if all((found == kernel).all() for found, kernel in zip((down, across), self.kernel_size, strict=True)):
            return total / math.prod(self.kernel_size)
        return total * total.constants(1 / down[:, None]) * total.constants(1 / across)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the means."""
        (x,) = inputs
        windows = x.windows(*self.windows(x.shape), 0.0)
        return self.divided(windows.sum((-2, -1)), x.shape).by_terms(math.prod(self.kernel_size))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return an equal part of dy for each number of its window, summed where windows overlap."""
        shape = inputs[0].shape
        part = self.divided(dy, shape).reshape((*dy.shape, 1, 1))
        return [part.broadcast((*dy.shape, *self.kernel_size)).folded(*self.windows(shape), shape)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.avg_pool2d``."""
        from torch.nn import functional

        return functional.avg_pool2d(inputs[0], self.kernel_size, self.stride, self.padding, self.ceil_mode,
                                     self.count_include_pad, self.divisor_override or None)


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
