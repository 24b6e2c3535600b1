# SPDX-License-Identifier: MIT
"""Judge a result: compare, decide, name the fault, and compute what the data could show."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NamedTuple

from bridge.common.progress import Report
from bridge.common.stages import attempt
from bridge.judge.detect_precision import Recognised, recognise
from bridge.judge.diagnosis import BUDGET, diagnose
from bridge.judge.diagnosis.background import adequacy_in_background
from bridge.judge.diagnosis.stored_16_bit import prefer_precision, replay
from bridge.judge.exact_probe import judge_probe
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.file_pair import FilePair, is_probe, open_pair
from bridge.judge.measure.findings import Comparison
from bridge.judge.oracle.reduced_precision import HALF
from bridge.judge.verdict import Verdict, decide, excuse, in_doubt, named

StrPath = str | os.PathLike[str]


class Judgement(NamedTuple):
    """What was measured, and what follows from it.

    Attributes
    ----------
    comparison : every tensor of every step against float64 and its bound
    verdict : rounding, lower precision, a bug, or cannot tell; with the faults
    """

    comparison: Comparison
    verdict: Verdict


class Lower(NamedTuple):
    """A lower precision that a result shows, and the comparison by its bounds."""

    recognised: Recognised
    comparison: Comparison


def judge(
    fixture: StrPath,
    result: StrPath,
    progress: Report | None = None,
    *,
    diagnosing: bool = True,
    seconds: float = BUDGET,
) -> Judgement:
    """Compare two files and decide, see `judge_pair`.

    Parameters
    ----------
    fixture, result : exchange files
    progress, diagnosing, seconds : as of `judge_pair`

    Raises
    ------
    FileError
        As of `judge_pair`; also if a file is unreadable, or the two do not belong together.
    """
    with open_pair(fixture, result) as pair:
        return judge_pair(pair, progress, diagnosing=diagnosing, seconds=seconds)


def judge_pair(
    pair: FilePair, progress: Report | None = None, *, diagnosing: bool = True, seconds: float = BUDGET
) -> Judgement:
    """Compare two open files and decide.

    A result that fails, but shows a lower precision, is judged again by the bounds of that precision, or operation by
    operation where it stores 16 bits: it excuses rounding, not a bug. What fails is then explained by recomputation,
    see `bridge.judge.diagnosis`. Once the files are compared there is a verdict, whatever fails after that: what did
    stands in `Verdict.missing`.

    Parameters
    ----------
    pair : the two files
    progress : called as ``progress(done, total)`` after every image
    diagnosing : search for the fault, and compute which faults the data can show
    seconds : for the search

    Raises
    ------
    FileError
        See `bridge.judge.measure.comparison.compare`.
    """
    if not diagnosing:
        return _decided(pair, progress)[0]
    with adequacy_in_background(pair) as adequacy:
        (comparison, verdict), lower = _decided(pair, progress)
        missing = verdict.missing
        if comparison.failures:
            verdict = attempt(missing, "the search for the fault",
                              lambda: _explained(pair, comparison, verdict, lower, seconds), verdict)
        if verdict.diagnosis is not None:
            missing += verdict.diagnosis.missing
        shown = attempt(missing, "what these data can show", adequacy, None)
        return Judgement(comparison, replace(verdict, adequacy=shown))


def _decided(pair: FilePair, progress: Report | None) -> tuple[Judgement, Lower | None]:
    """The judgement without a search, and the lower precision that was recognised."""
    comparison, missing = compare(pair, progress), list[str]()
    if is_probe(pair.reference):
        probed = attempt(missing, "the look at every bit of the probe", lambda: judge_probe(comparison, pair), None)
        return Judgement(comparison, probed or in_doubt(decide(comparison), missing)), None
    lower = attempt(missing, "the look for a lower precision", lambda: _lower(pair, comparison, progress), None)
    verdict = decide(comparison, *lower) if lower else decide(comparison)
    return Judgement(comparison, in_doubt(verdict, missing) if missing else verdict), lower


def _lower(pair: FilePair, comparison: Comparison, progress: Report | None) -> Lower | None:
    """The lower precision that a result shows which fails; what it excuses is marked in the comparison."""
    recognised = recognise(pair, comparison) if comparison.failures else None
    if recognised is None:
        return None
    if recognised.name in HALF:
        reduced = replay(pair, comparison, recognised.name)
    else:
        reduced = compare(pair.reduced_to(recognised.name), progress)
    excuse(comparison, recognised, reduced)
    return Lower(recognised, reduced)


def _explained(
    pair: FilePair, comparison: Comparison, verdict: Verdict, lower: Lower | None, seconds: float
) -> Verdict:
    """A bug besides a lower precision is searched with that precision's bounds; else the precision itself is named."""
    if lower and lower.recognised.proven and lower.comparison.failures:
        found = diagnose(pair.reduced_to(lower.recognised.name), lower.comparison, seconds)
        return named(verdict, lower.comparison, found)
    diagnosis = diagnose(pair, comparison, seconds)
    if lower and lower.recognised.name in HALF:
        prefer_precision(diagnosis, lower.recognised.name)
    return named(verdict, comparison, diagnosis)
