# SPDX-License-Identifier: MIT
"""Which rows a report shows, and the outcomes of whole steps."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.outcome import Outcome, worst

#: Without --all a table has at most so many rows
MOST_ROWS = 20


def rows(comparison: Comparison) -> list[Judged]:
    """Return all that is worth a row: equal first weights are none."""
    return [one for one in comparison.judged if not (one.given and one.passed)]


def compact(comparison: Comparison) -> list[Judged]:
    """Return the rows that matter most, in the order of computation: of each tensor the step with the largest T, and of
    all updates that are right one.

    If they are too many: the first that fail, then those with the largest T. The very first is always there.
    """
    first = next(iter(comparison.failures), None)
    found: dict[str, Judged] = {}
    failing = {one.name for one in comparison.failures}
    for one in rows(comparison):
        if one.passed and one.name in failing:
            continue
        key = _row_of(one)
        before = found.get(key)
        if before is None or (before is not first and (one is first or not one.t <= before.t)):
            found[key] = one
    shown = list(found.values())
    ranked = sorted(shown, key=lambda one: (one is not first, one.passed, -one.t if one.passed else 0.0))
    kept = {id(one) for one in ranked[:MOST_ROWS]}
    return [one for one in shown if id(one) in kept]


def _row_of(judged: Judged) -> str:
    """Its own name; updates that are right share one row."""
    kind = judged.name.partition("/")[0]
    return kind if judged.passed and kind in ("optimizer", "update") else judged.name


@dataclass(frozen=True)
class Steps:
    """Steps in a row that have the same outcome.

    Attributes
    ----------
    first, last : steps
    outcome : of all of them
    at : the first tensor that fails; where none does, that with the largest T
    """

    first: int
    last: int
    outcome: Outcome
    at: Judged


def outcomes_of_steps(comparison: Comparison) -> list[Steps]:
    """Return the outcome of every step; neighbours with the same outcome are one entry."""
    found: list[Steps] = []
    for k in sorted({one.step for one in comparison.judged}):
        here = [one for one in comparison.judged if one.step == k]
        outcome, at = worst(one.outcome for one in here), _telling(here)
        if found and found[-1].outcome is outcome and found[-1].last == k - 1:
            before = found.pop()
            found.append(Steps(before.first, k, outcome, _telling([before.at, at])))
        else:
            found.append(Steps(k, k, outcome, at))
    return found


def _telling(judged: list[Judged]) -> Judged:
    """The first that fails, else that with the largest T."""
    return next((one for one in judged if not one.passed), None) or max(judged, key=lambda one: one.t)
