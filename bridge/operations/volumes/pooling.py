# SPDX-License-Identifier: MIT
"""Operations that take one number out of each window of a volume: one of each plane, and of these one along the depth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.pooling import Places

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class _Pooling3d(Operation):
    """Windows of a volume (n, c, d, h, w). Triples are (depth, height, width).

    A class that extends it has the sizes `kernel_size`, `stride` and `padding`.
    """

    kernel_size: Triple
    stride: Triple
    padding: Triple = (0, 0, 0)
    sample_rank: ClassVar[int | None] = 4

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, c, number of windows in d, in h, in w)."""
        (shape,) = shapes
        if len(shape) != 5:
            raise self.refuse(f"input {shape}", "a shape (n, c, d, h, w)")
        if any(2 * pad > kernel for pad, kernel in zip(self.padding, self.kernel_size, strict=True)):
            raise self.refuse(f"padding {self.padding}", f"at most half of the kernel {self.kernel_size}")
        size = tuple((length + 2 * pad - kernel) // stride + 1 for length, pad, kernel, stride in zip(
            shape[2:], self.padding, self.kernel_size, self.stride, strict=True))
        if min(size) < 1:
            raise self.refuse(f"input {shape}", f"a volume of the kernel's size {self.kernel_size} or more")
        return (*shape[:2], *size)

    def _places(self, shape: Shape) -> list[Places]:
        """The indices of each window along each axis of a volume; below 0 or behind the last is padding."""
        return [tuple(tuple(range(start, start + kernel)) for start in range(-pad, length + pad - kernel + 1, stride))
                for length, kernel, stride, pad in zip(shape[2:], self.kernel_size, self.stride, self.padding,
                                                       strict=True)]

    def _of_planes(self, x: Number, fill: float) -> Number:
        """The windows (n, c * d, p, q, r, s) of planes."""
        return planes(x).windows(*self._places(x.shape)[1:], fill)

    def _of_depth(self, x: Number, fill: float) -> Number:
        """The windows (n, c, depth, h * w, taps, 1) along the depth of what is left of planes."""
        return rows(x).windows(self._places(x.shape)[0], _alone(math.prod(x.shape[3:])), fill)

    def _folded(self, of_planes: Number, shape: Shape) -> Number:
        """Windows of planes summed to the volumes that they were taken from."""
        n, c, d, h, w = shape
        found = of_planes.folded(*self._places(shape)[1:], (n, c * d, h, w))
        return found.reshape(shape)

    def _folded_depth(self, of_depth: Number, shape: Shape) -> Number:
        """Windows along the depth summed to what is left of planes, of this shape (n, c, d, p, q)."""
        n, c, d, p, q = shape
        return of_depth.folded(self._places(shape)[0], _alone(p * q), (n, c, d, p * q)).reshape(shape)


def _alone(length: int) -> Places:
    """Windows of one pixel each."""
    return tuple((i,) for i in range(length))


def planes(x: Number) -> Number:
    """Return volumes as images whose channels are the planes of each."""
    n, c, d, h, w = x.shape
    return x.reshape((n, c * d, h, w))


def rows(x: Number) -> Number:
    """Return volumes as images whose rows are planes."""
    n, c, d, h, w = x.shape
    return x.reshape((n, c, d, h * w))


@dataclass(frozen=True)
class MaxPool3d(_Pooling3d):
    """The largest number of each window; its gradient goes to where that stood, of equal ones to the first."""

    kind: ClassVar[str] = "max_pool3d"

    def _largest(self, x: Number) -> Number:
        """The largest number of each window of planes, (n, c, d, p, q)."""
        found = self._of_planes(x, -math.inf).max((-2, -1))
        return found.reshape((*x.shape[:3], *found.shape[2:])).named("the largest of each plane")

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the maxima."""
        (x,) = inputs
        return self._of_depth(self._largest(x), -math.inf).max((-2, -1)).reshape(self.output_shape(x.shape))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy at the places of the maxima, summed where windows overlap."""
        (x,) = inputs
        largest = self._largest(x)
        given = dy.reshape((*dy.shape[:3], -1, 1, 1))
        of_planes = self._folded_depth(self._of_depth(largest, -math.inf).where_max().choose(given, 0.0), largest.shape)
        given = of_planes.reshape((x.shape[0], -1, *dy.shape[3:], 1, 1))
        return [self._folded(self._of_planes(x, -math.inf).where_max().choose(given, 0.0), x.shape)], {}

    def choices(self, shape: Shape) -> tuple[tuple[int, ...], int]:
        """Return the volume's axes, and the size of a window."""
        return (2, 3, 4), math.prod(self.kernel_size)

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.max_pool3d``."""
        from torch.nn import functional

        return functional.max_pool3d(inputs[0], self.kernel_size, self.stride, self.padding)


@dataclass(frozen=True)
class AvgPool3d(_Pooling3d):
    """The mean of each window, in which padding counts as zeros (torch's ``count_include_pad=True``)."""

    kind: ClassVar[str] = "avg_pool3d"

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the means, of whole windows or of those of planes."""
        (x,) = inputs
        shape, count, taps = self.output_shape(x.shape), math.prod(self.kernel_size), self.kernel_size[0]
        sums = self._of_planes(x, 0.0).sum((-2, -1)).reshape((*x.shape[:3], *shape[3:]))
        whole = (self._all_of(x).sum((3, 6, 7)) / count).by_terms(count).reshape(shape)
        of_planes = (sums / (count // taps)).by_terms(count // taps)
        of_depth = self._of_depth(of_planes, 0.0).sum((-2, -1))
        return whole.or_as((of_depth / taps).by_terms(taps).reshape(shape))

    def _all_of(self, x: Number) -> Number:
        """Windows (n, c, depth, taps, p, q, r, s)."""
        n, c, d, h, w = x.shape
        pad, step, taps = self.padding[0], self.stride[0], self.kernel_size[0]
        depth = (d + 2 * pad - taps) // step + 1
        read = np.arange(depth)[:, None] * step + np.arange(taps)
        taken = x.moved(lambda a: np.pad(a, ((0, 0), (0, 0), (pad, pad), (0, 0), (0, 0)))[:, :, read])
        found = taken.reshape((n, c * depth * taps, h, w)).windows(
            *self._places(x.shape)[1:], 0.0)
        return found.reshape((n, c, depth, taps, *found.shape[2:]))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return an equal part of dy for each number of its window, summed where windows overlap."""
        shape = inputs[0].shape
        part = dy / math.prod(self.kernel_size)
        part = part.or_as(dy / self.kernel_size[0] / math.prod(self.kernel_size[1:]))
        each = part.reshape((*dy.shape[:3], -1, 1, 1)).broadcast((*dy.shape[:3], math.prod(dy.shape[3:]),
                                                                  self.kernel_size[0], 1))
        of_planes = self._folded_depth(each, (*shape[:3], *dy.shape[3:]))
        given = of_planes.reshape((shape[0], -1, *dy.shape[3:], 1, 1))
        return [self._folded(given.broadcast((*given.shape[:4], *self.kernel_size[1:])), shape)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.avg_pool3d``."""
        from torch.nn import functional

        return functional.avg_pool3d(inputs[0], self.kernel_size, self.stride, self.padding)
