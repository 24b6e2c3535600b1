# SPDX-License-Identifier: MIT
"""One output of a module that gives several."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from reference.errors import InputError

Which = int | str


def of_output(module: nn.Module, which: Which) -> nn.Module:
    """Return a module that gives one of the outputs of another, whose parameters and buffers it has.

    Parameters
    ----------
    which : number of a tensor among all that it gives, from 0, or a key or an attribute of what it gives

    Examples
    --------
    >>> class Both(nn.Module):
    ...     def forward(self, x):
    ...         return {"y": x, "more": [2 * x]}
    >>> of_output(Both(), "y")(torch.ones(1)), of_output(Both(), 1)(torch.ones(1))
    (tensor([1.]), tensor([2.]))
    """
    kind = type(module)

    def forward(self: nn.Module, *given: Any, **named: Any) -> Any:
        return _output(kind.forward(self, *given, **named), which)

    found = copy.copy(module)
    found.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return found


def only_output(given: Any) -> Any:
    """Return the tensor of a list, a tuple or a dictionary of one; else what is given.

    >>> only_output([torch.ones(1), None])
    tensor([1.])
    """
    tensors = _tensors(given)
    return tensors[0] if len(tensors) == 1 else given


def _tensors(given: Any) -> list[Any]:
    return [one for one in torch.utils._pytree.tree_leaves(given)
            if one is not None and not isinstance(one, (int, float, str, bool))]


def _output(given: Any, which: Which) -> Any:
    if isinstance(which, str):
        found = given.get(which) if isinstance(given, dict) else getattr(given, which, None)
        if found is None:
            names = list(given) if isinstance(given, dict) else f"a {type(given).__name__}"
            raise InputError(f"output {which!r}: it gives {names}")
        return found
    tensors = _tensors(given)
    if not 0 <= which < len(tensors):
        raise InputError(f"output {which}: it gives {len(tensors)}, expected a number from 0 to {len(tensors) - 1}")
    return tensors[which]
