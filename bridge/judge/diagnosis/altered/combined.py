# SPDX-License-Identifier: MIT
"""Changes of two calls at once: a factor that comes too late, a setting that is added elsewhere, two mistakes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bridge.judge.diagnosis.altered.calls import Call, Change, Instead
from bridge.judge.diagnosis.altered.fits import Adjustable
from bridge.judge.diagnosis.altered.numbers import Target
from bridge.judge.oracle.bounded import Bounded

#: In words, and the changes by the place of the call
Combined = Iterator[tuple[str, dict[int, Change | Instead]]]
#: An alteration: its kind, words and changes
Single = tuple[str, str, Mapping[int, Change | Instead]]
#: Alterations that others are combined with: those that leave the least of the error, and at most so much of it
NEAREST, LEFT = 8, 0.9
#: Numbers of a tensor from which on pairs are tried
MANY = 16
#: Primitives whose operands a setting may be added to
WITH_SETTING = {"__mul__", "__add__", "__sub__", "__truediv__", "sum"}


def later(calls: Sequence[Call]) -> Combined:
    """Yield a formula whose result is multiplied by what a number in the middle of it is to be multiplied by."""
    for call in calls:
        behind = [one for one in calls if one.at > call.at and _broadcasts(call.second.shape, one.shape)] if (
            call.primitive == "__mul__" and call.second.named and call.first.shape == call.shape) else []
        if behind:
            kept: list[Bounded] = []

            def keep(method: Any, x: Bounded, y: Bounded, kept: list[Bounded] = kept) -> Bounded:
                kept[:] = [y]
                return x

            yield f"the result is multiplied by {call.second.label}, not {call.first.label} before", {
                call.at: keep, behind[-1].at: lambda method, *given, kept=kept: method(*given) * kept[0]}


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


def with_settings(calls: Sequence[Call], settings: Mapping[str, float]) -> Combined:
    """Yield a setting, such as eps, that is added to a number that it does not belong to."""
    for call, (name, value) in itertools.product(calls, settings.items()):
        for i, operand in enumerate(call.operands if call.primitive in WITH_SETTING and value else ()):
            if operand.named:
                yield f"{name} is added to {operand.label}", {call.at: partial(_added_to, i, value)}


def _added_to(at: int, value: float, method: Any, *given: Any) -> Any:
    return method(*(one + value if i == at else one for i, one in enumerate(given)))


def pairs(formula: Adjustable, made: Sequence[Single], target: Target, other_way: bool) -> Iterator[
        tuple[tuple[str, ...], str, dict[int, Change | Instead]]]:
    """Yield the kinds, words and changes of two alterations, one of which brings the formula nearer to what was found.
    """
    whole = float(np.linalg.norm(target.found - target.right))
    # Of few numbers some pair is right by chance
    if target.found.size < MANY:
        return
    left = []
    for _, _, changes in made:
        if target.late() or not whole:
            return
        predicted = formula.altered(changes, other_way).at(target.sample)
        left.append(float(np.linalg.norm(target.found - predicted)) / whole)
    near = [i for i in np.argsort(left) if left[i] < LEFT][:NEAREST]
    done = set[frozenset[int]]()
    for i, j in itertools.product(near, range(len(made))):
        (key, said, one), (other_key, other_said, other) = made[i], made[j]
        both = frozenset((int(i), j))
        if not one.keys() & other.keys() and both not in done:
            done.add(both)
            words = said if said == other_said else f"{said}; and {other_said}"
            yield (key, other_key), words, {**one, **other}
