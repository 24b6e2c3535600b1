# SPDX-License-Identifier: MIT
"""What else a report says, in sentences: terminal and HTML say the same."""

from __future__ import annotations

import math

from bridge.diagnosis.records import VISIBLE, Adequacy, Diagnosis, Explanation, Finding
from bridge.judged import NO_STEP, Comparison, Judged
from bridge.report.rows import zones_of_steps
from bridge.roundings import DETERMINISTIC, LAMBDA, false_alarm
from bridge.verdict import count, short

#: Of a list of names so many are shown
MOST_NAMES = 6


def title(comparison: Comparison) -> str:
    """What was compared."""
    n, c, h, w = comparison.batch_shape
    layers = ", ".join(layer.name for layer in comparison.model.layers)
    return f"{layers}   batch {n} x {c} x {h} x {w}, {count(comparison.steps, 'step')}, {comparison.precision}"


def step_lines(comparison: Comparison) -> list[str]:
    """The zone of every step, and where its largest T stands."""
    lines = []
    for part in zones_of_steps(comparison):
        steps = f"step {part.first}" if part.first == part.last else f"steps {part.first} to {part.last}"
        what = "largest T" if part.at.passed else "first wrong: T"
        at = f" at {part.at.statistic.at}" if part.at.statistic.at else ""
        of = "" if part.first == part.last else f" of step {part.at.step}"
        lines.append(f"{steps}: {part.zone.words}; {what} = {short(part.at.t)}, {part.at.name}{of}{at}")
    return lines


def finding_lines(number: int, finding: Finding) -> list[str]:
    """One faulty operation: what it is, how sure that is, where it lives, what to look at."""
    where = f"{finding.operation} ({finding.name}, step {finding.step}, T = {short(finding.t)})"
    if not finding.explanations:
        best = finding.runner_up
        closest = f" The closest: {named(best)}, T = {short(best.t)}." if best else ""
        return [
            f"{number}. Unknown structure in {where}.",
            f"No known fault explains it to rounding.{closest}",
            *_lives(finding),
        ]
    first, *others = finding.explanations
    lines = [f"{number}. {sentence(named(first))} in {where}."]
    next_best = finding.runner_up
    margin = f"; next best explanation: {named(next_best)}, T = {short(next_best.t)}" if next_best else ""
    lines.append(f"Explains the error to T = {short(first.t)}{margin}.")
    if others:
        lines.append(f"These data cannot tell it apart from: {listed([named(one) for one in others], '; ')}.")
    lines += _lives(finding)
    advice = list(dict.fromkeys(kind.look_at for one in finding.explanations for kind in one.kinds if kind.look_at))
    return lines + [f"Look at: {'; '.join(advice)}."] * bool(advice)


def _lives(finding: Finding) -> list[str]:
    return [f"The error lives here: {finding.where}."] if finding.where else []


def named(explanation: Explanation) -> str:
    """Titles of its faults, and which variant."""
    titles = " and ".join(kind.title for kind in explanation.kinds)
    return f"{titles} ({explanation.detail})" if explanation.detail else titles


def sentence(text: str) -> str:
    """
    >>> sentence("kernel flipped"), sentence("TF32 operands")
    ('Kernel flipped', 'TF32 operands')
    """
    return text[:1].upper() + text[1:]


def pattern_lines(diagnosis: Diagnosis) -> list[str]:
    """What the findings have in common: one cause is likely."""
    return [f"{sentence(diagnosis.pattern)}."] if diagnosis.pattern else []


def effort_lines(diagnosis: Diagnosis) -> list[str]:
    """How long the search was."""
    tried = count(diagnosis.hypotheses, "prediction")
    return [f"{tried} of known faults computed in {diagnosis.seconds:.1f} s."] if diagnosis.hypotheses else []


def adequacy_lines(adequacy: Adequacy, most: int | None = None) -> list[str]:
    """What these data cannot show, and `most` remarks on why; all of them where it is None."""
    remarks = [sentence(remark if remark.endswith(".") else f"{remark}.") for remark in adequacy.remarks]
    more = len(remarks[:most]) < len(remarks)
    remarks = remarks[:most] + [f"{len(remarks[most:])} more remarks: --report or --json."] * more
    kinds = len({(sight.kind.number, sight.detail) for sight in adequacy.sights})
    if not kinds:
        return remarks
    if not adequacy.blind:
        return [f"These data show {count(kinds, 'fault')} of {kinds} that were tried, far above rounding.", *remarks]
    names = [f"{s.kind.title} ({s.detail})" if s.detail else s.kind.title for s in adequacy.blind]
    says = f"These data cannot show {len(names)} of {count(kinds, 'fault')} (deviation / E below {VISIBLE:g}): "
    return [f"{says}{listed(names, '; ')}.", *remarks]


def listed(names: list[str], comma: str = ", ") -> str:
    """
    >>> listed(list("abcdefgh"))
    'a, b, c, d, e, f and 2 more'
    """
    more = len(names) - MOST_NAMES
    return comma.join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def not_judged_lines(comparison: Comparison) -> list[str]:
    """One line for each reason."""
    reasons: dict[str, list[str]] = {}
    for skipped in comparison.not_judged:
        step = "" if skipped.step == NO_STEP else f" (step {skipped.step})"
        reasons.setdefault(skipped.reason, []).append(skipped.name + step)
    return [f"not judged: {listed(names)}: {reason}" for reason, names in reasons.items()]


def alarm_line(comparison: Comparison) -> str:
    """The probability that the bound fails right code."""
    p = false_alarm(comparison)
    if p == 0:
        return f"No sum has more than {DETERMINISTIC} roundings: rounding alone cannot fail right code."
    exponent = math.ceil(math.log10(p))
    least = f"below 1e{exponent:d}" if exponent <= -3 else f"at most {p:.2g}"
    return f"Probability that rounding alone fails right code: {least} (lambda = {LAMBDA:g})."


def is_unreduced_gradient(judged: Judged) -> bool:
    """A gradient of an output or of the input, where the sign of one ReLU can be seen."""
    return judged.name == "grads/input" or (judged.name.startswith("grads/") and judged.name.endswith("/output"))


def facts(comparison: Comparison) -> list[str]:
    """What a reader should know besides."""
    found = [alarm_line(comparison)]
    if not comparison.declared:
        found.append(f"The result does not say its precision: judged as {comparison.precision}.")
    if comparison.reference_t is not None:
        found.append(
            f"The reference, PyTorch in {comparison.precision}, against the same bounds: T = "
            f"{short(comparison.reference_t)} (step 0)."
        )
    if comparison.twin_t is not None:
        found.append(f"The oracle and PyTorch in float64 agree to T = {short(comparison.twin_t)} (step 0).")
    if any(judged.passed and judged.t > 0.9 and is_unreduced_gradient(judged) for judged in comparison.judged):
        found.append(
            "T close to 1 in gradients of outputs is legal: where rounding decides the sign of a ReLU, the whole "
            "gradient of that element comes or goes, and E says so."
        )
    if comparison.divergence is not None:
        found.append(
            "Left to run on their own, the weights of candidate and reference differ by "
            f"{short(comparison.divergence)} of the way they went."
        )
    return found
