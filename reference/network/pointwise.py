# SPDX-License-Identifier: MIT
"""Functions of each number by itself, by their types in exchange files, which are torch's names of the functions.

Source: torch.nn, "Non-linear Activations", https://docs.pytorch.org/docs/stable/nn.html
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from reference.network.table import rows


class Function(nn.Module):
    """A function of `torch` that has no layer there."""

    kind: str

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = getattr(torch, self.kind)(x)
        return found


class Clip(nn.Module):
    """`torch.clip` between numbers."""

    def __init__(self, min: float | None = None, max: float | None = None) -> None:
        super().__init__()
        self.min = -math.inf if min is None else float(min)
        self.max = math.inf if max is None else float(max)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clip(x, self.min, self.max)


class Affine(nn.Module):
    """``scale * x + shift``, with numbers."""

    def __init__(self, scale: float = 1.0, shift: float = 0.0) -> None:
        super().__init__()
        self.scale, self.shift = float(scale), float(shift)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled = x if self.scale == 1 else -x if self.scale == -1 else x * self.scale
        return scaled + self.shift if self.shift else scaled


class GeluTanh(nn.GELU):
    """GELU by the hyperbolic tangent."""

    def __init__(self) -> None:
        super().__init__("tanh")


def _layer(kind: str) -> type[nn.Module]:
    """Torch's layer of that name (LeakyReLU of leaky_relu), one of those above, or a new one of torch's function."""
    wanted = kind.replace("_", "")
    for one in (nn, sys.modules[__name__]):
        for name, layer in vars(one).items():
            if name.lower() == wanted and isinstance(layer, type) and issubclass(layer, nn.Module):
                return layer
    name = wanted.capitalize()
    made = type(name, (Function,), {"kind": kind, "__module__": __name__, "__doc__": f"`torch.{kind}`."})
    # pickle looks for it by its name
    setattr(sys.modules[__name__], name, made)
    return made


#: Their layers, and the arguments of these that files have, in torch's order
LAYERS: Mapping[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    kind: (_layer(kind), tuple(row.get("settings", ())))
    for kind, row in rows("functions").items() if not kind.startswith("dropout")}
#: Other names that torch has for them
_ALSO = {"abs": ("absolute",), "clip": ("clamp",)}
#: Powers that are functions
POWERS = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal", 2: "square"}
#: Those that are no activations: of large or negative numbers they are infinite or NaN
ELEMENTARY = {kind for kind, row in rows("functions").items() if row.get("elementary")}


def with_number(kind: str, one: Any, other: Any) -> tuple[nn.Module, Any] | None:
    """Return the layer that is one of the four operations of a tensor and a number, and the tensor.

    None of a number that is divided by a tensor, but for 1, or where no layer has the number. A quotient by a number
    is a product with its inverse, which `is_inverse_exact` tells.

    >>> with_number("subtract", 1, "x")
    (Affine(), 'x')
    """
    first = not isinstance(one, (int, float))
    x, number = (one, other) if first else (other, one)
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not -3e38 < number < 3e38:
        return None
    if kind == "divide":
        if not first:
            return (LAYERS["reciprocal"][0](), x) if number == 1 else None
        return (Affine(1 / number), x) if number else None
    scale, shift = {"multiply": (number, 0.0), "add": (1.0, number),
                    "subtract": (1.0, -number) if first else (-1.0, number)}[kind]
    return Affine(scale, shift), x


def is_inverse_exact(number: Any) -> bool:
    """Return whether ``x / number`` is ``x * (1 / number)`` to the bit: of a power of two, and of a tensor.

    >>> is_inverse_exact(-0.25), is_inverse_exact(3)
    (True, False)
    """
    return not isinstance(number, (int, float)) or abs(math.frexp(number)[0]) == 0.5


def describing(kind: str) -> Callable[[str, Any], tuple[str, dict[str, Any]]]:
    """Return what gives the type and the hyperparameters of such a layer.

    >>> describing("leaky_relu")("a", nn.LeakyReLU(0.5))
    ('leaky_relu', {'negative_slope': 0.5})
    """
    _, names = LAYERS[kind]

    def describe(_: str, layer: Any) -> tuple[str, dict[str, Any]]:
        is_tanh = getattr(layer, "approximate", "none") == "tanh"
        return "gelu_tanh" if is_tanh else kind, {name: float(getattr(layer, name)) for name in names}

    return describe


def making(kind: str) -> Callable[..., tuple[nn.Module, list[Any]]]:
    """Return what makes a layer of the arguments of the function, and gives its input.

    >>> making("leaky_relu")("x", 0.5, inplace=True)
    (LeakyReLU(negative_slope=0.5), ['x'])
    """
    made, _ = LAYERS[kind]

    def make(input: Any, *given: Any, **named: Any) -> tuple[nn.Module, list[Any]]:
        if any(isinstance(one, fx.Node) for one in (*given, *named.values())):
            raise TypeError("a second tensor, numbers are supported")
        layer: Any = made(*given, **named)
        if hasattr(layer, "inplace"):
            layer.inplace = False
        return layer, [input]

    return make


def calls(kind: str) -> list[Any]:
    """Return all ways to call a function: torch's, that of torch.nn.functional, and a tensor's."""
    names = (kind, *_ALSO.get(kind, ()))
    return [getattr(one, name) for one in (torch, functional, torch.Tensor) for name in names if hasattr(one, name)]
