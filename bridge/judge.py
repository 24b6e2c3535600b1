# SPDX-License-Identifier: MIT
"""Judge a result: compare, decide, name the fault, and reckon what the data could show."""

from __future__ import annotations

import os
from dataclasses import replace

from bridge.comparison import compare
from bridge.diagnosis import diagnose
from bridge.diagnosis.aside import reckoning
from bridge.diagnosis.replay import prefer_precision, replay
from bridge.judged import Comparison
from bridge.lowering import HALF
from bridge.precision import Recognised, recognise
from bridge.probe import is_probe_file, judge_probe
from bridge.progress import Report
from bridge.verdict import Verdict, decide, excuse, named

StrPath = str | os.PathLike[str]


def judge(
    fixture: StrPath, result: StrPath, progress: Report | None = None, *, diagnosing: bool = True
) -> tuple[Comparison, Verdict]:
    """Compare two files and decide.

    A result that fails, but shows a lower precision, is judged again by the bounds of that precision, or operation by
    operation where it stores 16 bits: it excuses rounding, not a bug. What fails is then explained by recomputation,
    see `bridge.diagnosis`.

    Parameters
    ----------
    fixture, result : exchange files
    progress : called as ``progress(done, total)`` after every image
    diagnosing : search for the fault, and reckon which faults the data can show

    Raises
    ------
    FileError
        See `bridge.comparison.compare`.
    """
    if not diagnosing:
        return _decided(fixture, result, progress)[:2]
    with reckoning(fixture, result) as adequacy:
        comparison, verdict, recognised, lowered = _decided(fixture, result, progress)
        if comparison.failures:
            verdict = _explained(fixture, result, comparison, verdict, recognised, lowered)
        return comparison, replace(verdict, adequacy=adequacy())


def _decided(
    fixture: StrPath, result: StrPath, progress: Report | None
) -> tuple[Comparison, Verdict, Recognised | None, Comparison | None]:
    """The comparison and the verdict; the lower precision that was recognised, and the comparison by its bounds."""
    comparison, lowered = compare(fixture, result, progress), None
    if is_probe_file(fixture):
        return comparison, judge_probe(comparison, fixture, result), None, None
    recognised = recognise(fixture, result, comparison) if comparison.failures else None
    if recognised and recognised.name in HALF:
        lowered = replay(fixture, result, comparison, recognised.name)
    elif recognised:
        lowered = compare(fixture, result, progress, recognised.name)
    if recognised and lowered:
        excuse(comparison, recognised, lowered)
    return comparison, decide(comparison, recognised, lowered), recognised, lowered


def _explained(
    fixture: StrPath,
    result: StrPath,
    comparison: Comparison,
    verdict: Verdict,
    recognised: Recognised | None,
    lowered: Comparison | None,
) -> Verdict:
    """A bug besides a lower precision is searched with that precision's bounds; else the precision itself is named."""
    if recognised and recognised.proven and lowered and lowered.failures:
        return named(verdict, lowered, diagnose(fixture, result, lowered, lower=recognised.name))
    diagnosis = diagnose(fixture, result, comparison)
    if recognised and recognised.name in HALF:
        prefer_precision(diagnosis, recognised.name)
    return named(verdict, comparison, diagnosis)
