# SPDX-License-Identifier: MIT
"""From a comparison to a decision: rounding, lower precision, a bug, or cannot tell.

============  =========  ==================================================================================
verdict       exit code  decided when
============  =========  ==================================================================================
rounding      0          every judged tensor has T <= 1
bug           1          a tensor has T > 10, an error that a theorem excludes, or is not finite
bad input     2          (raised as `BridgeError` before anything is decided)
precision     3          the first convolution that fails is what operands of a lower precision give, and nothing
                         is outside the bounds of that precision (where results are stored in 16 bits, too: every
                         operation that fails gives that of the candidate's own inputs); or its errors are those of
                         an algorithm that is no sum of products (Winograd, FFT, ...), nothing is outside the bounds
                         of that, and neither the file declares it nor an option allows it: else it is rounding;
                         or all that fails is what operands of one lower precision give, one by one, each operation
                         computed from the candidate's own inputs; or the gradient of the loss is c*y - c*t, or
                         rounding is directed, which explains everything
cannot tell   4          the largest T lies between 1 and 10 (new weights: 4), or something is in the file that
                         could not be judged: an update that a small lr hides and whose gradient is missing, or a
                         tensor of a step whose weights are missing, or data under an unknown name; or all errors
                         are small and inside the bounds of a lower precision, which no forward convolution proves
============  =========  ==================================================================================

Between 1 and 10 the bound of long sums is only probabilistic (a strictly sequential float32 sum of millions of
terms of one sign can get there): that is never a pass, and not yet a proof. New weights follow from known numbers by
few operations, in an order that nobody knows: there the proof starts at 4. Where a bound is estimated
(`bridge.operations.aten`) the words say so, no theorem excludes anything, and the proof starts at 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from bridge.common.number_format import count, short
from bridge.exchange.hdf5_values import clipped
from bridge.judge.arithmetic.recognised import LowerPrecision, OtherAlgorithm, Recognised
from bridge.judge.diagnosis.records import Adequacy, Diagnosis, Finding
from bridge.judge.measure.findings import Comparison, Judged, NotJudged
from bridge.judge.measure.operation_names import operation, place
from bridge.judge.measure.outcome import Outcome
from bridge.operations.aten.operation import Aten


@dataclass(frozen=True)
class Verdict:
    """A decision in one word, one sentence, and what to look at.

    Attributes
    ----------
    outcome, words, hints : the word, the sentence, the rest
    precisions : lower precisions that were recognised
    algorithms : of convolutions that are no sums of products, and were recognised
    diagnosis : which faults explain what is wrong; None where nobody searched
    adequacy : which faults these data can show; None where it was not computed
    missing : what was wanted besides and could not be had, a line each with the reason
    would_decide : names and steps of tensors that the file lacks, and that would show what nobody can tell
    """

    outcome: Outcome
    words: str
    hints: list[str] = field(default_factory=list)
    precisions: list[LowerPrecision] = field(default_factory=list)
    algorithms: list[OtherAlgorithm] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    adequacy: Adequacy | None = None
    missing: list[str] = field(default_factory=list)
    would_decide: list[tuple[str, int]] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0 rounding, 1 bug, 2 bad input, 3 precision, 4 cannot tell."""
        return self.outcome.value


def decide(comparison: Comparison, found: Recognised | None = None, *, allow_unknown: bool = False) -> Verdict:
    """Draw the conclusion.

    Parameters
    ----------
    comparison : what `bridge.judge.measure.comparison.compare` found
    found : the arithmetic that explains what fails, if there is one
    allow_unknown : data of a step under names that nobody knows leave a result right
    """
    verdict = _decided(comparison, found)
    names = [] if allow_unknown else [skipped for skipped in comparison.not_judged if skipped.misnamed]
    return _misnamed(verdict, names) if names and verdict.outcome in (Outcome.ROUNDING, Outcome.PRECISION) else verdict


def _decided(comparison: Comparison, found: Recognised | None) -> Verdict:
    if found is None:
        return _wrong(comparison) if comparison.failures else _right(comparison)
    if found.comparison.failures:
        verdict = _wrong(found.comparison)
        verdict = replace(verdict, hints=[*verdict.hints, found.besides])
    elif found.outcome is Outcome.ROUNDING:
        verdict = replace(_right(found.comparison, found.words), hints=[*found.hints])
    else:
        verdict = Verdict(found.outcome, found.words, [*found.hints])
    return replace(verdict, precisions=[*found.precisions], algorithms=[*found.algorithms])


#: Fewer numbers than this agree with a factor by chance
ENOUGH = 4
#: How descriptions of sums of other terms begin
OTHER_SUM = "it is the sum in which"
#: T of a filter gradient from which on operands of a lower precision would show in most elements, and a share that
#: is far below that
FAR, FEW = 20.0, 0.25
#: Explanations that are factors
FACTORS = {"scale", "count", "factor_two", "learning_rate", "update_sign"}
#: Explanations that are no bugs: legal arithmetic, if not what was declared
LEGAL = {"precision", "naive_sum"}


def named(verdict: Verdict, comparison: Comparison, diagnosis: Diagnosis) -> Verdict:
    """Return the verdict with its diagnosis; a fault that explains what could have been poor arithmetic makes it a bug.

    It must have been predicted: that errors live in one place does not tell what they are.
    """
    verdict = replace(verdict, diagnosis=diagnosis, hints=_besides(verdict.hints, comparison, diagnosis))
    if verdict.outcome is not Outcome.CANNOT_TELL:
        return verdict
    elements = {(judged.name, judged.step): judged.statistic.elements for judged in comparison.judged}
    # What an estimated bound may be too small for is told, and is no proof
    estimated = {(judged.name, judged.step) for judged in comparison.estimated}
    for finding in diagnosis.findings:
        if (finding.name, finding.step) in estimated:
            continue
        predicted = [one for one in finding.explanations if not one.by_place]
        kinds = {kind.key for one in predicted for kind in one.kinds}
        if kinds and not kinds & LEGAL and elements.get((finding.name, finding.step), 0) >= ENOUGH:
            first = predicted[0]
            words = (
                f"BUG: {finding.name} of step {finding.step} is wrong, T = {short(finding.t)}: rounding could hardly "
                f"do this, and a fault explains it to T = {short(first.t)}: {first.kinds[0].title} ({first.detail})."
            )
            return replace(verdict, outcome=Outcome.BUG, words=words, hints=[verdict.words])
        if _is_another_sum(finding):
            assert finding.seen is not None
            words = (
                f"BUG: {finding.name} of step {finding.step} is wrong, T = {short(finding.t)}: no rounding does this, "
                f"seen to rounding {finding.seen.said}."
            )
            return replace(verdict, outcome=Outcome.BUG, words=words, hints=[verdict.words])
        if _spares_most(finding):
            words = (
                f"BUG: {finding.name} of step {finding.step} is wrong, T = {short(finding.t)}, in "
                f"{100 * finding.share:.2g} % of its elements, and right in all others: operands of a lower precision "
                "would spare none."
            )
            return replace(verdict, outcome=Outcome.BUG, words=words, hints=[verdict.words])
    return verdict


def _besides(hints: list[str], comparison: Comparison, diagnosis: Diagnosis) -> list[str]:
    """The hints without the factor of a tensor that is explained otherwise: numbers of one size have one anyway."""
    first = diagnosis.findings[0] if diagnosis.findings else None
    kinds = {kind.key for one in first.explanations[:1] for kind in one.kinds} if first is not None else set()
    explained = first is not None and (kinds or (first.seen is not None and first.seen.exact))
    factors = {_factor(judged) for judged in comparison.failures} if explained and not kinds & FACTORS else set()
    return [hint for hint in hints if hint not in factors]


def _is_another_sum(finding: Finding) -> bool:
    """A sum of other terms, seen to rounding on elements that nothing was fitted to, far outside of its bound."""
    seen = finding.seen
    return seen is not None and seen.exact and finding.t >= FAR and seen.said.startswith(OTHER_SUM)


def _spares_most(finding: Finding) -> bool:
    """A filter gradient that is far off in few elements; each of them is a sum over the same pixels.

    Where operands are rounded, error / E is normally distributed with about the same deviation in every element. Its
    largest value among thousands is some four deviations, so that of `FAR` puts most of them above 1.
    """
    return finding.name.endswith("/weight") and finding.t >= FAR and finding.share <= FEW


def in_doubt(verdict: Verdict, missing: list[str]) -> Verdict:
    """Return the verdict where it could not be asked whether a lower precision, or the algorithm, excuses what fails.
    """
    if verdict.outcome is not Outcome.BUG:
        return replace(verdict, missing=missing)
    words = f"CANNOT TELL: {verdict.words.removeprefix('BUG: ')} Whether lower precision explains it is not known."
    return replace(verdict, outcome=Outcome.CANNOT_TELL, words=words, missing=missing)


def unanswered(verdict: Verdict, failed: list[str]) -> Verdict:
    """Return the verdict where a further question was asked and could not be answered: a right result is not yet right.
    """
    verdict = replace(verdict, missing=[*verdict.missing, *failed])
    if verdict.outcome is not Outcome.ROUNDING:
        return verdict
    return replace(verdict, outcome=Outcome.CANNOT_TELL, words=f"CANNOT TELL: {failed[0]}.", hints=[verdict.words])


def _wrong(comparison: Comparison) -> Verdict:
    failures = comparison.failures
    certain = [judged for judged in failures if judged.certain]
    if certain:
        words = f"BUG: {_describe(comparison, certain[0])}"
        return Verdict(Outcome.BUG, words, _hints(comparison, certain[0], failures))
    worst = max(failures, key=lambda judged: judged.t)
    words = (
        f"CANNOT TELL: {count(len(failures), 'tensor')} of {len(comparison.judged)} outside the bound, but none far "
        f"(largest T = {short(worst.t)}, {worst.name}, step {worst.step}; a bug is certain from "
        f"T = {worst.bug_above:g})."
    )
    order = "An unusual order of the operations of the update" if worst.name.startswith("optimizer/") else ""
    cause = "An estimated bound that is too small" if worst.estimated else order or (
        "A long strictly sequential float32 sum")
    hint = (
        f"{cause} can do this, and so can a small bug: "
        f"run the candidate in float64{'' if order or worst.estimated else ', or sum in blocks'}, and compare again."
    )
    return Verdict(Outcome.CANNOT_TELL, words, [hint])


def _right(comparison: Comparison, difference: str = "rounding") -> Verdict:
    """No failure is left; `difference` is what every difference is."""
    hidden = [skipped for skipped in comparison.not_judged if skipped.hidden]
    if hidden:
        return Verdict(
            Outcome.CANNOT_TELL,
            (
                f"CANNOT TELL: what could be judged is right, but {count(len(hidden), 'tensor')} could not be, first "
                f"{hidden[0].name} of step {hidden[0].step}: {hidden[0].reason}."
            ),
        )
    worst = max(comparison.computed, key=lambda judged: judged.t)
    steps = len({judged.step for judged in comparison.computed})
    words = (
        f"RIGHT: every difference is {difference}. {count(len(comparison.computed), 'tensor')} of "
        f"{count(steps, 'step')} inside the {comparison.precision} bounds; "
        f"largest T = {short(worst.t)} ({worst.name}, step {worst.step}; 1 is the limit)."
    )
    if comparison.estimated:
        names = ", ".join(sorted({one for node in comparison.model.layers if isinstance(node, Aten)
                                  for one in node.calls.operations}))
        words += (f" The bounds of {count(len(comparison.estimated), 'tensor')} are estimated: PyTorch computes what "
                  f"the table of operations lacks ({clipped(names, 200)}).")
    if comparison.not_judged:
        words += f" Not judged: {len(comparison.not_judged)}, listed below{_unknown(comparison)}."
    return Verdict(Outcome.ROUNDING, words)


def _misnamed(verdict: Verdict, names: list[NotJudged]) -> Verdict:
    """What is under another name was not judged, and nobody would ever know."""
    first, more = names[0], f" and {len(names) - 1} more" if len(names) > 1 else ""
    near = f" (expected perhaps {' or '.join(first.nearest)})" if first.nearest else ""
    words = (f"CANNOT TELL: the result has data of a step under {count(len(names), 'unknown name')}, which nobody has "
             f"judged: {first.name}{near}{more}.")
    hint = "Give them the names of docs/exchange-file.md; or, if they are no tensors of a step, say --allow-unknown."
    return replace(verdict, outcome=Outcome.CANNOT_TELL, words=words, hints=[verdict.words, *verdict.hints, hint])


def _unknown(comparison: Comparison) -> str:
    """Names that may be misspelt stand in the verdict itself."""
    names = [skipped.name for skipped in comparison.not_judged if skipped.unknown]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"; {count(len(names), 'unknown name')}: {', '.join(names[:3])}{more}" if names else ""


def _describe(comparison: Comparison, judged: Judged) -> str:
    s = judged.statistic
    at = place(comparison.model, judged.name, s.at)
    if s.nonfinite:
        return (
            f"{judged.name} of step {judged.step} is wrong: {count(s.nonfinite, 'value')} NaN or infinite, "
            f"the first at {at}."
        )
    where = f"at {at} it is {s.found:.9g}, right is {s.expected:.9g}"
    if s.bound == 0:
        return f"{judged.name} of step {judged.step} is wrong: {where}, exactly: nothing is rounded there."
    return (
        f"{judged.name} of step {judged.step} is wrong, T = {short(s.t)}: {where} with at most {short(s.bound)} of "
        f"rounding{f' ({judged.note})' if judged.note else ''}."
    )


def _hints(comparison: Comparison, first: Judged, failures: list[Judged]) -> list[str]:
    """What to look at: the operation that made the first wrong tensor, and a common factor."""
    before = comparison.judged[: comparison.judged.index(first)]
    doubtful = [judged for judged in before if not judged.passed]
    missing = [
        skipped
        for skipped in comparison.not_judged
        if not skipped.unknown
        and (
            skipped.step < first.step
            or (skipped.step == first.step and not skipped.name.startswith(("optimizer", "update", "memory")))
        )
    ]
    hints = [
        f"It is the first {'certainly ' if doubtful else ''}wrong tensor in the order of computation"
        + _those_before(len(before), len(doubtful))
        + (f"; {len(missing)} could not be judged, so the fault may be earlier." if missing else ".")
        + f" Look at {operation(comparison.model, first.name, first.step)}."
    ]
    # The step that was taken shows a wrong factor, the weights after it do not
    shown = first.name.replace("optimizer/", "update/", 1)
    for judged in failures:
        if (judged.name, judged.step) == (shown, first.step) and (factor := _factor(judged)):
            others = {_factor(other) for other in failures if other.name == shown}
            # A factor is the same wherever the tensor is wrong
            hints += [factor] if others == {factor} else []
    after = len(failures) - 1 - len(doubtful)
    if after > 0:
        hints.append(f"Wrong after it: {count(after, 'tensor')}; they may follow from the first.")
    return hints


def _those_before(n: int, doubtful: int) -> str:
    if not doubtful:
        return f"; the {count(n, 'tensor')} before it are right" if n else ""
    return f"; of the {count(n, 'tensor')} before it, {doubtful} {'is' if doubtful == 1 else 'are'} in doubt"


def _factor(judged: Judged) -> str | None:
    """The tensor is the right one times a number: sums in place of means, a wrong lr, a factor 2."""
    s = judged.statistic
    if not s.norm_expected > 0 or not math.isfinite(s.dot) or s.elements < 2:
        return None
    slope = s.dot / s.norm_expected
    residual = s.norm_found - slope * s.dot
    # The factor must explain the tensor and nearly all of its error
    if slope == 0 or abs(slope - 1) < 1e-6 or not (residual <= 1e-6 * s.norm_found and residual <= 1e-3 * s.norm_error):
        return None
    what = "The step that was taken" if judged.name.startswith("update/") else judged.name
    fraction = f" = 1/{1 / slope:.6g}" if 0 < abs(slope) < 0.999 else ""
    wrong = "the sign" if slope < 0 and abs(slope + 1) < 1e-6 else "a scale"
    return f"{what} is the right one times {slope:.6g}{fraction}: {wrong} is wrong, not the layout."
