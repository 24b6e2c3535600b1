# SPDX-License-Identifier: MIT
"""How an operation is made that has a wrong formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from bridge.operations.losses import Loss
from bridge.operations.operation import Gradients, Number, Operation

Numbers = Sequence[Number]
Parameters = Mapping[str, Number]
#: The kind of a fault, what exactly, and the operation that has it
Wrong = Iterator[tuple[str, str, Operation]]


Changed = TypeVar("Changed", Operation, Loss)


def changed(node: Changed, **methods: Callable[..., Any]) -> Changed:
    """Return the operation, or the loss, with other methods, as `forward(inputs, parameters)`.

    >>> from bridge.operations.pointwise import Relu
    >>> changed(Relu("a"), forward=lambda inputs, parameters: inputs[0]).forward([3.0], {})
    3.0
    """
    made = type(type(node).__name__, (type(node),), {
        name: _as_method(method) for name, method in methods.items()})
    found: Changed = made(**{one.name: getattr(node, one.name) for one in fields(node)})
    return found


def _as_method(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *given: function(*given)


def backward_only(node: Operation, formula: Callable[[Number, Number], Number]) -> Operation:
    """Return an activation whose gradient is another one of dy and y."""

    def backward(dy: Number, inputs: Numbers, parameters: Parameters) -> Gradients:
        return [formula(dy, node.forward(inputs, parameters))], {}

    return changed(node, backward=backward)
