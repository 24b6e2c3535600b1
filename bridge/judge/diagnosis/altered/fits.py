# SPDX-License-Identifier: MIT
"""Numbers of a formula that are fitted: a setting, a constant, what is added to a divisor or an argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from bridge.judge.diagnosis.altered.calls import Argument, Call, Change
from bridge.judge.diagnosis.altered.numbers import Target, fitted, said, with_constant
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.information import ENOUGH
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, Hypothesis
from bridge.judge.diagnosis.predictions.operations import Prediction

Array = np.ndarray
#: Primitives whose first argument may be a constant of the formula
WITH_CONSTANT = {"__add__", "__sub__", "__rsub__", "__mul__", "__truediv__", "__rtruediv__", "averaged", "__gt__"}
#: Primitives of which the second operand may count several times
SUMS = {"__add__": "added to", "__sub__": "subtracted from", "joined": "added to"}
#: Primitives by an operand, its position, to which a small number may be added
WITH_ADDED = {"log": 0, "sqrt": 0, "__rtruediv__": 0, "__truediv__": 1}
#: Small numbers that are often added, of which one may be tried where none can be fitted
USUAL = (1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
#: Calls up to which the same number may be added in all of them
ALIKE = 8


class Adjustable(Protocol):
    """What numbers are fitted in."""

    @property
    def numbers(self) -> dict[str, float]:
        """Return the settings that are real numbers."""

    def in_words(self, name: str) -> str:
        """Return a setting, or what it stands for."""

    def with_number(self, name: str, number: float) -> Prediction:
        """Return the same by another setting."""

    def altered(self, made: Mapping[int, Any], other_way: bool = False) -> Prediction:
        """Return what makes the tensor when some calls do something else."""


def altered_hypothesis(key: str, detail: str, operation: Prediction, *, fitted: bool = False) -> Hypothesis:
    """Return what an altered formula explains."""
    return Hypothesis((kind(key),), detail, operation, fitted, altered=True)


def settings(formula: Adjustable, target: Target) -> Hypotheses:
    """Yield another number in the place of a setting."""
    for name, right in formula.numbers.items():
        yield from _fit(name, right, partial(formula.with_number, name), target, formula.in_words(name))


def constants(formula: Adjustable, calls: Sequence[Call], target: Target, other_way: bool) -> Hypotheses:
    """Yield another number in the place of a constant, or added to what is divided by or taken the logarithm of."""
    for call in calls:
        if call.primitive in WITH_CONSTANT and call.second.number is not None:
            def with_number(number: float, call: Call = call) -> Prediction:
                return formula.altered({call.at: with_constant(number)}, other_way)

            yield from _fit(f"{call.second.label} in {call.label}", call.second.number, with_number, target)
    for call in calls:
        if call.primitive in SUMS:
            def with_times(number: float, call: Call = call) -> Prediction:
                return formula.altered({call.at: _with_times(number)}, other_way)

            second = call.second.label or "the second part of the sum"
            yield from _fit(f"the number of times that {second} is {SUMS[call.primitive]} {call.first.label}", 1.0,
                            with_times, target)
    where = [call for call in calls if call.primitive in WITH_ADDED and _operand(call).shape]
    for together in (*([one] for one in where), *([where] if 1 < len(where) <= ALIKE else [])):
        def with_more(number: float, together: list[Call] = together) -> Prediction:
            return formula.altered({call.at: _with_added(WITH_ADDED[call.primitive], number) for call in together},
                                   other_way)

        what = " and to ".join(dict.fromkeys(_operand(call).label for call in together))
        yield from _fit(f"a number that is added to {what}", 0.0, with_more, target)
        for number in USUAL if target.found.size < ENOUGH else ():
            yield altered_hypothesis("constant", f"{number:g} is added to {what}", with_more(number))


def _with_times(number: float) -> Change:
    return lambda method, x, y: method(x, [one * number for one in y] if isinstance(y, list) else y * number)


def _operand(call: Call) -> Argument:
    return call.operands[WITH_ADDED[call.primitive]]


def _with_added(at: int, number: float) -> Change:
    return lambda method, *given: method(*(one + number if i == at else one for i, one in enumerate(given)))


def _fit(name: str, right: float, with_number: Callable[[float], Prediction], target: Target, words: str = ""
         ) -> Hypotheses:
    def predict(number: float) -> Array:
        return with_number(number).at(target.sample)

    if target.found.size < ENOUGH:
        return
    with np.errstate(all="ignore"):
        known = fitted(right, predict, target)
    if known is not None:
        detail = f"{name} is {said(*known, right)} in place of {words or f'{right:.6g}'}"
        yield altered_hypothesis("constant", detail, with_number(known[0]), fitted=True)
