# SPDX-License-Identifier: MIT
"""Judge a result: compare, decide, name the fault, and compute what the data could show."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from bridge.common.progress import Report
from bridge.common.stages import attempt
from bridge.judge.arithmetic.questions import questions
from bridge.judge.arithmetic.recognised import Recognised
from bridge.judge.deciding import with_deciding
from bridge.judge.diagnosis import BUDGET, diagnose
from bridge.judge.diagnosis.background import adequacy_in_background, adequacy_of
from bridge.judge.diagnosis.faults.stored_16_bit import prefer_precision
from bridge.judge.exact_probe import judge_probe
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.file_pair import FilePair, is_probe, open_pair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.algorithms import families
from bridge.judge.oracle.reduced_precision import HALF
from bridge.judge.stale_operands import recognise_stale
from bridge.judge.verdict import Verdict, decide, in_doubt, named

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


def judge(
    fixture: StrPath,
    result: StrPath,
    progress: Report | None = None,
    *,
    diagnosing: bool = True,
    adequacy: bool = True,
    seconds: float = BUDGET,
    allow: tuple[str, ...] = (),
    allow_unknown: bool = False,
) -> Judgement:
    """Compare two files and decide, see `judge_pair`.

    Parameters
    ----------
    fixture, result : exchange files
    progress, diagnosing, adequacy, seconds, allow, allow_unknown : as of `judge_pair`

    Raises
    ------
    FileError
        As of `judge_pair`; also if a file is unreadable, or the two do not belong together.
    """
    with open_pair(fixture, result) as pair:
        return judge_pair(pair, progress, diagnosing=diagnosing, adequacy=adequacy, seconds=seconds, allow=allow,
                          allow_unknown=allow_unknown)


def judge_pair(
    pair: FilePair,
    progress: Report | None = None,
    *,
    diagnosing: bool = True,
    adequacy: bool = True,
    seconds: float = BUDGET,
    allow: tuple[str, ...] = (),
    allow_unknown: bool = False,
) -> Judgement:
    """Compare two open files and decide.

    A result that fails, but shows a lower precision, is judged again by the bounds of that precision, or operation by
    operation where it stores 16 bits: it excuses rounding, not a bug. So is one whose convolutions are computed by an
    algorithm that is no sum of products. What fails is then explained by recomputation,
    see `bridge.judge.diagnosis`. Once the files are compared there is a verdict, whatever fails after that: what did
    stands in `Verdict.missing`.

    Parameters
    ----------
    pair : the two files
    progress : called as ``progress(done, total)`` after every image
    diagnosing : search for the fault, and compute which faults the data can show
    adequacy : do the latter, too
    seconds : for the search
    allow : families of algorithms (`bridge.judge.oracle.algorithms.FAMILIES`) whose errors are rounding, besides those
        that the result declares
    allow_unknown : data of a step under names that the model does not have leave a result right

    Raises
    ------
    ArgumentError
        If `allow` names no family.
    FileError
        If the result declares none. See also `bridge.judge.measure.comparison.compare`.
    """
    allowed = families(",".join(allow), "allow") | pair.declared_families()
    if not diagnosing:
        comparison, verdict = _decided(pair, progress, allowed, allow_unknown)[0]
        return Judgement(comparison, with_deciding(verdict, comparison, pair))
    with adequacy_in_background(pair) if adequacy else nullcontext() as computed:
        (comparison, verdict), found = _decided(pair, progress, allowed, allow_unknown)
        missing = verdict.missing
        if comparison.failures and (found is None or found.leaves):
            verdict = attempt(missing, "the search for the fault",
                              lambda: _explained(pair, comparison, verdict, found, seconds), verdict)
        if verdict.diagnosis is not None:
            missing += verdict.diagnosis.missing
        verdict = with_deciding(verdict, comparison, pair)
        if computed is None:
            return Judgement(comparison, verdict)
        # The wider bounds of an algorithm hide more
        show = partial(adequacy_of, found.pair) if found and found.algorithms else computed
        shown = attempt(missing, "what these data can show", show, None)
        return Judgement(comparison, replace(verdict, adequacy=shown))


# A candidate's NaN and infinity are judged, not warned of
@np.errstate(all="ignore")
def _decided(pair: FilePair, progress: Report | None, allowed: frozenset[str], allow_unknown: bool
             ) -> tuple[Judgement, Recognised | None]:
    """The judgement without a search, and the arithmetic that was recognised; what it excuses is marked."""
    comparison, missing = compare(pair, progress), list[str]()
    if is_probe(pair.reference):
        probed = attempt(missing, "the look at every bit of the probe", lambda: judge_probe(comparison, pair), None)
        return Judgement(comparison, probed or in_doubt(
            decide(comparison, allow_unknown=allow_unknown), missing)), None
    found = None
    for question in questions(allowed, progress):
        answer = attempt(missing, question.what, partial(question.ask, pair, comparison), None)
        if answer is None:
            continue
        found = answer
        if found.outcome is not Outcome.ROUNDING:
            found.excuse(comparison)
            break
        # By the bounds of legal arithmetic the questions go on
        pair, comparison = found.pair, found.comparison
    verdict = decide(comparison, found, allow_unknown=allow_unknown)
    if verdict.outcome is not Outcome.BUG and comparison.failures:
        stale = attempt(missing, "the look for operands of the step before",
                        partial(recognise_stale, pair, comparison), None)
        if stale is not None:
            verdict, found = stale, None
            for judged in comparison.failures:
                judged.excused = None
    return Judgement(comparison, in_doubt(verdict, missing) if missing else verdict), found


def _explained(
    pair: FilePair, comparison: Comparison, verdict: Verdict, found: Recognised | None, seconds: float
) -> Verdict:
    """A bug besides another arithmetic is searched with the bounds of that; else the arithmetic itself is named."""
    if found and found.comparison.failures:
        return named(verdict, found.comparison, diagnose(found.pair, found.comparison, seconds))
    diagnosis = diagnose(pair, comparison, seconds)
    for lower in found.precisions if found else ():
        if lower.name in HALF:
            prefer_precision(diagnosis, lower.name)
    return named(verdict, comparison, diagnosis)
