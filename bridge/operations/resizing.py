# SPDX-License-Identifier: MIT
"""Operations that change the size of an image, along each axis by itself.

Each row of the output is a sum of rows of the input with weights of its own, and each column one of columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.operations.operation import Gradients, Number, Operation, Shape

Array = np.ndarray
Pair = tuple[int, int]
#: Real numbers from 0 on
Weights = tuple[float, ...]
#: What is added to an image on its (left, right, top, bottom), as torch's `pad` takes it
Sides = tuple[int, int, int, int]


@dataclass(frozen=True)
class _Resizing(Operation):
    """Images (n, c, h, w) times a matrix along h, and one along w."""

    def weights(self, length: int, axis: int) -> Array:
        """Return the weights (out, in) of an axis, 0 for h and 1 for w, of `length` pixels."""
        raise NotImplementedError

    def _length(self, length: int, axis: int) -> int:
        """The number of rows of `weights`."""
        raise NotImplementedError

    def _weights(self, x: Number, length: int, axis: int) -> Number:
        return x.exact(self.weights(length, axis))

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, c, and what becomes of h and w)."""
        (shape,) = shapes
        if len(shape) != 4:
            raise self.refuse(f"input {shape}", "a shape (n, c, h, w)")
        return (*shape[:2], self._length(shape[2], 0), self._length(shape[3], 1))

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the resized images."""
        (x,) = inputs
        return x.resized(*(self._weights(x, length, axis) for axis, length in enumerate(x.shape[2:])))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return for each pixel the sum of dy over all that it went into."""
        back = [self._weights(dy, length, axis).transpose((1, 0)) for axis, length in enumerate(inputs[0].shape[2:])]
        return [dy.resized(*back)], {}


def linear_weights(x: Number, length: int, factor: int, *, aligned: bool) -> Number:
    """Return the weights (factor * length, length) of linear interpolation along an axis.

    Parameters
    ----------
    x : any number of the formula
    aligned : the centres of the outermost pixels stay where they are
    """
    out = length * factor
    place = x.exact(np.arange(float(out)))
    source = place * ((length - 1) / max(out - 1, 1)) if aligned else (place + 0.5) * (1 / factor) - 0.5
    return source.weights_between(length)


@dataclass(frozen=True)
class UpsampleNearest2d(_Resizing):
    """Each pixel repeated, ``scale_factor`` = (height, width) times."""

    scale_factor: Pair
    kind: ClassVar[str] = "upsample_nearest2d"

    def _length(self, length: int, axis: int) -> int:
        return length * self.scale_factor[axis]

    def weights(self, length: int, axis: int) -> Array:
        """Return a 1 for the pixel that each is a copy of."""
        return np.repeat(np.eye(length), self.scale_factor[axis], 0)

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.interpolate`` in the mode "nearest"."""
        from torch.nn import functional

        return functional.interpolate(inputs[0], scale_factor=tuple(map(float, self.scale_factor)), mode="nearest")


@dataclass(frozen=True)
class UpsampleBilinear2d(_Resizing):
    """Linear interpolation between pixels, to ``scale_factor`` = (height, width) times as many.

    With `align_corners` the centres of the corner pixels stay where they are, else the corners of the image; there the
    outermost pixels are repeated beyond their centres.
    """

    scale_factor: Pair
    align_corners: bool = False
    kind: ClassVar[str] = "upsample_bilinear2d"

    def _length(self, length: int, axis: int) -> int:
        return length * self.scale_factor[axis]

    def _weights(self, x: Number, length: int, axis: int) -> Number:
        return linear_weights(x, length, self.scale_factor[axis], aligned=self.align_corners)

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.interpolate`` in the mode "bilinear"."""
        from torch.nn import functional

        return functional.interpolate(inputs[0], scale_factor=tuple(map(float, self.scale_factor)), mode="bilinear",
                                      align_corners=self.align_corners)


@dataclass(frozen=True)
class Interpolate(_Resizing):
    """Images of any size, torch's ``interpolate``: of a `size`, or some `scale_factor` times as large.

    Between pixels stands a polynomial of a `degree`: 0, the nearest pixel, or with `exact` that nearest to the centre,
    torch's "nearest" and "nearest-exact"; 1, "bilinear"; 3, "bicubic". With `align_corners` the centres of the corner
    pixels stay where they are, else the corners of the image. Beyond it the outermost pixels are repeated.

    Which pixel is the nearest one is computed in float32, as in torch. As many pixels as there are are copies, whatever
    the factor is, but of the degree 3, and with `exact`.
    """

    degree: int
    size: Pair = (0, 0)
    scale_factor: Weights = (0.0, 0.0)
    align_corners: bool = False
    exact: bool = False
    kind: ClassVar[str] = "interpolate"

    def check(self) -> None:
        """Refuse other degrees, and what says no size, or two."""
        if self.degree not in (0, 1, 3):
            raise self.refuse(f"degree {self.degree}", "0, 1 or 3")
        given = [all(one) and len(one) == 2 for one in (self.size, self.scale_factor)]
        if sum(given) != 1 or any(self.scale_factor if given[0] else self.size):
            raise self.refuse(f"size {self.size} and scale_factor {self.scale_factor}", "one of them, of two numbers")

    def _length(self, length: int, axis: int) -> int:
        return self.size[axis] or math.floor(length * self.scale_factor[axis])

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, c, and what becomes of h and w)."""
        found = super().output_shape(*shapes)
        if not 1 <= min(found[2:]) <= max(found[2:]) < 2**31:
            raise self.refuse(f"input {shapes[0]}", "1 or more rows and columns of the output, less than 2**31")
        return found

    def nearest(self, length: int, axis: int) -> Array:
        """Return the pixel that each is a copy of."""
        out, single = self._length(length, axis), np.float32
        scale = single(length) / single(out) if self.size[axis] else single(1 / self.scale_factor[axis])
        if not self.exact and out in (length, 2 * length):
            scale = single(length / out)
        place = (np.arange(out, dtype=single) + single(self.exact * 0.5)) * scale
        return np.minimum(np.floor(place).astype(int), length - 1)

    def _places(self, x: Number, length: int, axis: int) -> Number:
        """Where the pixels of the output lie between those of the input."""
        out = self._length(length, axis)
        place = x.exact(np.arange(float(out)))
        if self.degree == 1 and out == length:
            return place
        if self.align_corners:
            return place * (x.exact(np.array(float(length - 1))) / float(max(out - 1, 1)))
        one = x.exact(np.array(float(length))) / float(out) if self.size[axis] else (
            x.exact(np.array(1.0)) / self.scale_factor[axis])
        return (place + 0.5) * one - 0.5

    def _weights(self, x: Number, length: int, axis: int) -> Number:
        if self.degree == 0:
            return x.exact(np.eye(length)[self.nearest(length, axis)])
        places = self._places(x, length, axis)
        # Of an image with two more pixels on each side
        return places.weights_between(length) if self.degree == 1 else (places + 2.0).cubic_weights(length + 4)

    def _repeated(self, shape: Shape) -> tuple[tuple[int, ...], ...]:
        """Of each axis the pixels of the image with two more on each side."""
        whole = [tuple(range(n)) for n in shape[:2]]
        return *whole, *(tuple(np.clip(np.arange(-2, n + 2), 0, n - 1).tolist()) for n in shape[2:])

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the images of the other size."""
        (x,) = inputs
        weights = [self._weights(x, length, axis) for axis, length in enumerate(x.shape[2:])]
        if self.degree == 3:
            x = x.moved(lambda a: a[np.ix_(*self._repeated(a.shape))])
        return x.resized(*weights)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return for each pixel the sum of dy over all that it went into."""
        shape = inputs[0].shape
        back = [self._weights(dy, length, axis).transpose((1, 0)) for axis, length in enumerate(shape[2:])]
        found = dy.resized(*back)
        if self.degree == 3:
            # A right program adds all of it at once
            found = found.scattered(self._repeated(shape), shape, found.terms)
        return [found], {}

    @property
    def mode(self) -> str:
        """Return torch's name of it."""
        return {0: "nearest-exact" if self.exact else "nearest", 1: "bilinear", 3: "bicubic"}[self.degree]

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.interpolate``."""
        from torch.nn import functional

        return functional.interpolate(
            inputs[0], self.size if any(self.size) else None, None if any(self.size) else self.scale_factor, self.mode,
            self.align_corners if self.degree else None)


@dataclass(frozen=True)
class AdaptiveAvgPool2d(_Resizing):
    """The means of as many windows as wanted, ``output_size`` = (height, width).

    Window i of n along an axis of L pixels begins at ``floor(i*L/n)`` and ends before ``ceil((i + 1)*L/n)``.
    """

    output_size: Pair
    kind: ClassVar[str] = "adaptive_avg_pool2d"
    sample_rank: ClassVar[int | None] = 3

    def _length(self, length: int, axis: int) -> int:
        return self.output_size[axis]

    def _weights(self, x: Number, length: int, axis: int) -> Number:
        # A right program multiplies by the reciprocals of a window's height and width, too, which are rounded
        return x.constants(self.weights(length, axis))

    def weights(self, length: int, axis: int) -> Array:
        """Return an equal weight for each pixel of a window."""
        return window_means(length, *adaptive_windows(length, self.output_size[axis]))

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.adaptive_avg_pool2d``."""
        from torch.nn import functional

        return functional.adaptive_avg_pool2d(inputs[0], self.output_size)


def adaptive_windows(length: int, size: int) -> tuple[Array, Array]:
    """Return where windows of an axis begin, and what they end before, if all pixels are in one of `size` windows.

    >>> adaptive_windows(3, 2)
    (array([0, 1]), array([2, 3]))
    """
    i = np.arange(size)
    return i * length // size, -(-(i + 1) * length // size)


def window_means(length: int, begins: Array, ends: Array) -> Array:
    """Return the weights (window, pixel) of means of windows.

    >>> window_means(3, np.array([0, 1]), np.array([1, 3]))
    array([[1. , 0. , 0. ],
           [0. , 0.5, 0.5]])
    """
    pixel = np.arange(length)
    inside = (pixel >= begins[:, None]) & (pixel < ends[:, None])
    found: Array = inside / np.maximum(inside.sum(1, keepdims=True), 1)
    return found


@dataclass(frozen=True)
class _Padding(_Resizing):
    """Pixels added on the sides (left, right, top, bottom) of an image."""

    padding: Sides
    #: As numpy's `pad` and torch's call it
    numpy_mode: ClassVar[str]
    torch_mode: ClassVar[str]

    def _sides(self, axis: int) -> tuple[int, int]:
        """What is added before and after the pixels of an axis."""
        left, right, top, bottom = self.padding
        return (left, right) if axis else (top, bottom)

    def _length(self, length: int, axis: int) -> int:
        return length + sum(self._sides(axis))

    def weights(self, length: int, axis: int) -> Array:
        """Return a 1 for the pixel that each is a copy of, and nothing for what is 0."""
        return np.pad(np.eye(length), (self._sides(axis), (0, 0)), mode=self.numpy_mode)  # type: ignore[call-overload]

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.pad`` in the mode of this operation."""
        from torch.nn import functional

        return functional.pad(inputs[0], self.padding, mode=self.torch_mode)


@dataclass(frozen=True)
class ZeroPad2d(_Padding):
    """Zeros around an image."""

    kind: ClassVar[str] = "zero_pad2d"
    sample_rank: ClassVar[int | None] = 3
    numpy_mode: ClassVar[str] = "constant"
    torch_mode: ClassVar[str] = "constant"


@dataclass(frozen=True)
class ReplicationPad2d(_Padding):
    """Copies of the outermost pixels around an image."""

    kind: ClassVar[str] = "replication_pad2d"
    sample_rank: ClassVar[int | None] = 3
    numpy_mode: ClassVar[str] = "edge"
    torch_mode: ClassVar[str] = "replicate"


@dataclass(frozen=True)
class ReflectionPad2d(_Padding):
    """The image mirrored at its outermost pixels, which are not repeated."""

    kind: ClassVar[str] = "reflection_pad2d"
    sample_rank: ClassVar[int | None] = 3
    numpy_mode: ClassVar[str] = "reflect"
    torch_mode: ClassVar[str] = "reflect"

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, c, and h and w with what is added)."""
        found = super().output_shape(*shapes)
        for axis, length in enumerate(shapes[0][2:]):
            if max(self._sides(axis)) >= length:
                raise self.refuse(f"padding {self.padding} of the input {shapes[0]}", "fewer pixels than the image has")
        return found
