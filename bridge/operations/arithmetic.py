# SPDX-License-Identifier: MIT
"""Operations on each element of two inputs, which are broadcast as numpy and torch do, and one with a weight."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Gradients, Number, Operation, Shape


@dataclass(frozen=True)
class BinaryOperation(Operation):
    """A function of two inputs; its kind is torch's name of it.

    >>> import torch
    >>> Multiply("a").torch_forward([torch.tensor([1.0, 2.0]), torch.tensor(3.0)], {})
    tensor([3., 6.])
    """

    sample_rank: ClassVar[int | None] = 0
    arity: ClassVar[int] = 2

    def value(self, a: Number, b: Number) -> Number:
        """Return the function of both."""
        raise NotImplementedError

    def slopes(self, dy: Number, a: Number, b: Number) -> tuple[Number, Number]:
        """Return dy times the derivatives with respect to a and b, before what was broadcast is summed."""
        raise NotImplementedError

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape to which both are broadcast."""
        pairs = list(itertools.zip_longest(reversed(shapes[0]), reversed(shapes[1]), fillvalue=1))
        if any(a != b and 1 not in (a, b) for a, b in pairs):
            raise self.refuse(f"the shapes {shapes[0]} of {self.inputs[0]} and {shapes[1]} of {self.inputs[1]}",
                              "shapes that can be broadcast to one")
        return tuple(max(a, b) for a, b in reversed(pairs))

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the function of both inputs."""
        return self.value(*inputs)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradient of each input, summed over the axes along which it was broadcast."""
        slopes = self.slopes(dy, *inputs)
        return [slope.summed_to(one.shape) for slope, one in zip(slopes, inputs, strict=True)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return torch's function of that name."""
        import torch

        return getattr(torch, self.kind)(*inputs)


@dataclass(frozen=True)
class Add(BinaryOperation):
    """The sum."""

    kind: ClassVar[str] = "add"

    def value(self, a: Number, b: Number) -> Number:
        """Return ``a + b``."""
        return a + b

    def slopes(self, dy: Number, a: Number, b: Number) -> tuple[Number, Number]:
        """Return dy for both."""
        return dy, dy


@dataclass(frozen=True)
class Subtract(BinaryOperation):
    """The difference."""

    kind: ClassVar[str] = "subtract"

    def value(self, a: Number, b: Number) -> Number:
        """Return ``a - b``."""
        return a - b

    def slopes(self, dy: Number, a: Number, b: Number) -> tuple[Number, Number]:
        """Return dy, and -dy."""
        return dy, -dy


@dataclass(frozen=True)
class Multiply(BinaryOperation):
    """The product of each two elements."""

    kind: ClassVar[str] = "multiply"

    def value(self, a: Number, b: Number) -> Number:
        """Return ``a * b``."""
        return a * b

    def slopes(self, dy: Number, a: Number, b: Number) -> tuple[Number, Number]:
        """Return ``dy * b`` and ``dy * a``."""
        return dy * b, dy * a


@dataclass(frozen=True)
class Divide(BinaryOperation):
    """The quotient."""

    kind: ClassVar[str] = "divide"

    def value(self, a: Number, b: Number) -> Number:
        """Return ``a / b``, or a times the reciprocal."""
        return (a / b).or_as(a * (1.0 / b))

    def slopes(self, dy: Number, a: Number, b: Number) -> tuple[Number, Number]:
        """Return ``dy / b`` and ``-dy * a / b**2``."""
        inverse = 1.0 / b
        return (dy / b).or_as(dy * inverse), -(dy * (a / b / b).or_as(a * (inverse * inverse)))


@dataclass(frozen=True)
class Prelu(Operation):
    """``x`` where it is positive, else ``weight * x``; one weight, or one for each channel.

    Source: K. He, X. Zhang, S. Ren and J. Sun, ICCV 2015, https://arxiv.org/abs/1502.01852
    """

    num_parameters: int = 1
    kind: ClassVar[str] = "prelu"

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        (shape,) = shapes
        if self.num_parameters != 1 and self.num_parameters != (shape[1] if len(shape) > 1 else 1):
            raise self.refuse(f"input {shape}", "as many channels as num_parameters")
        return shape

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shape of the weight."""
        return {"weight": (self.num_parameters,)}

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return ``x`` or ``weight * x``."""
        (x,) = inputs
        return (x > 0).choose(x, x * self._along(x.shape, parameters["weight"]))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return ``dy`` or ``weight * dy``, and the sum of ``x * dy`` where x is not positive."""
        (x,) = inputs
        weight = self._along(x.shape, parameters["weight"])
        slope = (x > 0).choose(0.0, x * dy).summed_to(weight.shape)
        return [(x > 0).choose(dy, dy * weight)], {"weight": slope.reshape((self.num_parameters,))}

    @staticmethod
    def _along(shape: Shape, weight: Number) -> Number:
        """The weight as a tensor that is broadcast along the channels."""
        return weight.reshape(tuple(weight.size if axis == min(1, len(shape) - 1) else 1 for axis in range(len(shape))))

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.prelu``."""
        from torch.nn import functional

        return functional.prelu(inputs[0], parameters["weight"])
