# SPDX-License-Identifier: MIT
"""Bounds of what has no formula: estimated from runs, or exact where numbers are only moved.

A function of arrays that somebody else computes (PyTorch) is run in float64 and in float32, with its operands off by
their rounding. What is measured, for each element of what it gives:

* D: the largest distance of a float32 run from the float64 run of the same operands, the right ones and others nearby,
  and of a float64 run that rounds at random what is computed on the way;
* M: the largest distance of a float64 run from that of the right operands: where rounding decides a choice, all of it,
  and where it is a choice of equal numbers, in whichever run;
* L: the sum of ``|df/dx| |x|`` over all operands, which a sum of ``n`` terms has as its absolute values. Operands off
  by Cauchy-distributed amounts move an element by such an amount, L times as wide;
* n: the number of terms, from L and from the root of the sum of squares, which independent signs show; the median.

The estimated bound is ``FACTOR * (2 D + s(n) L + u |f|) + M``, where s is the factor of a sum
(`bridge.judge.oracle.error_model.rounding_factor`), and u |f| the rounding of what is written. Known are only the
operands' own roundings: where they are off by more, as in a whole step, the bound is infinite.

Source: V. Kreinovich and S. A. Ferson, Reliability Engineering & System Safety 85 (2004) 267 (Cauchy deviates).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from bridge.operations.operation import Number, Shape

Array = np.ndarray
#: Arrays of one element type, float32 or float64, for operands of that type
Function = Callable[[list[Array]], list[Array]]
#: See `bridge.operations.aten.rounding`
Rounding = Callable[[float, int], AbstractContextManager[Any]]

#: By which what was measured is multiplied
FACTOR = 2.0
#: Runs with operands off by their rounding, and by Cauchy-distributed amounts
ROUNDED, CAUCHY = 8, 24
#: Scale of the latter, relative, and their largest value: derivatives are wanted
SMALL, LARGEST = 2.0**-30, 2.0**10
#: Roundings that operands are off where float32 runs are measured, so that these round otherwise each time
WIDE = 64
#: Roundings that an operand may be off for its bound to be estimated
NEAR = 4
#: Unit roundoff of float32, and what a difference of two equal float64 numbers counts as
UNIT, NOTHING = 2.0**-24, 2.0**-1000


def estimated(function: Function, operands: Sequence[Number], exact: frozenset[int] = frozenset(),
              rounding: Rounding = lambda u, seed: nullcontext()) -> list[Number]:
    """Return what a function gives for operands, with estimated bounds; by an arithmetic without bounds, or by that of
    exact probes, the numbers alone.

    Parameters
    ----------
    function : see the head of this file
    operands : numbers with a bound, one at least
    exact : positions of operands that are integers, which nobody rounds
    rounding : within what it gives for a roundoff and a seed, the function rounds at random what it computes
    """
    values, arithmetic, number = [one.value for one in operands], operands[0].arithmetic, type(operands[0])
    with np.errstate(all="ignore"):
        right = function(values)
        if not arithmetic.bounds or not arithmetic.u:
            return [number(one, 0.0, arithmetic) for one in right]
        known = all((one.error <= NEAR * arithmetic.u * np.abs(one.value)).all() for one in operands)
        rounded = np.array([i not in exact for i in range(len(values))], dtype=float)
        bounds = _bounds(function, values, right, arithmetic, rounded, rounding) if known else [math.inf] * len(right)
    found = [number(one, bound, arithmetic) for one, bound in zip(right, bounds, strict=True)]
    for one in found:
        one.estimated = True
    return found


def _bounds(function: Function, values: list[Array], right: list[Array], arithmetic: Any, rounded: Array,
            rounding: Rounding) -> list[Array]:
    """`rounded` is 0 for what is exact, and 1 for all else."""
    runs, rng, u = [_Runs(one) for one in right], np.random.default_rng(0), arithmetic.u

    def off(drawn: Callable[[Shape], Array]) -> list[Array]:
        return [one + share * drawn(one.shape) * np.maximum(np.abs(one), arithmetic.smallest_normal)
                for one, share in zip(values, rounded, strict=True)]

    for number in range(ROUNDED):
        near = off(lambda shape: u * rng.choice((-1.0, 1.0), shape))
        for run, found in zip(runs, function(near), strict=True):
            run.move(found)
        wide = values if number == 0 else off(lambda shape: UNIT * rng.uniform(-WIDE, WIDE, shape))
        single = [one.astype(np.float32) for one in wide]
        double = function([one.astype(np.float64) for one in single])
        for run, found, exact in zip(runs, function(single), double, strict=True):
            run.rounded = np.fmax(run.rounded, np.abs(found - exact))
        with rounding(UNIT, number):
            otherwise = function(values)
        for run, found in zip(runs, otherwise, strict=True):
            run.rounded = np.fmax(run.rounded, np.abs(found - run.right))
    for _ in range(CAUCHY):
        wide = off(lambda shape: SMALL * np.clip(rng.standard_cauchy(shape), -LARGEST, LARGEST))
        for run, found in zip(runs, function(wide), strict=True):
            run.widen(found)
    return [one.bound(arithmetic) for one in runs]


class _Runs:
    """What the runs show of one array, element by element."""

    def __init__(self, right: Array) -> None:
        self.right = right
        self.rounded, self.moved, self.squares, self.logarithms, self.jump = (np.zeros(right.shape) for _ in range(5))

    def move(self, found: Array) -> None:
        """Take a run with operands off by their rounding."""
        away = np.abs(found - self.right)
        self.moved = np.maximum(self.moved, away)
        self.squares += away**2 / ROUNDED

    def widen(self, found: Array) -> None:
        """Take a run with operands off by Cauchy-distributed amounts."""
        away = np.abs(found - self.right)
        self.jump = np.maximum(self.jump, away)
        self.logarithms += np.log(away / SMALL + NOTHING) / CAUCHY

    def bound(self, arithmetic: Any) -> Array:
        """Return the bound; infinite where a run gives no number."""
        # The scale of a Cauchy distribution is the geometric mean of its absolute values
        size = np.exp(self.logarithms)
        terms = (size * arithmetic.u)**2 / self.squares
        known = terms[np.isfinite(terms) & (size > 2.0**-20 * np.abs(self.right))]
        n = float(np.median(known)) if known.size else 1.0
        u, size_of_it = arithmetic.u, np.abs(self.right)
        lost = 2 * self.rounded * (u / UNIT) + arithmetic.factor(max(1.0, n)) * size + u * size_of_it
        # No smooth function goes so far: one of equal numbers was chosen, and each of them may be
        chosen = np.where(self.jump > 4 * SMALL * LARGEST * size, self.jump, 0.0)
        found = FACTOR * lost + np.maximum(self.moved, chosen)
        return np.where(np.isfinite(found), found, math.inf)
