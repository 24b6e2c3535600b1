# SPDX-License-Identifier: MIT
"""A module of several inputs as one of the array in which they lie."""

from __future__ import annotations

import copy

import torch
from torch import nn

from reference.inputs import Inputs


class Part(nn.Module):
    """The numbers of one input, perhaps as integers."""

    def __init__(self, begin: int, end: int, shape: tuple[int, ...], is_whole: bool) -> None:
        super().__init__()
        self.place, self.shape, self.is_whole = (begin, end), shape, is_whole

    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        found = packed[:, slice(*self.place)].reshape(-1, *self.shape)
        return found.long() if self.is_whole else found


def of_inputs(module: nn.Module, inputs: Inputs) -> nn.Module:
    """Return a module that takes an array, of which it gives the parts to another, whose parameters it has.

    Examples
    --------
    >>> class Sum(nn.Module):
    ...     def forward(self, x, t):
    ...         return x + t
    >>> of_inputs(Sum(), Inputs(("x", "t"), ((2,), (1,))))(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[4., 5.]])
    """
    kind = type(module)
    parts = {f"{name}_input" if hasattr(module, name) else name: Part(
                 *inputs.places[name], shape, name in (inputs.whole or ()))
             for name, shape in zip(inputs.names, inputs.shapes, strict=True)}

    def forward(self: nn.Module, packed: torch.Tensor) -> object:
        # As it was: a Sequential runs all modules that it has
        plain = copy.copy(self)
        plain._modules = {name: one for name, one in self._modules.items() if name not in parts}
        plain.__class__ = kind
        return kind.forward(plain, **{name: self._modules[part](packed)  # type: ignore[misc]
                                      for name, part in zip(inputs.names, parts, strict=True)})

    found = copy.copy(module)
    found._modules = {**module._modules, **parts}
    found.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return found
