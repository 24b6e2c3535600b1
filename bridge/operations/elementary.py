# SPDX-License-Identifier: MIT
"""Elementary functions of each number: arithmetic with constants, powers, exponentials and logarithms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Number, Real
from bridge.operations.pointwise import Pointwise


@dataclass(frozen=True)
class Affine(Pointwise):
    """``scale * z + shift``: what networks do with numbers, ``x * 0.1``, ``1 - x``, ``x / 2``, ``-x``.

    >>> import torch
    >>> Affine("a", scale=-1.0, shift=1.0).torch_forward([torch.tensor([0.25])], {})
    tensor([0.7500])
    """

    scale: Real = 1.0
    shift: Real = 0.0
    kind: ClassVar[str] = "affine"

    def value(self, z: Number) -> Number:
        """Return ``scale * z + shift``; a factor of 1 or -1 rounds nothing, nor does a shift of 0."""
        scaled = self._scaled(z)
        return scaled + self.shift if self.shift else scaled

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``scale * dy``."""
        return self._scaled(dy)

    def _scaled(self, z: Number) -> Number:
        if abs(self.scale) == 1:
            return z if self.scale > 0 else -z
        return z * self.scale

    def torch_forward(self, inputs: Any, parameters: Any) -> Any:
        """Return the same of torch's tensor."""
        return inputs[0] * self.scale + self.shift


@dataclass(frozen=True)
class Square(Pointwise):
    """``z * z``."""

    kind: ClassVar[str] = "square"

    def value(self, z: Number) -> Number:
        """Return ``z * z``."""
        return z.squared()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy * 2 * z``."""
        return dy * (z * 2.0)


@dataclass(frozen=True)
class Reciprocal(Pointwise):
    """``1 / z``."""

    kind: ClassVar[str] = "reciprocal"

    def value(self, z: Number) -> Number:
        """Return ``1 / z``."""
        return 1.0 / z

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``-dy / z**2``, by the output or the input."""
        y = 1.0 / z
        return (-dy * (y * y)).or_as(-dy / (z * z))


@dataclass(frozen=True)
class Rsqrt(Pointwise):
    """``1 / sqrt(z)``."""

    kind: ClassVar[str] = "rsqrt"

    def value(self, z: Number) -> Number:
        """Return ``1 / sqrt(z)``."""
        return (1.0 / z.sqrt()).or_as((1.0 / z).sqrt())

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``-dy / (2 * z * sqrt(z))``, by the output or the input."""
        y = 1.0 / z.sqrt()
        return (dy * -0.5 * (y * y * y)).or_as(dy * -0.5 / (z * z.sqrt()))


@dataclass(frozen=True)
class Exp(Pointwise):
    """The exponential."""

    kind: ClassVar[str] = "exp"

    def value(self, z: Number) -> Number:
        """Return ``exp(z)``."""
        return z.exp()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy * exp(z)``."""
        return dy * z.exp()


@dataclass(frozen=True)
class Log(Pointwise):
    """The natural logarithm."""

    kind: ClassVar[str] = "log"

    def value(self, z: Number) -> Number:
        """Return ``log(z)``."""
        return z.log()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy / z``."""
        return (dy / z).or_as(dy * (1.0 / z))


@dataclass(frozen=True)
class Log2(Pointwise):
    """The logarithm to base 2."""

    kind: ClassVar[str] = "log2"

    def value(self, z: Number) -> Number:
        """Return ``log(z) / log(2)``."""
        return z.log() / math.log(2)

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy / (z * log(2))``."""
        return (dy / (z * math.log(2))).or_as(dy * (1.0 / z) / math.log(2))


@dataclass(frozen=True)
class Log10(Pointwise):
    """The logarithm to base 10."""

    kind: ClassVar[str] = "log10"

    def value(self, z: Number) -> Number:
        """Return ``log(z) / log(10)``."""
        return z.log() / math.log(10)

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy / (z * log(10))``."""
        return (dy / (z * math.log(10))).or_as(dy * (1.0 / z) / math.log(10))


@dataclass(frozen=True)
class Sin(Pointwise):
    """The sine of an angle in radians; of one above 2**27 it is NaN on our devices, and PyTorch's is a number."""

    kind: ClassVar[str] = "sin"

    def value(self, z: Number) -> Number:
        """Return ``sin(z)``."""
        return z.sin()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy * cos(z)``."""
        return dy * z.cos()


@dataclass(frozen=True)
class Cos(Pointwise):
    """The cosine of an angle in radians; of one above 2**27 it is NaN on our devices, and PyTorch's is a number."""

    kind: ClassVar[str] = "cos"

    def value(self, z: Number) -> Number:
        """Return ``cos(z)``."""
        return z.cos()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``-dy * sin(z)``."""
        return -dy * z.sin()


@dataclass(frozen=True)
class Sqrt(Pointwise):
    """The square root."""

    kind: ClassVar[str] = "sqrt"

    def value(self, z: Number) -> Number:
        """Return ``sqrt(z)``."""
        return z.sqrt()

    def gradient(self, dy: Number, z: Number) -> Number:
        """Return ``dy / (2 * sqrt(z))``."""
        return (dy / (z.sqrt() * 2.0)).or_as(dy * (0.5 / z.sqrt()))
