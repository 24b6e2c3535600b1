# SPDX-License-Identifier: MIT
"""An intermediate of a formula in fewer bits, or by another constant."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bridge.judge.diagnosis.altered.alteration import Alteration, Alterations
from bridge.judge.diagnosis.altered.calls import Call, Change, Instead
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.reduced_precision import round_fraction, to_bf16, to_fp16

Array = np.ndarray
Predict = Callable[[float], Array]

#: Formats that an intermediate may be kept in
FORMATS: dict[str, Callable[[Array], Array]] = {
    "bfloat16": to_bf16, "float16": to_fp16, "11 bits, as TF32 has": lambda x: round_fraction(x, 10)}
#: Primitives whose results are numbers of the formula; what is only moved has been one before
COMPUTED = {"__add__", "__sub__", "__rsub__", "__mul__", "__truediv__", "__rtruediv__", "averaged", "squared", "sum",
            "summed_to", "sqrt", "exp", "expm1", "log", "log1p", "erf", "tanh", "sigmoid", "sin", "cos", "folded",
            "__matmul__", "resized", "scattered", "weights_between", "cubic_weights"}
#: Steps of Newton's method for a constant, and the change of it that ends them
STEPS, SETTLED = 12, 1e-11
#: Distance from the right number, in units of its rounding, below which a constant is no other one
ITSELF = 8
#: Numbers that constants are said to be where they agree to all digits that the data have
KNOWN = {"1/sqrt(2)": math.sqrt(0.5), "sqrt(2)": math.sqrt(2.0), "sqrt(2/pi)": math.sqrt(2 / math.pi),
         "1/sqrt(pi)": 1 / math.sqrt(math.pi), "2/sqrt(pi)": 2 / math.sqrt(math.pi), "pi": math.pi, "e": math.e,
         "1/sqrt(2 pi)": 1 / math.sqrt(2 * math.pi), "log(2)": math.log(2.0), "1/log(2)": 1 / math.log(2.0)}
#: Digits of a constant that a claim about it needs, and one that it is made of the right one in a simple way
DIGITS, SIMPLE = 1e-4, 1e-2


@dataclass(frozen=True)
class Target:
    """What predictions are compared with, and constants are fitted to.

    Attributes
    ----------
    sample : flat indices
    found, right, bound : what is there at these, what is right, and its bound
    u : unit roundoff
    late : says whether time is up
    """

    sample: Array
    found: Array
    right: Array
    bound: Array
    u: float
    late: Callable[[], bool] = bool

    def of(self, places: Array) -> Target:
        """Return some of its elements."""
        return replace(self, sample=self.sample[places], found=self.found[places], right=self.right[places],
                       bound=self.bound[places])

    def near(self, predicted: Array, slack: Array | float = 0.0) -> float:
        """Return T of the elements, by the right tensor's bound where the prediction is as large; `slack` widens that.
        """
        size, right = float(np.abs(predicted).max(initial=0)), float(np.abs(self.right).max(initial=0))
        larger = max(1.0, size / right) if right > 0 else 1.0
        ratio = np.abs(self.found - predicted) / (larger * self.bound + 4 * self.u * np.abs(predicted) + slack)
        ratio[self.found == predicted] = 0.0
        worst = float(ratio.max(initial=0))
        return worst if not math.isnan(worst) else math.inf


def fewer_bits(call: Call) -> Alterations:
    """Yield what a call gives, rounded to fewer bits."""
    if call.primitive in COMPUTED:
        for name, rounded in FORMATS.items():
            yield Alteration("precision", f"{call.label} is kept in {name}", _rounded(rounded), f"kept in {name}")


def everywhere(calls: Sequence[Call]) -> Iterator[tuple[str, dict[int, Change | Instead]]]:
    """Yield a formula all of whose numbers are in fewer bits."""
    for name, rounded in FORMATS.items():
        def change(method: Any, *given: Any, rounded: Callable[[Array], Array] = rounded) -> Bounded:
            stored = [Bounded(rounded(one.value), one.error, one.arithmetic) if isinstance(one, Bounded) else one
                      for one in given]
            return _rounded(rounded)(method, *stored)

        yield f"all of it is computed in {name}", {call.at: change for call in calls if call.primitive in COMPUTED}


def _rounded(change: Callable[[Array], Array]) -> Change:
    """The result rounded; where its error may decide which way, both are inside the bound."""

    def rounded(method: Any, *given: Any) -> Bounded:
        found = method(*given)
        value = change(found.value)
        ends = [np.abs(change(found.value + sign * found.error) - value) for sign in (-1, 1)]
        return Bounded(value, np.maximum(*ends), found.arithmetic)

    return rounded


def with_constant(number: float) -> Change:
    """Return a call with another number in the place of its first argument."""
    return lambda method, x, old, *rest: method(x, number, *rest)


def fitted(start: float, predict: Predict, target: Target) -> tuple[float, float] | None:
    """Return the constant by which a formula gives what was found, and how well it is known; None where none does, or
    time is up.

    Parameters
    ----------
    start : the right constant
    predict : what the formula gives at some elements by another one

    Examples
    --------
    >>> x = np.linspace(1.0, 2.0, 5)
    >>> target = Target(np.arange(5), np.exp(0.5 * x), np.exp(x), 1e-9 + 0 * x, 2.0**-24)
    >>> round(fitted(1.0, lambda c: np.exp(c * x), target)[0], 6)
    0.5
    """
    number, known = start, math.inf
    for _ in range(STEPS):
        if target.late():
            return None
        at = predict(number)
        h = 1e-6 * (abs(number) or 1.0)
        slope = (predict(number + h) - at) / h
        size = float(slope @ slope)
        if not (math.isfinite(size) and size > 0):
            return None
        step = float(slope @ (target.found - at)) / size
        known = float(np.abs(slope) @ target.bound) / size
        number += step
        if not math.isfinite(number):
            return None
        if abs(step) <= SETTLED * abs(number) + 1e-300:
            break
    return None if abs(number - start) <= ITSELF * target.u * abs(start) + 4 * known else (number, known)


def said(number: float, known: float, right: float) -> str:
    """Return a number in words; an expression, or what is made of the right one, only where all digits agree that the
    data have.

    >>> said(0.70710678, 1e-8, 1.0), said(0.3333, 1e-2, 1.0), said(0.25, 1e-9, 1.0), said(-0.0099999, 1e-6, 0.01)
    ('1/sqrt(2) = 0.707107', '0.33', '0.25', '-0.01')
    """
    made = (right * factor for factor in (-1, 2, 0.5, -2, -0.5))
    for value in (0.0, *made, 1 - right, right * right):
        if abs(number - value) <= known <= SIMPLE * abs(value or right):
            return f"{value:.6g}"
    for words, value in (*KNOWN.items(), *((f"-{one}", -value) for one, value in KNOWN.items()), *_fractions()):
        if abs(number - value) <= known + 1e-12 * abs(value) and known <= DIGITS * abs(number):
            return f"{words} = {value:.6g}" if words != f"{value:.6g}" else words
    digits = math.floor(math.log10(abs(number) / known)) if 0 < known < abs(number) else 6
    return f"{number:.{min(max(digits, 2), 6)}g}"


def _fractions() -> Iterator[tuple[str, float]]:
    for below in range(1, 13):
        for above in range(1, 25):
            if math.gcd(above, below) == 1:
                value = above / below
                words = f"{value:.6g}" if f"{value:.6g}" == repr(value).removesuffix(".0") else f"{above}/{below}"
                yield words, value
                yield f"-{words}", -value
