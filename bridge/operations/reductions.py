# SPDX-License-Identifier: MIT
"""Operations that make one number of all along some dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.rearrangement import Axes, positive


@dataclass(frozen=True)
class Reduction(Operation):
    """Over the dimensions `dim`, which remain as ones of one number if `keepdim` says so; torch's arguments."""

    dim: Axes
    keepdim: bool = False

    def axes(self, rank: int) -> tuple[int, ...]:
        """Return the axes, counted from the first, of an input of so many."""
        return tuple(sorted(positive(self, axis, rank) for axis in self.dim))

    def kept(self, shape: Shape) -> Shape:
        """Return the shape of the output with the axes as ones of one number."""
        return tuple(1 if i in self.axes(len(shape)) else n for i, n in enumerate(shape))

    def count(self, shape: Shape) -> int:
        """Return how many numbers become one."""
        return math.prod(shape[i] for i in self.axes(len(shape)))

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape without the axes, or with ones of one number in their place."""
        (shape,) = shapes
        axes = self.axes(len(shape))
        if len(set(axes)) < len(axes) or (len(axes) == len(shape) and not self.keepdim):
            raise self.refuse(f"dimensions {self.dim} of {len(shape)}", "each once, and one that remains")
        return self.kept(shape) if self.keepdim else tuple(n for i, n in enumerate(shape) if i not in axes)

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return torch's function of that name."""
        return getattr(inputs[0], self.kind)(self.dim, self.keepdim)


@dataclass(frozen=True)
class Sum(Reduction):
    """The sum."""

    kind: ClassVar[str] = "sum"

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the sums."""
        (x,) = inputs
        return x.sum(self.axes(len(x.shape))).reshape(self.output_shape(x.shape))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy for each number of its sum."""
        shape = inputs[0].shape
        return [dy.reshape(self.kept(shape)).broadcast(shape)], {}


@dataclass(frozen=True)
class Mean(Sum):
    """The mean."""

    kind: ClassVar[str] = "mean"

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the means."""
        count = self.count(inputs[0].shape)
        return (super().forward(inputs, parameters) / count).by_terms(count)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return an equal part of dy for each number of its mean."""
        return super().backward(dy / self.count(inputs[0].shape), inputs, parameters)


@dataclass(frozen=True)
class Extreme(Reduction):
    """The largest number, or the smallest."""

    #: -1 where it is the smallest
    sign: ClassVar[int] = 1

    def _signed(self, x: Number) -> Number:
        return x if self.sign > 0 else -x

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the largest, or smallest, numbers."""
        x = self._signed(inputs[0])
        return self._signed(x.max(self.axes(len(x.shape)))).reshape(self.output_shape(x.shape))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy divided equally among those that are the largest."""
        x = self._signed(inputs[0])
        return [dy.reshape(self.kept(x.shape)) * x.shares_of_max(self.axes(len(x.shape)))], {}


@dataclass(frozen=True)
class Amax(Extreme):
    """The largest number; its gradient goes to all that are, in equal parts."""

    kind: ClassVar[str] = "amax"


@dataclass(frozen=True)
class Amin(Extreme):
    """The smallest number; its gradient goes to all that are, in equal parts."""

    kind: ClassVar[str] = "amin"
    sign: ClassVar[int] = -1


@dataclass(frozen=True)
class Max(Extreme):
    """The largest number along one dimension, torch's ``max(dim).values``; its gradient goes to the first that is."""

    kind: ClassVar[str] = "max"

    def check(self) -> None:
        """Refuse several dimensions."""
        if len(self.dim) > 1:
            raise self.refuse(f"dimensions {self.dim}", "one")

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy at the first of those that are the largest."""
        x = self._signed(inputs[0])
        (axis,) = self.axes(len(x.shape))
        order = (*(i for i in range(len(x.shape)) if i != axis), axis)
        turned = x.transpose(order)
        largest = turned.reshape((*turned.shape[:-1], 1, turned.shape[-1])).where_max()
        chosen = largest.choose(dy.reshape((*turned.shape[:-1], 1, 1)), 0.0).reshape(turned.shape)
        return [chosen.transpose(tuple(order.index(i) for i in range(len(order))))], {}

    def choices(self, shape: Shape) -> tuple[tuple[int, ...], int]:
        """Return the axis that goes."""
        return self.axes(len(shape)), self.count(shape)

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return torch's function of that name along `dim`, the values alone."""
        return getattr(inputs[0], self.kind)(self.dim[0], self.keepdim).values


@dataclass(frozen=True)
class Min(Max):
    """The smallest number along one dimension, torch's ``min(dim).values``; its gradient goes to the first that is."""

    kind: ClassVar[str] = "min"
    sign: ClassVar[int] = -1
