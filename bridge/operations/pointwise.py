# SPDX-License-Identifier: MIT
"""Operations on each element by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.hyperparameters import fields
from bridge.operations.operation import Gradients, Number, Operation, Real, Shape

#: Of the largest exponential that float32 holds
LARGEST_EXPONENT = 88.72
#: 1/6 in float32
SIXTH = 11184811 / 2.0**26


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


def _by_square(dy: Number, z: Number) -> Number:
    """dy times the derivative of ``1 / (1 + exp(-z))`` as automatic differentiation has it, ``dy*(y*y)*exp(-z)``: the
    square may underflow.

    Of numbers whose exponential overflows it is NaN, and no right program takes it.
    """
    y = z.sigmoid()
    return dy * (y * y) * (-z).clipped(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()


def _bell(z: Number) -> Number:
    """The derivative of the sigmoid, ``e / (1 + e)**2`` with ``e = exp(-|z|)``; that of tanh(z/2), times 2."""
    e = (z > 0).choose(-z, z).exp()
    return e / ((1.0 + e) * (1.0 + e))


def slope_of_sigmoid(y: Number, z: Number) -> Number:
    """Return the derivative of the sigmoid y of z: ``y * (1 - y)``, or the same from z."""
    return (y * (1.0 - y)).or_as(y - y * y).or_as(_bell(z))


def slope_of_tanh(y: Number, z: Number) -> Number:
    """Return the derivative of the tangent y of z: ``1 - y*y``, or ``1 / cosh(z)**2``."""
    return (1.0 - y * y).or_as((1.0 - y) * (1.0 + y)).or_as(_bell(z * 2.0) * 4.0)


@dataclass(frozen=True)
class Elu(Pointwise):
    """``z`` where it is positive, else ``alpha * (exp(z) - 1)``.

    Source: D.-A. Clevert, T. Unterthiner and S. Hochreiter, ICLR 2016, https://arxiv.org/abs/1511.07289
    """

    alpha: float = 1.0
    kind: ClassVar[str] = "elu"

    def value(self, z: Number) -> Number:
        """Return ``z`` or ``alpha * expm1(z)``, which many write as ``alpha * (exp(z) - 1)``."""
        below = (z > 0).choose(0.0, z)
        return (z > 0).choose(z, below.expm1().or_as(below.exp() - 1.0) * self.alpha)

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy`` or ``dy * alpha * exp(z)``, which from the output y is ``dy * (y + alpha)``."""
        below = (z > 0).choose(0.0, z)
        slope = (below.exp() * self.alpha).or_as(self.value(below) + self.alpha)
        return (z > 0).choose(dy, dy * slope)


@dataclass(frozen=True)
class Gelu(Pointwise):
    """``z`` times the probability that a normally distributed number is smaller.

    Source: D. Hendrycks and K. Gimpel, Gaussian Error Linear Units (2016), https://arxiv.org/abs/1606.08415
    """

    kind: ClassVar[str] = "gelu"

    def value(self, z: Number) -> Number:
        """Return ``z * (1 + erf(z / sqrt(2))) / 2``."""
        return z * self._share(z)

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return dy times that share and ``z * exp(-z*z/2) / sqrt(2 pi)``."""
        density = (z.squared() * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
        return dy * (self._share(z) + z * density)

    def _share(self, z: Number) -> Number:
        return ((z * math.sqrt(0.5)).erf() + 1.0) * 0.5


@dataclass(frozen=True)
class GeluTanh(Pointwise):
    """The same by the hyperbolic tangent, ``approximate="tanh"`` in torch.

    Source: D. Hendrycks and K. Gimpel, Gaussian Error Linear Units (2016), https://arxiv.org/abs/1606.08415
    """

    kind: ClassVar[str] = "gelu_tanh"

    def value(self, z: Number) -> Number:
        """Return ``z * (1 + tanh(sqrt(2/pi) * (z + 0.044715 * z**3))) / 2``."""
        return z * 0.5 * (self._tanh(z) + 1.0)

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return its derivative by the product rule."""
        t = self._tanh(z)
        inner = (z.squared() * (3 * 0.044715) + 1.0) * math.sqrt(2 / math.pi)
        return dy * ((t + 1.0) * 0.5 + z * 0.5 * (1.0 - t * t) * inner)

    def _tanh(self, z: Number) -> Number:
        return ((z + z * z * z * 0.044715) * math.sqrt(2 / math.pi)).tanh()

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.gelu`` by the tangent."""
        from torch.nn import functional

        return functional.gelu(inputs[0], approximate="tanh")


@dataclass(frozen=True)
class Mish(Pointwise):
    """``z * tanh(log(1 + exp(z)))``.

    Source: D. Misra, Mish (2019), https://arxiv.org/abs/1908.08681
    """

    kind: ClassVar[str] = "mish"

    def value(self, z: Number) -> Number:
        """Return ``z * tanh(softplus(z))``."""
        return z * _softplus(z).tanh()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy * (t + z * s * (1 - t*t))`` of that tangent t and the sigmoid s."""
        t = _softplus(z).tanh()
        return dy * (t + z * z.sigmoid() * (1.0 - t * t))


def _softplus(z: Number) -> Number:
    """The logarithm of ``1 + exp(z)``, z itself where that rounds to it."""
    bounded = (z > 40).choose(40.0, z)
    return (z > 40).choose(z, bounded.exp().log1p().or_as((bounded.exp() + 1.0).log()))


@dataclass(frozen=True)
class Softplus(Pointwise):
    """``log(1 + exp(beta * z)) / beta``, z itself where ``beta * z`` is above the threshold."""

    beta: float = 1.0
    threshold: float = 20.0
    kind: ClassVar[str] = "softplus"

    def check(self) -> None:
        """Refuse a beta of 0."""
        if not self.beta:
            raise self.refuse("beta 0", "a number above 0")

    def value(self, z: Number) -> Number:
        """Return z or ``log(1 + exp(beta * z)) / beta``."""
        inner = z * self.beta
        return (inner > self.threshold).choose(z, _softplus(inner) / self.beta)

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return dy or ``dy * sigmoid(beta * z)``, which from the output y is ``dy * (1 - exp(-beta * y))``."""
        inner = z * self.beta
        slope = inner.sigmoid().or_as(1.0 - (-_softplus(inner)).exp())
        return (inner > self.threshold).choose(dy, dy * slope)


@dataclass(frozen=True)
class Hardsigmoid(Pointwise):
    """``(z + 3) / 6``, between 0 and 1; the derivative at its ends is 0, as torch's."""

    kind: ClassVar[str] = "hardsigmoid"

    def value(self, z: Number) -> Number:
        """Return 0, 1, or ``(z + 3) / 6`` between -3 and 3."""
        return (-z > 3).choose(0.0, (z > 3).choose(z.constant(1.0), ((z + 3.0) / 6.0).or_as(z / 6.0 + 0.5)))

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy / 6`` between -3 and 3; PyTorch's has 1/6 in float32 in every precision."""
        return (z > -3).choose((-z > -3).choose((dy / 6.0).or_number(dy * SIXTH), 0.0), 0.0)


@dataclass(frozen=True)
class Hardswish(Pointwise):
    """``z * (z + 3) / 6`` between -3 and 3, z above and 0 below.

    Source: A. Howard et al., Searching for MobileNetV3, ICCV 2019, https://arxiv.org/abs/1905.02244
    """

    kind: ClassVar[str] = "hardswish"

    def value(self, z: Number) -> Number:
        """Return 0, z, which PyTorch computes as ``z * 6 / 6``, or ``z * (z + 3) / 6``."""
        inner = (z * (z + 3.0) / 6.0).or_as(z * ((z + 3.0) / 6.0)).or_as(z * (z / 6.0 + 0.5))
        return (-z > 3).choose(0.0, (z > 3).choose(z.or_as(z * 6.0 / 6.0), inner))

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return dy times ``z / 3 + 1 / 2`` between -3 and 3; at 3 it is dy."""
        inner = dy * (z / 3.0 + 0.5).or_as((z * 2.0 + 3.0) / 6.0)
        return (z > -3).choose((-z > -3).choose(inner, dy), 0.0)


@dataclass(frozen=True)
class Abs(Pointwise):
    """The absolute value; the derivative at 0 is 0, as torch's."""

    kind: ClassVar[str] = "abs"

    def value(self, z: Number) -> Number:
        """Return ``|z|``."""
        return (z > 0).choose(z, -z)

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return dy with the sign of z."""
        return (z > 0).choose(dy, (-z > 0).choose(-dy, 0.0))


@dataclass(frozen=True)
class Clip(Pointwise):
    """``min`` or ``max`` where z is beyond it; they themselves let the gradient pass, as torch's do."""

    min: Real = -math.inf
    max: Real = math.inf
    kind: ClassVar[str] = "clip"

    def check(self) -> None:
        """Refuse a smallest number that is larger than the largest."""
        if self.min > self.max:
            raise self.refuse(f"min {self.min:g} above max {self.max:g}", "min at most max")

    def value(self, z: Number) -> Number:
        """Return z, or the bound that it is beyond."""
        return (z > self.max).choose(z.constant(self.max), (-z > -self.min).choose(z.constant(self.min), z))

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return dy between them, else 0."""
        return (z > self.max).choose(0.0, (-z > -self.min).choose(0.0, dy))


@dataclass(frozen=True)
class Sigmoid(Pointwise):
    """``1 / (1 + exp(-z))``."""

    kind: ClassVar[str] = "sigmoid"

    def value(self, z: Number) -> Number:
        """Return the logistic function of z."""
        return z.sigmoid()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy * y * (1 - y)`` from the output y, or the same from z."""
        return (dy * slope_of_sigmoid(z.sigmoid(), z)).or_as(_by_square(dy, z))


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
        found = dy * (s * (1.0 + z * (1.0 - s))).or_as(s + z * (s - s * s)).or_as(s + z * _bell(z))
        return found.or_as(dy * s + _by_square(dy * z, z))


@dataclass(frozen=True)
class Tanh(Pointwise):
    """The hyperbolic tangent."""

    kind: ClassVar[str] = "tanh"

    def value(self, z: Number) -> Number:
        """Return ``tanh(z)``."""
        return z.tanh()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy * (1 - y*y)`` from the output y, or ``dy / cosh(z)**2``."""
        return dy * slope_of_tanh(z.tanh(), z)


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
