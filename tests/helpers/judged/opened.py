# SPDX-License-Identifier: MIT
"""Judging two files by their names, one stage at a time: each opens them, uses them once, and closes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bridge.judge.diagnosis import BUDGET, Diagnosis, diagnose
from bridge.judge.diagnosis.background import adequacy_of
from bridge.judge.diagnosis.records import Adequacy
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.file_pair import FilePair, open_pair
from bridge.judge.measure.findings import Comparison
from bridge.judge.repeatability import Runs, compare_runs

T = TypeVar("T")


def with_pair(fixture: Path, result: Path, work: Callable[[FilePair], T]) -> T:
    """What `work` makes of the two files."""
    with open_pair(fixture, result) as pair:
        return work(pair)


def compared(fixture: Path, result: Path) -> Comparison:
    """What `bridge.judge.measure.comparison.compare` finds."""
    return with_pair(fixture, result, compare)


def diagnosed(fixture: Path, result: Path, budget: float = BUDGET) -> Diagnosis:
    """The comparison, and the search for its faults."""
    return with_pair(fixture, result, lambda pair: diagnose(pair, compare(pair), budget))


def computed(fixture: Path, result: Path) -> Adequacy:
    """What the data can show."""
    return with_pair(fixture, result, adequacy_of)


def runs_of(fixture: Path, first: Path, second: Path) -> Runs:
    """Two results of one program."""
    return with_pair(fixture, first, lambda pair: compare_runs(pair, second))
