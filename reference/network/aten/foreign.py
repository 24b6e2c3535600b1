# SPDX-License-Identifier: MIT
"""What no rule writes: calls of ATen that stay what they are, as layers with real numbers for their outputs.

A call that gives integers, truth values, complex numbers or several things, or that depends on neither the input nor a
parameter, is no layer by itself: each layer that takes its output has it among its calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from reference.network.aten.writing import Stored, Tensor, UnsupportedError, Writer
from reference.network.layers import INPUT
from reference.network.program import COMPLEX, REAL, Aten, Call, Reference, Type

#: Arguments that say where, and how in memory
PLACES = {"device", "layout", "pin_memory", "non_blocking", "generator", "out", "memory_format"}
#: Overloads of a change of the type that take what others do without a place
_TO_TYPE = torch.ops.aten.to.dtype
#: Python's operators on marks and integers, by the names that they have otherwise
_MARKS = {f"__{one}__": f"bitwise_{one}" for one in ("and", "or", "xor")}


@dataclass(frozen=True, eq=False)
class Expression:
    """A call that is no layer.

    Attributes
    ----------
    operation : of ATen
    args, kwargs : with what stands for tensors
    value : what it gives, as torch.export has it, one tensor or several
    output : which of several
    """

    operation: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]
    value: Any
    output: int | None = None

    def depends(self) -> bool:
        """Return whether it follows from the input or a parameter."""
        return any(isinstance(one, Tensor) or (isinstance(one, Stored) and isinstance(one.value, torch.nn.Parameter))
                   or (isinstance(one, Expression) and one.depends()) for one in _leaves([self.args, self.kwargs]))

    def part(self, number: int) -> Expression:
        """Return one of several outputs."""
        return Expression(self.operation, self.args, self.kwargs, self.value[number], number)


def expressed(operation: Any, args: Sequence[Any], kwargs: dict[str, Any], value: Any) -> Expression:
    """Return a call of an operation that changes none of its arguments, as one that says no places.

    Raises
    ------
    UnsupportedError
        If it is none of ATen, draws random numbers, or takes something that is not there.
    """
    if not isinstance(operation, torch._ops.OpOverload) or operation.namespace != "aten":
        raise UnsupportedError("it is no operation of ATen")
    if torch.Tag.nondeterministic_seeded in operation.tags and not _draws_nothing(operation, args, kwargs):
        raise UnsupportedError("it draws random numbers")
    if operation._schema.is_mutable:
        raise UnsupportedError("it changes its arguments")
    if any(isinstance(one, Tensor) and one.name == "lost" for one in _leaves([args, kwargs])):
        raise UnsupportedError("it takes what could not be read")
    name = operation._schema.name.partition("::")[2]
    if name in _MARKS:
        operation = getattr(getattr(torch.ops.aten, _MARKS[name]), operation._overloadname)
    if running_statistics(operation, args):
        args = [*args[:3], None, None, *args[5:]]
    if name in ("lift_fresh", "lift_fresh_copy", "detach_"):
        operation, args, kwargs = torch.ops.aten.alias.default, args[:1], {}
    if name == "copy":
        # Which has no derivative
        operation, args, kwargs = torch.ops.aten.expand.default, [args[1], list(value.shape)], {}
    if name in ("to", "_to_copy") and isinstance(value, torch.Tensor):
        return Expression(_TO_TYPE, [args[0], value.dtype], {}, value)
    return Expression(operation, args, {key: one for key, one in kwargs.items() if key not in PLACES}, value)


def running_statistics(operation: Any, args: Sequence[Any]) -> list[Stored]:
    """Return what a normalisation by the batch's statistics changes, which is no part of what it gives."""
    if not any(str(operation).startswith(f"aten.{kind}_norm.") for kind in ("batch", "instance")) or not args[5]:
        return []
    return [one for one in args[3:5] if isinstance(one, Stored)]


def _draws_nothing(operation: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """An attention or a recurrent network without dropout."""
    names = [one.name for one in operation._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    chance = next((one for one in ("dropout_p", "dropout") if one in names), None)
    return chance is not None and (not given.get(chance, 0.0) or given.get("train", True) is False)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for one in value for leaf in _leaves(one)] if isinstance(value, (list, tuple)) else [value]


def written(w: Writer, expression: Expression, real: torch.dtype) -> Tensor | Expression:
    """Add the layer of a call, where it is one, and return its output; else what it is.

    Parameters
    ----------
    real : the type that the model computes in

    Raises
    ------
    UnsupportedError
        If it computes in another type of real numbers, or gives nothing.
    """
    value = expression.value
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not expression.depends():
        return expression
    if value.dtype != real:
        raise UnsupportedError(f"it computes in {value.dtype}, supported is one type")
    if not value.numel():
        raise UnsupportedError(f"the shape {tuple(value.shape)}, without numbers")
    found = _Layer(w, real)
    found.call(expression)
    # What takes parameters alone has a place in the graph, too
    found.inputs = found.inputs or [Tensor(INPUT, ())]
    layer = Aten(found.calls, expression.output, tuple(value.shape), {name: one.value for name, one in
                                                                      found.stored.items()})
    return w.add_calls(layer, found.inputs, found.stored)


class _Layer:
    """The calls of a layer, with what they take."""

    def __init__(self, w: Writer, real: torch.dtype) -> None:
        self._w, self._real = w, real
        self.calls: list[Call] = []
        self.inputs: list[Tensor] = []
        self.stored: dict[str, Stored] = {}
        self._known: dict[int, int] = {}

    def call(self, expression: Expression) -> int:
        """Add a call behind those that it takes, and return its number."""
        key = id(expression.args)
        if key not in self._known:
            args, kwargs = self._given(list(expression.args)), self._given(dict(expression.kwargs))
            self.calls.append((expression.operation, args, kwargs))
            self._known[key] = len(self.calls) - 1
        return self._known[key]

    def _given(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._given(one) for one in value]
        if isinstance(value, dict):
            return {key: self._given(one) for key, one in value.items()}
        if isinstance(value, torch.dtype):
            return Type(REAL if value == self._real else COMPLEX if value.is_complex else
                        self._type(value))
        if isinstance(value, Expression):
            return Reference("call", self.call(value), value.output)
        if isinstance(value, Tensor):
            if value not in self.inputs:
                self.inputs.append(value)
            return Reference("input", self.inputs.index(value), None, value.integers)
        if isinstance(value, Stored):
            return self._kept(value)
        return value

    def _type(self, value: torch.dtype) -> str:
        if value.is_floating_point:
            raise UnsupportedError(f"it computes in {value}, supported is one type")
        return str(value).removeprefix("torch.")

    def _kept(self, of: Stored) -> Reference:
        same = next((name for name, one in self.stored.items() if one.value is of.value), None)
        if same is None:
            wanted = of.name.rpartition(".")[2] or "constant"
            same = next(one for one in (wanted, *(f"{wanted}_{i}" for i in range(1, 1000))) if one not in self.stored)
            self.stored[same] = of
        real = of.value.is_floating_point()
        return Reference("stored", same, None, None if real else of.value.dtype)
