# SPDX-License-Identifier: MIT
"""Operations on each element by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.hyperparameters import fields
from bridge.operations.operation import Gradients, Number, Operation, Shape


@dataclass(frozen=True)
class Pointwise(Operation):
    """A function of each element by itself; its kind is torch's name of it, its hyperparameters torch's arguments.

    >>> import torch
    >>> Relu("a").torch_forward([torch.tensor([-1.0, 2.0])], {})
    tensor([0., 2.])
    """

    sample_rank: ClassVar[int | None] = 0

    def value(self, z: Number) -> Number:
        """Return the function of z."""
        raise NotImplementedError

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return dy times the derivative at z; of several ways to write it the least exact, since all are right."""
        raise NotImplementedError

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the function of the only input."""
        return self.value(inputs[0])

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradient with respect to it."""
        return [self.gradient(dy, inputs[0])], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return torch's function of that name."""
        import torch
        from torch.nn import functional

        function = getattr(functional, self.kind, None) or getattr(torch, self.kind)
        return function(inputs[0], *(getattr(self, one.name) for one in fields(self)))


@dataclass(frozen=True)
class Relu(Pointwise):
    """A rectifier, ``max(z, 0)``; the derivative at 0 is 0, as torch's."""

    kind: ClassVar[str] = "relu"

    def value(self, z: Number) -> Number:
        """Return ``max(z, 0)``."""
        return (z > 0).choose(z, 0.0)

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return dy where z > 0, else 0."""
        return (z > 0).choose(dy, 0.0)


@dataclass(frozen=True)
class LeakyRelu(Pointwise):
    """``z`` where it is positive, else ``negative_slope * z``."""

    negative_slope: float = 0.01
    kind: ClassVar[str] = "leaky_relu"

    def value(self, z: Number) -> Number:
        """Return ``z`` or ``negative_slope * z``."""
        return (z > 0).choose(z, z * self.negative_slope)

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy`` or ``negative_slope * dy``."""
        return (z > 0).choose(dy, dy * self.negative_slope)


def _bell(z: Number) -> Number:
    """The derivative of the sigmoid, ``e / (1 + e)**2`` with ``e = exp(-|z|)``; that of tanh(z/2), times 2."""
    e = (z > 0).choose(-z, z).exp()
    return e / ((1.0 + e) * (1.0 + e))


@dataclass(frozen=True)
class Sigmoid(Pointwise):
    """``1 / (1 + exp(-z))``."""

    kind: ClassVar[str] = "sigmoid"

    def value(self, z: Number) -> Number:
        """Return the logistic function of z."""
        return z.sigmoid()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy * y * (1 - y)`` from the output y, or the same from z."""
        y = z.sigmoid()
        return dy * (y * (1.0 - y)).or_as(y - y * y).or_as(_bell(z))


@dataclass(frozen=True)
class Silu(Pointwise):
    """``z * sigmoid(z)``, also called swish.

    Source: S. Elfwing, E. Uchibe and K. Doya, Neural Networks 107 (2018), https://arxiv.org/abs/1702.03118
    """

    kind: ClassVar[str] = "silu"

    def value(self, z: Number) -> Number:
        """Return ``z * sigmoid(z)``."""
        return z * z.sigmoid()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy * s * (1 + z * (1 - s))`` of the sigmoid s, or the same multiplied out."""
        s = z.sigmoid()
        return dy * (s * (1.0 + z * (1.0 - s))).or_as(s + z * (s - s * s)).or_as(s + z * _bell(z))


@dataclass(frozen=True)
class Tanh(Pointwise):
    """The hyperbolic tangent."""

    kind: ClassVar[str] = "tanh"

    def value(self, z: Number) -> Number:
        """Return ``tanh(z)``."""
        return z.tanh()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy * (1 - y*y)`` from the output y, or ``dy / cosh(z)**2``."""
        y = z.tanh()
        return dy * (1.0 - y * y).or_as((1.0 - y) * (1.0 + y)).or_as(_bell(z * 2.0) * 4.0)


@dataclass(frozen=True)
class Dropout(Operation):
    """``x / (1 - p)`` where the mask is 1, else 0, as torch's in training; the mask is data.

    Source: N. Srivastava et al., Dropout, JMLR 15 (2014), section 4; scaled in training, as section 10 has it.
    """

    p: float
    kind: ClassVar[str] = "dropout"
    sample_rank: ClassVar[int | None] = 0
    has_mask: ClassVar[bool] = True

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        if not self.p < 1:
            raise self.refuse(f"p {self.p}", "a number from 0 on, below 1")
        return shapes[0]

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return what is kept, scaled."""
        return self._kept(inputs[0], parameters)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the same of dy."""
        return [self._kept(dy, parameters)], {}

    def _kept(self, x: Number, parameters: Mapping[str, Number]) -> Number:
        # 1 - p is a difference of rounded numbers
        return (parameters["mask"].broadcast(x.shape) > 0.5).choose(x / (x.exact(1.0) - self.p), 0.0)

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x * mask / (1 - p)``."""
        return inputs[0] * (parameters["mask"] / (1 - self.p))


@dataclass(frozen=True)
class Dropout2d(Dropout):
    """A dropout of whole channels of images: the mask has one number for each, (n, c, 1, 1).

    Source: J. Tompson et al., Efficient Object Localization Using Convolutional Networks, CVPR 2015, section 3.2
    """

    kind: ClassVar[str] = "dropout2d"
    sample_rank: ClassVar[int | None] = 3

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        if len(shapes[0]) != 4:
            raise self.refuse(f"input {shapes[0]}", "a shape (n, c, h, w)")
        return super().output_shape(*shapes)

    def mask_shape(self, shape: Shape) -> Shape:
        """Return (n, c, 1, 1)."""
        return (*shape[:2], 1, 1)
