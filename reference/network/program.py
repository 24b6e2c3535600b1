# SPDX-License-Identifier: MIT
"""Calls of ATen as one layer: what exchange files have of operations that their table lacks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from reference.errors import InputError


@dataclass(frozen=True)
class Reference:
    """A tensor among the arguments of a call.

    Attributes
    ----------
    kind : "input", "stored" or "call"
    of : its number, or the name of what is stored
    output : which of several outputs of a call
    as_type : the type that it is brought to, of numbers that the file keeps as real ones
    """

    kind: str
    of: int | str
    output: int | None = None
    as_type: torch.dtype | None = None


#: An operation, its arguments, and those by name; "real" stands for the type that everything is computed in
Call = tuple[Any, list[Any], dict[str, Any]]
REAL, COMPLEX = "real", "complex"


@dataclass(frozen=True)
class Type:
    """An element type among the arguments of a call, by its name."""

    name: str


class Aten(nn.Module):
    """Calls of ATen, one after the other; the last one's output is the layer's.

    Parameters
    ----------
    calls : whose references are to inputs, to what is stored, and to calls before
    output : which of the last call's outputs, of several
    shape : of the output
    stored : parameters, and other tensors, by their names in the layer
    """

    def __init__(self, calls: Sequence[Call], output: int | None, shape: tuple[int, ...],
                 stored: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.calls, self.output, self.shape = list(calls), output, shape
        for name, one in stored.items():
            if isinstance(one, nn.Parameter):
                self.register_parameter(name, one)
            else:
                self.register_buffer(name, one)
        # It has no modes
        super().train(False)

    def train(self, mode: bool = True) -> Aten:
        return self

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        stored = dict(self.named_parameters()) | dict(self.named_buffers())
        real = next(one.dtype for one in (*inputs, *stored.values()) if one.is_floating_point())
        results: list[Any] = []

        def given(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [given(one) for one in value]
            if isinstance(value, Type):
                return real if value.name == REAL else real.to_complex() if value.name == COMPLEX else getattr(
                    torch, value.name)
            if not isinstance(value, Reference):
                return value
            found: Any = (inputs[int(value.of)] if value.kind == "input" else
                          stored[str(value.of)] if value.kind == "stored" else results[int(value.of)])
            found = found if value.output is None else found[value.output]
            return found if value.as_type is None else found.to(value.as_type)

        before = torch.get_default_dtype()
        torch.set_default_dtype(real)
        try:
            for operation, args, kwargs in self.calls:
                results.append(operation(*given(args), **{key: given(one) for key, one in kwargs.items()}))
        finally:
            torch.set_default_dtype(before)
        found: torch.Tensor = results[-1] if self.output is None else results[-1][self.output]
        # Where it has no derivative, the gradient of its output is still one to be shown
        return found if found.requires_grad or not torch.is_grad_enabled() else found.detach().requires_grad_()


def described(name: str, layer: Aten) -> tuple[str, dict[str, str]]:
    """Return the type of the layer in exchange files, and its calls as they have them."""
    calls = [[str(operation), _plain(name, args), *([_plain(name, kwargs)] if kwargs else [])]
             for operation, args, kwargs in layer.calls]
    found: dict[str, Any] = {"calls": calls, "shape": list(layer.shape)}
    if layer.output is not None:
        found["output"] = layer.output
    for kind, tensors in (("parameters", layer.named_parameters()), ("state", layer.named_buffers())):
        if shapes := {part: list(one.shape) for part, one in tensors}:
            found[kind] = shapes
    return "aten", {"program": json.dumps(found)}


def _plain(name: str, value: Any) -> Any:
    """An argument as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [_plain(name, one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(name, one) for key, one in value.items()}
    if isinstance(value, Type):
        return {"type": value.name}
    if isinstance(value, Reference):
        return {value.kind: value.of} | ({} if value.output is None else {"output": value.output}) | (
            {} if value.as_type is None else {"as": str(value.as_type).removeprefix("torch.")})
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InputError(f"layer '{name}': an argument {value!r:.60}, which exchange files do not know")
