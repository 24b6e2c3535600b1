# SPDX-License-Identifier: MIT
"""Operations that make probabilities of the numbers along a dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.rearrangement import Axis, positive


@dataclass(frozen=True)
class _Along(Operation):
    """One that takes all numbers along a dimension together: the channels, unless `dim` says otherwise."""

    dim: Axis = 1

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        (shape,) = shapes
        if len(shape) < 2:
            raise self.refuse(f"input {shape}", "two dimensions or more")
        if positive(self, self.dim, len(shape)) == 0:
            raise self.refuse(f"dimension {self.dim} of {len(shape)}", "another than the batch")
        return shape

    def _kept(self, x: Number, of: Number) -> Number:
        """What was found along the dimension, which remains as one of one number."""
        axis = positive(self, self.dim, len(x.shape))
        return of.reshape((*x.shape[:axis], 1, *x.shape[axis + 1:]))

    def _summed(self, x: Number) -> Number:
        return self._kept(x, x.sum((positive(self, self.dim, len(x.shape)),)))

    def _below_largest(self, x: Number) -> Number:
        """What no exponential of overflows."""
        largest = self._kept(x, x.max((positive(self, self.dim, len(x.shape)),)))
        return (x - largest).named("the input less its largest")


@dataclass(frozen=True)
class Softmax(_Along):
    """``exp(x) / sum(exp(x))`` along the dimension."""

    kind: ClassVar[str] = "softmax"

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the probabilities, or the exponential of their logarithms: whichever way is the less exact."""
        powers = self._below_largest(inputs[0]).exp()
        return (powers / self._summed(powers)).or_as(LogSoftmax("", self.dim).forward(inputs, parameters).exp())

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return ``y * (dy - sum(dy * y))`` from the output y, or the same multiplied out."""
        y = self.forward(inputs, parameters).named("y")
        return [(y * (dy - self._summed(dy * y))).or_as(y * dy - y * self._summed(dy * y))], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.softmax(dim)``."""
        return inputs[0].softmax(self.dim)


@dataclass(frozen=True)
class LogSoftmax(_Along):
    """``x - log(sum(exp(x)))`` along the dimension."""

    kind: ClassVar[str] = "log_softmax"

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the logarithms of the probabilities."""
        x = self._below_largest(inputs[0])
        return x - self._summed(x.exp()).log()

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return ``dy - exp(y) * sum(dy)`` from the output y."""
        y = self.forward(inputs, parameters).named("y")
        return [dy - y.exp() * self._summed(dy)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.log_softmax(dim)``."""
        return inputs[0].log_softmax(self.dim)
