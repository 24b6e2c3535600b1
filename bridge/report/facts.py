# SPDX-License-Identifier: MIT
"""What else a report says, in sentences: terminal and HTML say the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

from bridge.common.number_format import count, short
from bridge.judge.diagnosis.records import NEARLY, VISIBLE, Adequacy, Diagnosis, Explanation, Finding, Seen, Sight
from bridge.judge.measure.condition import DETERMINISTIC, LAMBDA, false_alarm
from bridge.judge.measure.findings import NO_STEP, NOT_IN_FILE, Comparison, Judged
from bridge.judge.measure.operation_names import place
from bridge.judge.verdict import Verdict
from bridge.report.rows import outcomes_of_steps

#: Of a list of names so many are shown
MOST_NAMES = 6
#: Of faults that cannot be told apart, places to look at
MOST_ADVICE = 3
#: What `bridge.judge.diagnosis.error_location` says of errors that have no place, and of a single number
EVERYWHERE, THE_NUMBER = "spread over the whole tensor", "the number itself"
#: Words that are no words
SYMBOLS = ("b", "bf16", "da", "dz", "fp16", "lr", "v", "w")
#: Share of wrong elements from which on all is wrong
NEARLY_ALL = 0.9


def title(comparison: Comparison) -> str:
    """Return what was compared."""
    batch = " x ".join(map(str, comparison.batch_shape))
    layers = ", ".join(layer.name for layer in comparison.model.layers)
    return f"{layers}   batch {batch}, {count(comparison.steps, 'step')}, {comparison.precision}"


def step_lines(comparison: Comparison) -> list[str]:
    """Return the outcome of every step, and where its largest T stands."""
    lines = []
    for part in outcomes_of_steps(comparison):
        steps = f"step {part.first}" if part.first == part.last else f"steps {part.first} to {part.last}"
        if part.at.passed and is_exact(comparison):
            lines.append(f"{steps}: exact")
            continue
        what = "largest T" if part.at.passed else "first wrong: T"
        here = part.at.statistic.at
        at = f" at {place(comparison.model, part.at.name, here)}" if here else ""
        of = "" if part.first == part.last else f" of step {part.at.step}"
        lines.append(f"{steps}: {part.outcome.words}; {what} = {short(part.at.t)}, {part.at.name}{of}{at}")
    return lines


#: Where a search has not tried all that it knows
STOPPED = "; the search was stopped when its share of the time was up (--diagnosis-time)"


def finding_lines(number: int, finding: Finding, before: Sequence[Finding] = ()) -> list[str]:
    """Return lines on one faulty operation: which fault, what exactly, how sure that is, where it lives, what to look
    at.

    Parameters
    ----------
    before : findings that were described already; the same fault in another operation is not described again
    """
    fault, where, best = fault_of(finding), _where(finding), finding.runner_up
    known = [fault_of(one) for one in before]
    if fault is not None and fault in known:
        at = known.index(fault)
        newest = all(other is not None and other in known[:i] for i, other in enumerate(known) if i > at)
        return [f"{number}. The same{'' if newest else f' as {at + 1}'}, in {again(finding)}."]
    if finding.seen is not None and finding.seen.rest <= NEARLY:
        return _described(number, finding, finding.seen, where)
    if not finding.explanations:
        mostly = f" Roughly, {named(best)}: that leaves {_percent(best.rest)} of the error." if best else ""
        beside = _beside(finding, before)
        lines = [f"{number}. Unknown structure, in {where}.",
                 f"{'None of the known faults that were tried' if finding.cut else 'No known fault'} explains it to "
                 f"rounding{STOPPED if finding.cut else ''}.{mostly}{beside}"]
        return lines + [finding.extent] * bool(finding.extent) + _lives(finding)
    first, *others = finding.explanations
    margin = f"; next best: {_titles(best)}, which leaves {_percent(best.rest)} of it" if best else ""
    lines = [f"{number}. {sentence(_titles(first))}, in {where}."]
    lines += [f"{sentence(first.detail)}."] * bool(first.detail)
    if first.by_place:
        lines.append(f"So says the place of the error, nothing was predicted{margin}.")
    else:
        lines.append(f"Explains the error to T = {short(first.t)}{margin}.")
    other = list(dict.fromkeys(named(one) for one in others if not _same(one, first)))
    lines += [f"These data cannot tell it apart from: {listed(other, '; ')}."] * bool(other)
    return lines + _lives(finding) + _advice(finding)


def fault_of(finding: Finding) -> Hashable | None:
    """Return what the findings of one fault have in common; None where the fault is unknown."""
    if finding.seen is not None and finding.seen.rest <= NEARLY:
        return finding.seen.said
    first = finding.explanations[0] if finding.explanations else None
    return None if first is None else (first.kinds, first.detail)


def again(finding: Finding) -> str:
    """Return where a fault is that was described already, and how well the description explains it."""
    if (finding.seen is not None and finding.seen.rest <= NEARLY) or not finding.explanations:
        return _where(finding)
    first = finding.explanations[0]
    how = "by its place" if first.by_place else f"explained to T = {short(first.t)}"
    return f"{_where(finding)[:-1]}; {how})"


def _where(finding: Finding) -> str:
    operation = finding.operation.partition(":")[0]
    return f"{operation} ({finding.name}, step {finding.step}, T = {short(finding.t)})"


def _beside(finding: Finding, before: Sequence[Finding]) -> str:
    """The bias gradient is few numbers, too few to say what the filter gradient of the same dz says."""
    layer, _, last = finding.name.rpartition("/")
    known = [one for one in before if one.name == f"{layer}/weight" and one.step == finding.step
             and (one.explanations or (one.seen is not None and one.seen.exact))]
    if last != "bias" or not layer.startswith("grads/") or not known:
        return ""
    return f" It is summed from the same gradient as {known[0].name}: mend that first."


def _described(number: int, finding: Finding, seen: Seen, where: str) -> list[str]:
    """What is seen of an error that no known fault predicts."""
    if seen.exact:
        lines = [f"{number}. {sentence(where)}: {_ended(seen.said)}",
                 f"Seen to rounding, on elements that nothing was fitted to; "
                 f"{'none of the known faults that were tried' if finding.cut else 'no known fault'} predicts it"
                 f"{STOPPED if finding.cut else ''}."]
    else:
        lines = [f"{number}. Unknown structure, in {where}.",
                 f"Nothing explains it to rounding. {_ended(sentence(seen.said))}",
                 *[finding.extent] * bool(finding.extent)]
    wrong = finding.where.partition(":")[0]
    if " of " in wrong and wrong.endswith("elements") and finding.share < NEARLY_ALL:
        lines.append(f"Wrong: {wrong}.")
    return [*lines, f"Look at: {seen.look_at}{'' if seen.look_at.endswith('?') else '.'}"]


def _ended(said: str) -> str:
    """
    >>> _ended("it is 0"), _ended("0.5, 0.25, ...")
    ('it is 0.', '0.5, 0.25, ...')
    """
    return said if said.endswith("...") else f"{said}."


def _percent(share: float) -> str:
    """
    >>> _percent(0.034), _percent(1.2), _percent(0.00001), _percent(5e4)
    ('3.4 %', '120 %', '0.001 %', 'more than 1000 %')
    """
    return f"{float(f'{100 * share:.2g}'):g} %" if share <= 10 else "more than 1000 %"


def _same(one: Explanation, other: Explanation) -> bool:
    return (one.kinds, one.detail) == (other.kinds, other.detail)


def _lives(finding: Finding) -> list[str]:
    """Nothing where all, or nearly all, of the tensor is wrong."""
    count, _, place = finding.where.partition(": ")
    wrong, size = (int(word) if word.isdigit() else 0 for word in (*count.split(), "", "", "")[:3:2])
    everywhere = place in ("", EVERYWHERE) and wrong >= NEARLY_ALL * size
    if not finding.where or finding.where in (EVERYWHERE, THE_NUMBER) or (size and everywhere):
        return []
    return [f"Wrong: {count if place == EVERYWHERE else finding.where}."]


def _advice(finding: Finding) -> list[str]:
    """One line for each fault, the likeliest first."""
    if any(one.by_place and one.detail.startswith(("a run", "a rectangle")) for one in finding.explanations):
        # Memory that fails does not know of rows and columns
        return ["Look at: the bounds of the loops, and the tile edges of kernels, that make this part."]
    advice = list(dict.fromkeys(kind.look_at for one in finding.explanations for kind in one.kinds if kind.look_at))
    return [f"Look at: {one}{'' if one.endswith('?') else '.'}" for one in advice[:MOST_ADVICE]]


def _titles(explanation: Explanation) -> str:
    return " and ".join(kind.title for kind in explanation.kinds)


def named(explanation: Explanation) -> str:
    """Return titles of its faults, and which variant."""
    titles = _titles(explanation)
    return f"{titles} ({explanation.detail})" if explanation.detail else titles


def sentence(text: str) -> str:
    """
    >>> sentence("kernel flipped"), sentence("TF32 operands"), sentence("lr = 0.1")
    ('Kernel flipped', 'TF32 operands', 'lr = 0.1')
    """
    return text if text.split(" ")[0] in SYMBOLS else text[:1].upper() + text[1:]


def pattern_lines(diagnosis: Diagnosis) -> list[str]:
    """Return what the findings have in common: one cause is likely."""
    return [f"{sentence(diagnosis.pattern)}."] if diagnosis.pattern else []


def effort_lines(diagnosis: Diagnosis) -> list[str]:
    """Return how long the search was, and whether an unknown fault may be one that it had no time for."""
    if not diagnosis.hypotheses and not diagnosis.not_searched:
        return []
    tried = f"{count(diagnosis.hypotheses, 'prediction')} of known faults computed in {diagnosis.seconds:.1f} s"
    unknown = any(not finding.explanations for finding in diagnosis.findings)
    late = unknown and not diagnosis.complete
    left = f"{count(diagnosis.not_searched, 'wrong tensor')} not looked at (--diagnosis-time)"
    if diagnosis.not_searched:
        return [f"{tried}, when time was up: {left}."]
    return [f"{tried}, when time was up: not every fault was tried." if late else f"{tried}."]


def missing_lines(verdict: Verdict) -> list[str]:
    """Return what was wanted besides the verdict and could not be had."""
    return [f"MISSING: {one}" for one in verdict.missing]


def adequacy_lines(adequacy: Adequacy, *, remarks: bool = True) -> list[str]:
    """Return what these data cannot show, and why; without `remarks` only how many tensors are missing."""
    said = [sentence(one if one.endswith(".") else f"{one}.") for one in adequacy.remarks]
    if not remarks:
        missing = sum(f"is {NOT_IN_FILE}" in one for one in adequacy.remarks)
        are, their = ("is", "its") if missing == 1 else ("are", "their")
        says = f"{count(missing, 'tensor')} {are} {NOT_IN_FILE}: {their} faults show only in what follows."
        said = [says] * bool(missing)
    kinds = len({(sight.kind.number, sight.detail) for sight in adequacy.sights})
    if not kinds:
        return said
    if not adequacy.blind:
        return [f"These data show {count(kinds, 'fault')} of {kinds} that were tried, far above rounding.", *said]
    blind = listed(_by_kind(adequacy.blind), "; ")
    how_many = f"{len(adequacy.blind)} of {count(kinds, 'fault')}"
    return [f"These data cannot show {how_many} (deviation / E below {VISIBLE:g}): {blind}.", *said]


def _by_kind(blind: list[Sight]) -> list[str]:
    """How many variants of each kind."""
    variants = Counter(sight.kind.title for sight in blind)
    return [f"{name} ({count(n, 'variant')})" for name, n in variants.items()]


def listed(names: list[str], comma: str = ", ") -> str:
    """
    >>> listed(list("abcdefgh"))
    'a, b, c, d, e, f and 2 more'
    """
    more = len(names) - MOST_NAMES
    return comma.join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def not_judged_lines(comparison: Comparison) -> list[str]:
    """Return one line for each reason why tensors were not judged."""
    reasons: dict[str, list[str]] = {}
    for skipped in comparison.not_judged:
        step = "" if skipped.step == NO_STEP else f" (step {skipped.step})"
        reasons.setdefault(skipped.reason, []).append(skipped.name + step)
    return [f"not judged: {listed(names)}: {reason}" for reason, names in reasons.items()]


def alarm_line(comparison: Comparison) -> str:
    """Return the probability that the bound fails right code."""
    if is_exact(comparison):
        return "Nothing is rounded in this probe."
    p = false_alarm(comparison)
    if p == 0:
        return f"No sum has more than {DETERMINISTIC} roundings: rounding alone cannot fail right code."
    exponent = math.ceil(math.log10(p))
    least = f"below 1e{exponent:d}" if exponent <= -3 else f"at most {p:.2g}"
    return f"Probability that rounding alone fails right code: {least} (lambda = {LAMBDA:g})."


def is_exact(comparison: Comparison) -> bool:
    """Return whether it is an exact probe: PyTorch's own numbers are right to the bit, and no bound leaves room for
    rounding.
    """
    return comparison.reference_t == 0 and all(judged.statistic.bound == 0 for judged in comparison.judged)


def is_unreduced_gradient(judged: Judged) -> bool:
    """Return whether it is a gradient of an output or of the input, where the sign of one ReLU can be seen."""
    return judged.name == "grads/input" or (judged.name.startswith("grads/") and judged.name.endswith("/output"))


def facts(comparison: Comparison) -> list[str]:
    """Return what a reader should know besides."""
    found = [alarm_line(comparison)]
    if comparison.estimated:
        found.append(f"No such probability is known of {count(len(comparison.estimated), 'tensor')} with an estimated "
                     "bound (docs/numerics.md).")
    if not comparison.declared:
        found.append(f"The result does not say its precision: judged as {comparison.precision}.")
    # A reference in float64 is its own twin
    checks = {comparison.precision: comparison.reference_t, "float64": comparison.twin_t}
    known = [f"{short(t)} in {name}" for name, t in checks.items() if t is not None]
    if known:
        found.append(f"PyTorch by the same bounds (step 0): T = {', '.join(known)}.")
    if any(judged.passed and judged.t > 0.9 and is_unreduced_gradient(judged) for judged in comparison.judged):
        found.append(
            "T close to 1 in gradients of outputs is legal: where rounding decides the sign of a ReLU, the whole "
            "gradient of that element comes or goes, and E says so."
        )
    if comparison.divergence is not None:
        apart = short(comparison.divergence)
        found.append(f"After all steps the weights of the two runs differ by {apart} of their way.")
    return found
