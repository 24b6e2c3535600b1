# SPDX-License-Identifier: MIT
"""Judge a result: compare, decide, name the fault, and reckon what the data could show."""

from __future__ import annotations

import os
from dataclasses import replace

from bridge.common.progress import Report
from bridge.common.stages import attempt
from bridge.judge.detect_precision import Recognised, recognise
from bridge.judge.diagnosis import BUDGET, diagnose
from bridge.judge.diagnosis.background import reckoning
from bridge.judge.diagnosis.stored_16_bit import prefer_precision, replay
from bridge.judge.exact_probe import is_probe_file, judge_probe
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.findings import Comparison
from bridge.judge.oracle.reduced_precision import HALF
from bridge.judge.verdict import Verdict, decide, excuse, in_doubt, named

StrPath = str | os.PathLike[str]
#: A lower precision, and the comparison by its bounds
Lower = tuple[Recognised, Comparison]


def judge(
    fixture: StrPath,
    result: StrPath,
    progress: Report | None = None,
    *,
    diagnosing: bool = True,
    seconds: float = BUDGET,
) -> tuple[Comparison, Verdict]:
    """Compare two files and decide.

    A result that fails, but shows a lower precision, is judged again by the bounds of that precision, or operation by
    operation where it stores 16 bits: it excuses rounding, not a bug. What fails is then explained by recomputation,
    see `bridge.judge.diagnosis`. Once the files are compared there is a verdict, whatever fails after that: what did
    stands in `Verdict.missing`.

    Parameters
    ----------
    fixture, result : exchange files
    progress : called as ``progress(done, total)`` after every image
    diagnosing : search for the fault, and reckon which faults the data can show
    seconds : for the search

    Raises
    ------
    FileError
        See `bridge.judge.measure.comparison.compare`.
    """
    if not diagnosing:
        return _decided(fixture, result, progress)[:2]
    with reckoning(fixture, result) as adequacy:
        comparison, verdict, lower = _decided(fixture, result, progress)
        missing = verdict.missing
        if comparison.failures:
            verdict = attempt(missing, "the search for the fault",
                              lambda: _explained((fixture, result), comparison, verdict, lower, seconds), verdict)
        if verdict.diagnosis is not None:
            missing += verdict.diagnosis.missing
        shown = attempt(missing, "what these data can show", adequacy, None)
        return comparison, replace(verdict, adequacy=shown)


def _decided(
    fixture: StrPath, result: StrPath, progress: Report | None
) -> tuple[Comparison, Verdict, Lower | None]:
    """The comparison, the verdict, and the lower precision that was recognised."""
    comparison, missing = compare(fixture, result, progress), list[str]()
    if is_probe_file(fixture):
        probed = attempt(missing, "the look at every bit of the probe",
                         lambda: judge_probe(comparison, fixture, result), None)
        return comparison, probed or in_doubt(decide(comparison), missing), None
    lower = attempt(missing, "the look for a lower precision",
                    lambda: _lower(fixture, result, comparison, progress), None)
    verdict = decide(comparison, *lower) if lower else decide(comparison)
    return comparison, in_doubt(verdict, missing) if missing else verdict, lower


def _lower(
    fixture: StrPath, result: StrPath, comparison: Comparison, progress: Report | None
) -> Lower | None:
    """The lower precision that a result shows which fails; what it excuses is marked in the comparison."""
    recognised = recognise(fixture, result, comparison) if comparison.failures else None
    if recognised is None:
        return None
    if recognised.name in HALF:
        lowered = replay(fixture, result, comparison, recognised.name)
    else:
        lowered = compare(fixture, result, progress, recognised.name)
    excuse(comparison, recognised, lowered)
    return recognised, lowered


def _explained(
    files: tuple[StrPath, StrPath], comparison: Comparison, verdict: Verdict, lower: Lower | None, seconds: float
) -> Verdict:
    """A bug besides a lower precision is searched with that precision's bounds; else the precision itself is named."""
    recognised, lowered = lower or (None, None)
    if recognised and recognised.proven and lowered and lowered.failures:
        return named(verdict, lowered, diagnose(*files, lowered, seconds, recognised.name))
    diagnosis = diagnose(*files, comparison, seconds)
    if recognised and recognised.name in HALF:
        prefer_precision(diagnosis, recognised.name)
    return named(verdict, comparison, diagnosis)
