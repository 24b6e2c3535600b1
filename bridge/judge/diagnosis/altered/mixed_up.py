# SPDX-License-Identifier: MIT
"""One number of a formula in the place of another one, and two calls in the wrong order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bridge.judge.diagnosis.altered.calls import GIVEN, Call, Change, Instead, Source

#: Primitives whose operands may be mixed up
TAKING = {"__add__", "__sub__", "__rsub__", "__mul__", "__truediv__", "__rtruediv__", "__matmul__", "squared", "sqrt",
          "exp", "expm1", "log", "log1p", "erf", "tanh", "sigmoid", "sin", "cos", "sum", "__gt__"}
#: Those whose operands may be of several shapes
BROADCASTING = {"__add__", "__sub__", "__mul__", "__truediv__"}
#: Functions before which a number may be added or multiplied, and not after them
FUNCTIONS = {"sqrt", "exp", "log", "tanh", "sigmoid", "squared", "erf", "sin", "cos",
             "__abs__"}
#: What is said of a number that is added or multiplied
DONE = {"__add__": ("added to", lambda x, c: x + c), "__mul__": ("multiplied with", lambda x, c: x * c)}

#: In words, and the changes by the place of the call
MixedUp = Iterator[tuple[str, dict[int, Change | Instead]]]


def other_numbers(calls: Sequence[Call], given: Sequence[tuple[str, tuple[int, ...]]]) -> MixedUp:
    """Yield calls that take another number of the formula, of the same shape, made before them.

    Parameters
    ----------
    given : name and shape of each number that the formula takes
    """
    known = {one: Source(GIVEN, i) for i, one in enumerate(given)}
    for call in calls:
        for i, operand in enumerate(call.operands):
            if operand.named:
                known.setdefault((operand.label, operand.shape), Source(call.at, i))
        if call.primitive in TAKING:
            for i, operand in enumerate(call.operands):
                if not operand.shape or not operand.label:
                    continue
                for (label, shape), source in known.items():
                    fits = shape == operand.shape or (
                        call.primitive in BROADCASTING and _shape(call, i, shape) == call.shape)
                    if fits and label != operand.label and source.call < call.at:
                        yield f"{label} in place of {operand.label} in {call.label}", {
                            call.at: Instead(i, source)}


def exchanged(calls: Sequence[Call]) -> MixedUp:
    """Yield two numbers that are taken for each other, one of which goes through one call more."""
    by_place = {call.at: call for call in calls}
    for call in calls:
        for before in (by_place[at] for at in call.follows if at in by_place):
            if call.primitive not in ("__add__", "__sub__") or before.primitive not in TAKING:
                continue
            for i, j in itertools.product(range(len(call.operands[:2])), range(len(before.operands[:2]))):
                one, other = call.operands[i], before.operands[j]
                source = next((Source(c.at, k) for c in calls if c.at < before.at for k, o in enumerate(c.operands)
                               if o == one), None)
                if one.named and other.named and one != other and one.shape == other.shape and source is not None:
                    yield f"{one.label} and {other.label} are exchanged in {call.label}", {
                        before.at: Instead(j, source), call.at: Instead(i, Source(before.at, j))}


def added_behind(calls: Sequence[Call]) -> MixedUp:
    """Yield what is added behind a product, and not to its factor."""
    by_place = {call.at: call for call in calls}
    for call in calls:
        for before in (by_place[at] for at in call.follows if at in by_place):
            if call.primitive not in ("__mul__", "__truediv__") or before.primitive != "__add__" or (
                    before.first.shape != before.shape):
                continue
            kept: list[Any] = []

            def keep(method: Any, x: Any, y: Any, kept: list[Any] = kept) -> Any:
                kept[:] = [y]
                return x

            what = before.second.label or "the second part of the sum"
            yield f"{what} is added behind {call.label}, not before", {
                before.at: keep, call.at: lambda method, *given, kept=kept: method(*given) + kept[0]}


def _shape(call: Call, at: int, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """That of what a call gives with an operand of another shape; None where they do not fit."""
    try:
        return np.broadcast_shapes(*(shape if i == at else one.shape for i, one in enumerate(call.operands)))
    except ValueError:
        return None


def other_order(calls: Sequence[Call]) -> MixedUp:
    """Yield numbers that are added or multiplied after a function and not before it."""
    by_place = {call.at: call for call in calls}
    for call in calls:
        for before in (by_place[at] for at in call.follows if at in by_place):
            if call.primitive in FUNCTIONS and before.primitive in DONE and before.second.number is not None:
                said, done = DONE[before.primitive]
                number = before.second.number

                def after(method: Any, x: Any, *rest: Any, done: Any = done, number: float = number) -> Any:
                    return done(method(x, *rest), number)

                word = {"squared": "square", "sqrt": "root", "__abs__": "absolute value"}.get(
                    call.primitive, call.primitive)
                yield (f"{before.second.label} is {said} the {word} of {before.first.label}, not before it is taken",
                       {before.at: lambda method, x, *rest: x, call.at: after})
