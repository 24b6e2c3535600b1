# SPDX-License-Identifier: MIT
"""Operations that give the same numbers another shape, or another order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Gradients, Number, Operation, Shape

#: Of one image; -1 is what is left
Extents = tuple[int, ...]
#: Torch's number of a dimension: from the last, if it is negative
Axis = int


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

    Where it is `fixed`, each image must have the shape already: a network that is right for one size begins so.
    """

    shape: Extents
    fixed: bool = False
    kind: ClassVar[str] = "reshape"

    def check(self) -> None:
        """Refuse what is no extent, and two that are what is left."""
        if 0 in self.shape or self.shape.count(-1) > (0 if self.fixed else 1):
            raise self.refuse(f"shape {self.shape}", "integers from 1 on, or -1 for one of them if it is not fixed")

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, and the extents)."""
        (shape,) = shapes
        if self.fixed and shape[1:] != self.shape:
            raise self.refuse(f"input {shape}", f"images of the shape {self.shape} at which the network was read: read "
                              "it again with an example of the new one")
        given = math.prod(n for n in self.shape if n > 0)
        left, rest = divmod(math.prod(shape[1:]), given)
        if rest or (left != 1 and -1 not in self.shape):
            raise self.refuse(f"input {shape}", f"the elements of {self.shape} in each image")
        return (shape[0], *(left if n < 0 else n for n in self.shape))

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the same numbers in the same order."""
        (x,) = inputs
        return x.reshape(self.output_shape(x.shape))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy in the shape of the input."""
        return [dy.reshape(inputs[0].shape)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.reshape(len(x), *shape)``."""
        return inputs[0].reshape(inputs[0].shape[0], *self.shape)


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
