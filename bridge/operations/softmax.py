# SPDX-License-Identifier: MIT
"""Operations that make probabilities of the numbers of all channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Gradients, Number, Operation, Shape


@dataclass(frozen=True)
class _OverChannels(Operation):
    """One that takes all channels of a pixel, or all features of an image, together: torch's ``dim=1``."""

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        (shape,) = shapes
        if len(shape) < 2:
            raise self.refuse(f"input {shape}", "two dimensions or more")
        return shape


def _summed(x: Number) -> Number:
    """Over the channels, which remain as one."""
    return x.sum((1,)).reshape((x.shape[0], 1, *x.shape[2:]))


def _below_largest(x: Number) -> Number:
    """What no exponential of overflows."""
    return (x - x.max((1,)).reshape((x.shape[0], 1, *x.shape[2:]))).named("the input less its largest")


@dataclass(frozen=True)
class Softmax(_OverChannels):
    """``exp(x) / sum(exp(x))`` over the channels."""

    kind: ClassVar[str] = "softmax"

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the probabilities, or the exponential of their logarithms: whichever way is the less exact."""
        powers = _below_largest(inputs[0]).exp()
        return (powers / _summed(powers)).or_as(LogSoftmax("").forward(inputs, parameters).exp())

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return ``y * (dy - sum(dy * y))`` from the output y, or the same multiplied out."""
        y = self.forward(inputs, parameters).named("y")
        return [(y * (dy - _summed(dy * y))).or_as(y * dy - y * _summed(dy * y))], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.softmax(1)``."""
        return inputs[0].softmax(1)


@dataclass(frozen=True)
class LogSoftmax(_OverChannels):
    """``x - log(sum(exp(x)))`` over the channels."""

    kind: ClassVar[str] = "log_softmax"

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the logarithms of the probabilities."""
        x = _below_largest(inputs[0])
        return x - _summed(x.exp()).log()

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return ``dy - exp(y) * sum(dy)`` from the output y."""
        y = self.forward(inputs, parameters).named("y")
        return [dy - y.exp() * _summed(dy)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.log_softmax(1)``."""
        return inputs[0].log_softmax(1)
