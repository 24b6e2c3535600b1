# SPDX-License-Identifier: MIT
"""Operations that change the size of a volume, along each axis by itself: first the planes, then the depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.resizing import linear_weights, window_means
from bridge.operations.volumes.pooling import planes

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class _Resizing3d(Operation):
    """Volumes (n, c, d, h, w) times a matrix along each of d, h and w. Triples are (depth, height, width)."""

    def _length(self, length: int, axis: int) -> int:
        """What becomes of an axis, 0 for d, 1 for h and 2 for w, of `length` voxels."""
        raise NotImplementedError

    def _weights(self, x: Number, length: int, axis: int) -> Number:
        """The weights (out, in) of an axis."""
        raise NotImplementedError

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, c, and what becomes of d, h and w)."""
        (shape,) = shapes
        if len(shape) != 5:
            raise self.refuse(f"input {shape}", "a shape (n, c, d, h, w)")
        return (*shape[:2], *(self._length(length, axis) for axis, length in enumerate(shape[2:])))

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the resized volumes."""
        (x,) = inputs
        return self._resized(x, [self._weights(x, length, axis) for axis, length in enumerate(x.shape[2:])])

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return for each voxel the sum of dy over all that it went into."""
        return [self._resized(dy, [self._weights(dy, length, axis).transpose((1, 0))
                                   for axis, length in enumerate(inputs[0].shape[2:])])], {}

    def _resized(self, x: Number, weights: Sequence[Number]) -> Number:
        """Each axis by its weights (out, in)."""
        of_depth, *of_planes = weights
        n, c, d = x.shape[:3]
        h, w = (one.shape[0] for one in of_planes)
        columns = planes(x).resized(*of_planes).reshape((n, c, d, h * w)).transpose((0, 1, 3, 2))
        found = columns.reshape((n * c, h * w, 1, d)).resized(x.exact(np.eye(1)), of_depth)
        return found.reshape((n, c, h * w, -1)).transpose((0, 1, 3, 2)).reshape((n, c, -1, h, w))


@dataclass(frozen=True)
class UpsampleNearest3d(_Resizing3d):
    """Each voxel repeated, ``scale_factor`` = (depth, height, width) times."""

    scale_factor: Triple
    kind: ClassVar[str] = "upsample_nearest3d"

    def _length(self, length: int, axis: int) -> int:
        return length * self.scale_factor[axis]

    def _weights(self, x: Number, length: int, axis: int) -> Number:
        return x.exact(np.repeat(np.eye(length), self.scale_factor[axis], 0))

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.interpolate`` in the mode "nearest"."""
        from torch.nn import functional

        return functional.interpolate(inputs[0], scale_factor=tuple(map(float, self.scale_factor)), mode="nearest")


@dataclass(frozen=True)
class UpsampleTrilinear3d(_Resizing3d):
    """Linear interpolation between voxels, to ``scale_factor`` = (depth, height, width) times as many.

    With `align_corners` the centres of the corner voxels stay where they are, else the corners of the volume; there the
    outermost voxels are repeated beyond their centres.
    """

    scale_factor: Triple
    align_corners: bool = False
    kind: ClassVar[str] = "upsample_trilinear3d"

    def _length(self, length: int, axis: int) -> int:
        return length * self.scale_factor[axis]

    def _weights(self, x: Number, length: int, axis: int) -> Number:
        return linear_weights(x, length, self.scale_factor[axis], aligned=self.align_corners)

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.interpolate`` in the mode "trilinear"."""
        from torch.nn import functional

        return functional.interpolate(inputs[0], scale_factor=tuple(map(float, self.scale_factor)), mode="trilinear",
                                      align_corners=self.align_corners)


@dataclass(frozen=True)
class AdaptiveAvgPool3d(_Resizing3d):
    """The means of as many windows as wanted, ``output_size`` = (depth, height, width).

    Window i of n along an axis of L voxels begins at ``floor(i*L/n)`` and ends before ``ceil((i + 1)*L/n)``.
    """

    output_size: Triple
    kind: ClassVar[str] = "adaptive_avg_pool3d"
    sample_rank: ClassVar[int | None] = 4

    def _length(self, length: int, axis: int) -> int:
        return self.output_size[axis]

    def _weights(self, x: Number, length: int, axis: int) -> Number:
        size = self.output_size[axis]
        i = np.arange(size)
        # A right program multiplies by the reciprocals of a window's sides, too, which are rounded
        return x.constants(window_means(length, i * length // size, -(-(i + 1) * length // size)))

    def _resized(self, x: Number, weights: Sequence[Number]) -> Number:
        """Also as one sum of all voxels of a window: the columns of planes with their depth as rows."""
        of_depth, of_rows, of_columns = weights
        n, c, d, h, w = x.shape
        both = of_depth.reshape((-1, 1, d, 1)) * of_rows.reshape((1, -1, 1, h))
        whole = x.reshape((n, c, d * h, w)).resized(both.reshape((-1, d * h)), of_columns)
        return super()._resized(x, weights).or_as(whole.reshape((n, c, *(one.shape[0] for one in weights))))

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.adaptive_avg_pool3d``."""
        from torch.nn import functional

        return functional.adaptive_avg_pool3d(inputs[0], self.output_size)
