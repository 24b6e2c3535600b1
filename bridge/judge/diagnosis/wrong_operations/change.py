# SPDX-License-Identifier: MIT
"""How an operation is made that has a wrong formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from bridge.operations.operation import Gradients, Number, Operation

Numbers = Sequence[Number]
Parameters = Mapping[str, Number]
#: The kind of a fault, what exactly, and the operation that has it
Wrong = Iterator[tuple[str, str, Operation]]


def changed(node: Operation, **methods: Callable[..., Any]) -> Operation:
    """Return the operation with other methods, `forward(inputs, parameters)` or `backward(dy, inputs, parameters)`.

    >>> from bridge.operations.pointwise import Relu
    >>> changed(Relu("a"), forward=lambda inputs, parameters: inputs[0]).forward([3.0], {})
    3.0
    """
    made = type(type(node).__name__, (type(node),), {
        name: lambda self, *given, method=method: method(*given) for name, method in methods.items()})
    found: Operation = made(**{one.name: getattr(node, one.name) for one in fields(node)})
    return found


def backward_only(node: Operation, formula: Callable[[Number, Number], Number]) -> Operation:
    """Return an activation whose gradient is another one of dy and y."""

    def backward(dy: Number, inputs: Numbers, parameters: Parameters) -> Gradients:
        return [formula(dy, node.forward(inputs, parameters))], {}

    return changed(node, backward=backward)
