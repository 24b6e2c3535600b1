# SPDX-License-Identifier: MIT
"""Functions of each number by itself, by their types in exchange files, which are torch's names of the functions.

Source: torch.nn, "Non-linear Activations", https://docs.pytorch.org/docs/stable/nn.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

#: Their layers, and the arguments of these that files have, in torch's order
LAYERS: Mapping[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "leaky_relu": (nn.LeakyReLU, ("negative_slope",)),
    "relu": (nn.ReLU, ()),
    "sigmoid": (nn.Sigmoid, ()),
    "silu": (nn.SiLU, ()),
    "tanh": (nn.Tanh, ()),
}


def describing(kind: str) -> Callable[[str, Any], tuple[str, dict[str, Any]]]:
    """Return what gives the type and the hyperparameters of such a layer.

    >>> describing("leaky_relu")("a", nn.LeakyReLU(0.5))
    ('leaky_relu', {'negative_slope': 0.5})
    """
    _, names = LAYERS[kind]
    return lambda _, layer: (kind, {name: float(getattr(layer, name)) for name in names})


def making(kind: str) -> Callable[..., tuple[nn.Module, list[Any]]]:
    """Return what makes a layer of the arguments of the function, and gives its input.

    >>> making("leaky_relu")("x", 0.5, inplace=True)
    (LeakyReLU(negative_slope=0.5), ['x'])
    """
    made, _ = LAYERS[kind]

    def make(input: Any, *given: Any, **named: Any) -> tuple[nn.Module, list[Any]]:
        layer: Any = made(*given, **named)
        if hasattr(layer, "inplace"):
            layer.inplace = False
        return layer, [input]

    return make


def calls(kind: str) -> list[Any]:
    """Return all ways to call a function: torch's, that of torch.nn.functional, and a tensor's."""
    return [getattr(one, kind) for one in (torch, functional, torch.Tensor) if hasattr(one, kind)]
