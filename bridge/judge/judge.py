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
from bridge.judge.arithmetic.algorithm import RecognisedAlgorithm, recognise_algorithm
from bridge.judge.arithmetic.few_bits import few_bits
from bridge.judge.arithmetic.flush import recognise_flush
from bridge.judge.arithmetic.operands import RecognisedOperands, recognise_operands
from bridge.judge.arithmetic.order import recognise_order
from bridge.judge.arithmetic.precision import Recognised, recognise
from bridge.judge.arithmetic.rounding import recognise_rounding
from bridge.judge.diagnosis import BUDGET, diagnose
from bridge.judge.diagnosis.background import adequacy_in_background, adequacy_of
from bridge.judge.diagnosis.stored_16_bit import prefer_precision, replay
from bridge.judge.exact_probe import judge_probe
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.file_pair import FilePair, is_probe, open_pair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.algorithms import families
from bridge.judge.oracle.reduced_precision import HALF
from bridge.judge.verdict import Verdict, decide, decide_by_algorithm, excuse, in_doubt, named

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
    """A lower precision or another algorithm that a result shows, the files judged by its bounds, and what was found.
    """

    recognised: Recognised | RecognisedAlgorithm
    pair: FilePair
    comparison: Comparison


def judge(
    fixture: StrPath,
    result: StrPath,
    progress: Report | None = None,
    *,
    diagnosing: bool = True,
    seconds: float = BUDGET,
    allow: tuple[str, ...] = (),
) -> Judgement:
    """Compare two files and decide, see `judge_pair`.

    Parameters
    ----------
    fixture, result : exchange files
    progress, diagnosing, seconds, allow : as of `judge_pair`

    Raises
    ------
    FileError
        As of `judge_pair`; also if a file is unreadable, or the two do not belong together.
    """
    with open_pair(fixture, result) as pair:
        return judge_pair(pair, progress, diagnosing=diagnosing, seconds=seconds, allow=allow)


def judge_pair(
    pair: FilePair,
    progress: Report | None = None,
    *,
    diagnosing: bool = True,
    adequacy: bool = True,
    seconds: float = BUDGET,
    allow: tuple[str, ...] = (),
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

    Raises
    ------
    ArgumentError
        If `allow` names no family.
    FileError
        If the result declares none. See also `bridge.judge.measure.comparison.compare`.
    """
    allowed = families(",".join(allow), "allow") | pair.declared_families()
    if not pair.model.is_chain:
        # Other arithmetic and known faults are recognised in convolutions alone
        comparison = compare(pair, progress)
        return Judgement(comparison, decide(comparison))
    if not diagnosing:
        return _decided(pair, progress, allowed)[0]
    with adequacy_in_background(pair) if adequacy else nullcontext() as found:
        (comparison, verdict), lower = _decided(pair, progress, allowed)
        missing = verdict.missing
        known = lower is None and verdict.outcome is Outcome.PRECISION
        if comparison.failures and not known:
            verdict = attempt(missing, "the search for the fault",
                              lambda: _explained(pair, comparison, verdict, lower, seconds), verdict)
        if verdict.diagnosis is not None:
            missing += verdict.diagnosis.missing
        if found is None:
            return Judgement(comparison, verdict)
        if lower and isinstance(lower.recognised, RecognisedAlgorithm):
            # Its wider bounds hide more
            shown = attempt(missing, "what these data can show", lambda: adequacy_of(lower.pair), None)
        else:
            shown = attempt(missing, "what these data can show", found, None)
        return Judgement(comparison, replace(verdict, adequacy=shown))


# A candidate's NaN and infinity are judged, not warned of
@np.errstate(all="ignore")
def _decided(pair: FilePair, progress: Report | None, allowed: frozenset[str]) -> tuple[Judgement, Lower | None]:
    """The judgement without a search, and the lower precision or the algorithm that was recognised."""
    comparison, missing = compare(pair, progress), list[str]()
    if is_probe(pair.reference):
        probed = attempt(missing, "the look at every bit of the probe", lambda: judge_probe(comparison, pair), None)
        return Judgement(comparison, probed or in_doubt(decide(comparison), missing)), None
    flushed = attempt(missing, "the look for flush to zero", lambda: recognise_flush(pair, comparison), None)
    if flushed is not None:
        verdict = decide(flushed.comparison)
        return Judgement(flushed.comparison, replace(verdict, hints=[*verdict.hints, flushed.words])), None
    for what, recognised in (("the order of evaluation", recognise_order), ("directed rounding", recognise_rounding)):
        known = attempt(missing, f"the look for {what}", partial(recognised, pair, comparison), None)
        if known is not None:
            for judged in comparison.failures:
                judged.excused = Outcome.PRECISION
            return Judgement(comparison, known), None
    lower = attempt(missing, "the look for a lower precision",
                    lambda: _lower(pair, comparison, progress, allowed), None)
    if lower is None:
        verdict = decide(comparison)
    elif isinstance(lower.recognised, RecognisedAlgorithm):
        meant = lower.recognised.algorithm.family in allowed
        verdict = decide_by_algorithm(comparison, lower.recognised, lower.comparison, allowed=meant)
        comparison = lower.comparison if meant else comparison
    else:
        verdict = decide(comparison, lower.recognised, lower.comparison)
    if verdict.outcome in (Outcome.ROUNDING, Outcome.CANNOT_TELL, Outcome.BUG):
        few = attempt(missing, "the look at how many bits a sum has", lambda: few_bits(pair, comparison), None)
        if few is not None:
            verdict, lower = few, None
            for judged in comparison.failures:
                judged.excused = Outcome.PRECISION
    return Judgement(comparison, in_doubt(verdict, missing) if missing else verdict), lower


def _lower(
    pair: FilePair, comparison: Comparison, progress: Report | None, allowed: frozenset[str]
) -> Lower | None:
    """The lower precision or the algorithm that a failing result shows; what it excuses is marked in the comparison.

    What was computed again comes first, then what looks like an algorithm, then single operands that are rounded, then
    what is merely inside the bounds of a lower precision.
    """
    recognised = recognise(pair, comparison) if comparison.failures else None
    if comparison.failures and not (recognised and recognised.proven):
        algorithm = recognise_algorithm(pair, comparison, allowed)
        if algorithm is not None:
            found = Lower(algorithm[0], pair.computed_by(algorithm[0].algorithm), algorithm[1])
            excuse(comparison, found.recognised, found.comparison)
            return found
        operands = recognise_operands(pair, comparison)
        if operands is not None:
            excuse(comparison, *operands)
            return Lower(operands[0], pair, operands[1])
    if recognised is None:
        return None
    lower = pair.reduced_to(recognised.name)
    half = recognised.name in HALF
    reduced = replay(pair, comparison, recognised.name) if half else compare(lower, progress)
    excuse(comparison, recognised, reduced)
    return Lower(recognised, lower, reduced)


def _explained(
    pair: FilePair, comparison: Comparison, verdict: Verdict, lower: Lower | None, seconds: float
) -> Verdict:
    """A bug besides a lower precision is searched with that precision's bounds; else the precision itself is named.

    Of a recognised algorithm, or of operands that were named one by one, nothing is left to name.
    """
    nothing_left = RecognisedAlgorithm | RecognisedOperands
    if lower and isinstance(lower.recognised, nothing_left) and not lower.comparison.failures:
        return verdict
    if lower and lower.recognised.proven and lower.comparison.failures:
        found = diagnose(lower.pair, lower.comparison, seconds)
        return named(verdict, lower.comparison, found)
    diagnosis = diagnose(pair, comparison, seconds)
    if lower and lower.recognised.name in HALF:
        prefer_precision(diagnosis, lower.recognised.name)
    return named(verdict, comparison, diagnosis)
