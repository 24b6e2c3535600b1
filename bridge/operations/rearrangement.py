# SPDX-License-Identifier: MIT
"""Operations that give the same numbers another shape, or other places."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.operations.operation import Gradients, Number, Operation, Shape

#: Of one image; -1 is what is left
Extents = tuple[int, ...]
#: Torch's number of a dimension: from the last, if it is negative
Axis = int
#: Several
Axes = tuple[int, ...]
#: A number from the end if it is negative, or how far numbers go: from -2**24 to 2**24
Index = int
Shifts = tuple[int, ...]
#: Where a slice stops that goes to the end, however long a dimension is
TO_THE_END = 2**24


def positive(node: Operation, axis: Axis, rank: int) -> int:
    """Return an axis counted from the first.

    Raises
    ------
    FileError
        If there is none of that number.
    """
    if not -rank <= axis < rank:
        raise node.refuse(f"dimension {axis} of {rank}", f"one from {-rank} to {rank - 1}")
    return axis % rank


@dataclass(frozen=True)
class Reshape(Operation):
    """The numbers of each image in another shape, torch's ``x.reshape(len(x), *shape)``.

    Where it is `fixed`, each image must have the shape already: a network that is right for one size begins so. Each
    may become several `images`, or so many one, where that is negative: windows of an image are images, and back.
    """

    shape: Extents
    fixed: bool = False
    images: Index = 1
    kind: ClassVar[str] = "reshape"

    def check(self) -> None:
        """Refuse what is no extent, and two that are what is left."""
        if 0 in self.shape or self.shape.count(-1) > (0 if self.fixed else 1):
            raise self.refuse(f"shape {self.shape}", "integers from 1 on, or -1 for one of them if it is not fixed")
        if self.images == 0 or (self.fixed and self.images != 1):
            raise self.refuse(f"images {self.images}", "another number than 0, and 1 if it is fixed")

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, and the extents)."""
        (shape,) = shapes
        if self.fixed and shape[1:] != self.shape:
            raise self.refuse(f"input {shape}", f"images of the shape {self.shape} at which the network was read: read "
                              "it again with an example of the new one")
        images, odd = (shape[0] * self.images, 0) if self.images > 0 else divmod(shape[0], -self.images)
        if odd:
            raise self.refuse(f"input {shape}", f"as many images as {-self.images} divides")
        given = images * math.prod(n for n in self.shape if n > 0)
        left, rest = divmod(math.prod(shape), given)
        if rest or (left != 1 and -1 not in self.shape):
            raise self.refuse(f"input {shape}", f"the elements of {self.shape} in each image")
        return (images, *(left if n < 0 else n for n in self.shape))

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the same numbers in the same order."""
        (x,) = inputs
        return x.reshape(self.output_shape(x.shape))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy in the shape of the input."""
        return [dy.reshape(inputs[0].shape)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.reshape(len(x), *shape)``, of as many images as there are."""
        return inputs[0].reshape(self.output_shape(tuple(inputs[0].shape)))


@dataclass(frozen=True)
class Transpose(Operation):
    """Two dimensions exchanged, neither of them the batch, torch's ``x.transpose(dim0, dim1)``."""

    dim0: Axis
    dim1: Axis
    kind: ClassVar[str] = "transpose"

    def order(self, rank: int) -> tuple[int, ...]:
        """Return the axes of an input of so many in the order of the output's."""
        one, other = (positive(self, axis, rank) for axis in (self.dim0, self.dim1))
        if 0 in (one, other):
            raise self.refuse(f"dimensions {self.dim0} and {self.dim1} of {rank}", "others than the batch")
        return tuple({one: other, other: one}.get(i, i) for i in range(rank))

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape with two of its extents exchanged."""
        (shape,) = shapes
        return tuple(shape[i] for i in self.order(len(shape)))

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the same numbers in another order."""
        (x,) = inputs
        return x.transpose(self.order(len(x.shape)))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy exchanged back."""
        return [dy.transpose(self.order(len(dy.shape)))], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.transpose(dim0, dim1)``."""
        return inputs[0].transpose(self.dim0, self.dim1)


@dataclass(frozen=True)
class Permute(Operation):
    """All dimensions in another order, of which the first is the batch, torch's ``x.permute(dims)``."""

    dims: Axes
    kind: ClassVar[str] = "permute"

    def order(self, rank: int) -> tuple[int, ...]:
        """Return the axes of an input of so many in the order of the output's."""
        found = tuple(positive(self, axis, rank) for axis in self.dims)
        if sorted(found) != list(range(rank)) or found[0] != 0:
            raise self.refuse(f"dimensions {self.dims} of {rank}", "each once, and the batch first")
        return found

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the extents in that order."""
        (shape,) = shapes
        return tuple(shape[i] for i in self.order(len(shape)))

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the same numbers in another order."""
        (x,) = inputs
        return x.transpose(self.order(len(x.shape)))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy in the order of the input."""
        order = self.order(len(dy.shape))
        return [dy.transpose(tuple(order.index(i) for i in range(len(order))))], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.permute(dims)``."""
        return inputs[0].permute(self.dims)


@dataclass(frozen=True)
class Slice(Operation):
    """Some indices of a dimension that is not the batch, Python's ``x[start:stop:step]`` along it.

    A `stop` of 2**24 is the end.
    """

    dim: Axis
    start: Index = 0
    stop: Index = TO_THE_END
    step: int = 1
    kind: ClassVar[str] = "slice"

    def index(self, rank: int) -> tuple[slice, ...]:
        """Return what numpy and torch take for it."""
        axis = positive(self, self.dim, rank)
        if axis == 0:
            raise self.refuse(f"dimension {self.dim} of {rank}", "another than the batch")
        return *(slice(None),) * axis, slice(self.start, None if self.stop == TO_THE_END else self.stop, self.step)

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape with fewer indices along the dimension."""
        (shape,) = shapes
        *before, chosen = self.index(len(shape))
        found = len(range(*chosen.indices(shape[len(before)])))
        if not found:
            raise self.refuse(f"indices from {self.start} to {self.stop} of {shape}", "one or more")
        return (*shape[:len(before)], found, *shape[len(before) + 1:])

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the part."""
        (x,) = inputs
        return x[self.index(len(x.shape))]

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy where it came from, and 0 elsewhere."""
        def back(part: np.ndarray) -> np.ndarray:
            whole = np.zeros(inputs[0].shape, part.dtype)
            whole[self.index(part.ndim)] = part
            return whole

        return [dy.moved(back)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return the part of a torch tensor."""
        return inputs[0][self.index(inputs[0].ndim)]


@dataclass(frozen=True)
class Flip(Operation):
    """Dimensions backwards, none of them the batch, torch's ``x.flip(dims)``."""

    dims: Axes
    kind: ClassVar[str] = "flip"

    def axes(self, rank: int) -> tuple[int, ...]:
        """Return them, counted from the first."""
        found = tuple(positive(self, axis, rank) for axis in self.dims)
        if 0 in found or len(set(found)) < len(found):
            raise self.refuse(f"dimensions {self.dims} of {rank}", "others than the batch, each once")
        return found

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        self.axes(len(shapes[0]))
        return shapes[0]

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the numbers backwards."""
        (x,) = inputs
        return x.moved(lambda a: np.flip(a, self.axes(a.ndim)))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy backwards."""
        return [dy.moved(lambda a: np.flip(a, self.axes(a.ndim)))], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.flip(dims)``."""
        return inputs[0].flip(self.dims)


@dataclass(frozen=True)
class Roll(Operation):
    """Numbers some places on along dimensions, the last ones to the beginning, torch's ``x.roll(shifts, dims)``."""

    shifts: Shifts
    dims: Axes
    kind: ClassVar[str] = "roll"

    def check(self) -> None:
        """Refuse another number of shifts than of dimensions."""
        if len(self.shifts) != len(self.dims):
            raise self.refuse(f"shifts {self.shifts} of dimensions {self.dims}", "one for each")

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        return Flip(self.name, self.dims).output_shape(*shapes)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the numbers at their new places."""
        (x,) = inputs
        return x.moved(lambda a: np.roll(a, self.shifts, self.dims))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy at the old places."""
        return [dy.moved(lambda a: np.roll(a, [-shift for shift in self.shifts], self.dims))], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.roll(shifts, dims)``."""
        return inputs[0].roll(self.shifts, self.dims)


@dataclass(frozen=True)
class Expand(Operation):
    """Dimensions of one number repeated, torch's ``x.expand(-1, *shape)``; -1 is what a dimension has."""

    shape: Extents
    kind: ClassVar[str] = "expand"

    def check(self) -> None:
        """Refuse what is no extent."""
        if 0 in self.shape:
            raise self.refuse(f"shape {self.shape}", "integers from 1 on, or -1")

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, and the extents)."""
        (shape,) = shapes
        wanted = tuple(n if m < 0 else m for n, m in zip(shape[1:], self.shape, strict=False))
        if len(shape) != len(self.shape) + 1 or any(n not in (1, m) for n, m in zip(shape[1:], wanted, strict=True)):
            raise self.refuse(f"input {shape}", f"images of {self.shape}, or of ones in their place")
        return (shape[0], *wanted)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the numbers, repeated."""
        (x,) = inputs
        return x.broadcast(self.output_shape(x.shape))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return for each number the sum over all that repeat it."""
        return [dy.summed_to(inputs[0].shape)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.expand(-1, *shape)``."""
        return inputs[0].expand(-1, *self.shape)


def _between(x: Number, f: int) -> Number:
    """Images whose channels are pixels between the pixels: (n, c, h, f, w, f) of (n, c, f, f, h, w)."""
    n, channels, h, w = x.shape
    return x.reshape((n, channels // f**2, f, f, h, w)).transpose((0, 1, 4, 2, 5, 3)).reshape(
        (n, channels // f**2, h * f, w * f))


def _apart(x: Number, f: int) -> Number:
    """And back."""
    n, channels, h, w = x.shape
    return x.reshape((n, channels, h // f, f, w // f, f)).transpose((0, 1, 3, 5, 2, 4)).reshape(
        (n, channels * f**2, h // f, w // f))


@dataclass(frozen=True)
class PixelShuffle(Operation):
    """Groups of channels as pixels between the pixels, torch's ``pixel_shuffle``."""

    upscale_factor: int
    kind: ClassVar[str] = "pixel_shuffle"

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of larger images of fewer channels."""
        (shape,) = shapes
        f = self.upscale_factor
        if len(shape) != 4:
            raise self.refuse(f"input {shape}", "a shape (n, c, h, w)")
        if shape[1] % f**2:
            raise self.refuse(f"input {shape}", f"as many channels as {f**2} divides")
        return shape[0], shape[1] // f**2, shape[2] * f, shape[3] * f

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the larger images."""
        return _between(inputs[0], self.upscale_factor)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy in the channels."""
        return [_apart(dy, self.upscale_factor)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return torch's function of that name."""
        from torch.nn import functional

        return functional.pixel_shuffle(inputs[0], self.upscale_factor)


@dataclass(frozen=True)
class PixelUnshuffle(Operation):
    """Blocks of pixels as channels, torch's ``pixel_unshuffle``."""

    downscale_factor: int
    kind: ClassVar[str] = "pixel_unshuffle"

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of smaller images of more channels."""
        (shape,) = shapes
        f = self.downscale_factor
        if len(shape) != 4:
            raise self.refuse(f"input {shape}", "a shape (n, c, h, w)")
        if shape[2] % f or shape[3] % f:
            raise self.refuse(f"input {shape}", f"a height and a width that {f} divides")
        return shape[0], shape[1] * f**2, shape[2] // f, shape[3] // f

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the smaller images."""
        return _apart(inputs[0], self.downscale_factor)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy between the pixels."""
        return [_between(dy, self.downscale_factor)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return torch's function of that name."""
        from torch.nn import functional

        return functional.pixel_unshuffle(inputs[0], self.downscale_factor)
