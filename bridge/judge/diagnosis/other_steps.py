# SPDX-License-Identifier: MIT
"""What one step cannot tell: explanations that other steps of the same tensor confirm, or take back."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from bridge.judge.diagnosis.altered.engine import altered_formulas
from bridge.judge.diagnosis.altered.formulas import formulas_of
from bridge.judge.diagnosis.altered.numbers import Target
from bridge.judge.diagnosis.candidates import Case, operation_faults
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.predictions.cases import Cases
from bridge.judge.diagnosis.predictions.operations import Prediction
from bridge.judge.diagnosis.records import NEARLY, Explanation, Finding
from bridge.judge.diagnosis.search import Search
from bridge.judge.measure.findings import Judged

#: Tensors of which a cause is that of another one, too, if it leaves next to nothing of its error
SEVERAL = 2
#: Faults that have a memory of their own, and those that may strike at any step
REMEMBERING = ("accumulated", "previous_step", "stale", "momentum", "mask_other", "other_target", "state",
               "saved_weights", "storage")
LOCAL = ("corrupted", "overwritten", "uninitialised")
#: Kinds that are a number which was fitted to new weights, and those that keep what was there before
FITTED, KEEPING = {"learning_rate", "clipped"}, {"stale", "previous_step", "accumulated"}
#: Mistakes in a formula, whose words name the target without saying that it is another one
OF_FORMULAS = {"term", "factor", "function", "constant", "count", "part_of_batch", "summed_axes", "other_number"}
#: Another setting, in words
SETTING = re.compile(r"(\w+) is ([-+.e\d]+) in place of")
#: How what is said of a number that changes begins
EACH = "another one at each step"
#: Whose an operand is that is late by a step
BEFORE = "the step before"
#: Fewer numbers than this agree with a factor by chance
ENOUGH = 4
#: Seconds for the gradient that must agree with what is said of a loss
GRADIENT = 6.0


class OtherSteps:
    """Asks the other steps of a tensor.

    Parameters
    ----------
    cases : the tensors
    """

    def __init__(self, cases: Cases) -> None:
        self._cases = cases

    def also_later(self, judged: Judged, explanations: list[Explanation]) -> list[Explanation]:
        """Return those explanations that the next wrong step confirms, if any; one step cannot tell them apart."""
        for other in self._cases.later(judged):
            case = self._cases.case_of(other)
            if case is not None:
                search = Search(case, self._cases.deadline)
                later = {(one.kinds, one.detail) for one in search.run(search.place)[0]}
                return [one for one in explanations if (one.kinds, one.detail) in later] or explanations
        return explanations

    def holding(self, judged: Judged, explanations: list[Explanation], size: int, said: Iterable[Finding]
                ) -> list[Explanation]:
        """Return those that hold at every step at which the tensor is wrong, if there are any.

        A number that was fitted, and what is said of few numbers, holds everywhere or is a coincidence; of one that is
        another one at each step many numbers are needed.

        Parameters
        ----------
        size : numbers of the tensor
        said : findings so far; what one of them says is no coincidence
        """
        later = [self._explained(other) for other in self._cases.later(judged)] if explanations else []
        held = [one for one in explanations if all(_holds(one, step, size) for step in later)]
        # One number for all steps comes before another one for each
        held.sort(key=lambda one: not all(_is_same(one, step) for step in later))
        if size < ENOUGH:
            known = {(one.kinds, one.detail) for finding in said for one in finding.explanations}
            held = [one for one in held if not _is_fitted(one) or (one.kinds, one.detail) in known]
            return [one for one in held if self._is_of_gradient(judged, one)]
        # What the first step alone cannot tell from something simpler, and later ones can
        held = held or [one for one in (later[0] if later else []) if all(
            _holds(one, step, size) for step in later) and self._is_right_by(one, judged)]
        return held or [_at(judged.step, one) for one in explanations if not _is_fitted(one)]

    def late(self, judged: Judged, one: Explanation) -> Explanation:
        """Return what belongs to the step before: at every wrong step, or to step 0, or at this step alone."""
        if BEFORE not in one.detail or "later" in one.detail:
            return one
        found = [self._explained(other) for other in self._cases.later(judged)]
        if all(_is_same(one, step) for step in found):
            return one
        first = replace(one, detail=one.detail.replace(BEFORE, "step 0"))
        if judged.step == 1 and all(_is_same(first, step) for step in found):
            return replace(first, detail=f"{first.detail}, at each later step, too: never refreshed")
        return _at(judged.step, one)

    def is_late(self, judged: Judged) -> bool:
        """Return whether a tensor holds at each later step at which it is wrong what was right at the step before."""
        later = self._cases.later(judged)
        for one in later:
            now, before = self._cases.case(one.name, one.step), self._cases.case(one.name, one.step - 1)
            if now is None or before is None or Search(replace(before, found=now.found), self._cases.deadline).t > 1:
                return False
        return bool(later)

    def numbers(self, judged: Judged, explanations: list[Explanation]) -> list[Explanation]:
        """Return a fitted number, a rate or a limit, that is another one at each step with all of them."""
        if not (explanations and len(explanations[0].kinds) == 1 and _is_fitted(explanations[0])):
            return explanations
        found = [(judged.step, explanations[0])]
        for other in self._cases.later(judged):
            numbers = [one for one in self._explained(other) if one.kinds == explanations[0].kinds]
            if not numbers:
                break
            found.append((other.step, numbers[0]))
        if len({one.detail for _, one in found}) == 1:
            return explanations
        said = "; ".join(f"step {step}: {one.detail}" for step, one in found[:4])
        return [replace(explanations[0], detail=f"{EACH}: {said}"), *explanations[1:]]

    def with_state(self, finding: Finding) -> Finding:
        """Return a finding that is right in the first call only: something lives between calls, unless the fault has a
        memory of its own.
        """
        own = [j for j in self._cases.comparison.judged if j.name == finding.name]
        earlier = [j for j in own if j.step < finding.step and j.passed]
        # What happens once, at a later step, is no matter of the first call
        if not finding.explanations or [j.step for j in earlier] != [0] or any(j.passed for j in own if j.step > 0):
            return finding
        first = finding.explanations[0]
        # Another schedule may agree with the right one at first
        if {one.key for one in first.kinds} & {*REMEMBERING, *LOCAL} or first.detail.startswith(EACH):
            return finding
        if self._is_right_by(first, earlier[0]):
            return finding
        if finding.name.startswith("optimizer/") and not all(
                _holds(first, self._explained(j), ENOUGH) for j in own if j.step > finding.step):
            return finding
        detail = f"right at step {earlier[0].step}, then: {first.detail}"
        said = Explanation((kind("state"), *first.kinds), detail, first.t, first.by_place)
        return replace(finding, explanations=(said, *finding.explanations[1:]))

    def _explained(self, judged: Judged) -> list[Explanation]:
        """What explains a tensor of a later step; it is small, or new weights."""
        case = self._cases.case_of(judged)
        search = None if case is None else Search(case, self._cases.deadline)
        return [] if search is None else search.run(search.place)[0]

    def _is_of_gradient(self, judged: Judged, one: Explanation) -> bool:
        """What is said of the target of a loss must explain its gradient, where that is wrong."""
        cases = self._cases
        if judged.name != "loss" or "target" not in one.detail or one.kinds[0].key in OF_FORMULAS:
            return True
        last = f"grads/{cases.comparison.model.layers[-1].name}/output"
        wrong = any(other.step == judged.step and other.name == last for other in cases.comparison.failures)
        case = cases.case(last, judged.step) if wrong else None
        search = None if case is None else Search(case, min(cases.deadline, now() + GRADIENT))
        if search is None or search.t <= 1:
            return True
        return (one.kinds, one.detail) in {(also.kinds, also.detail) for also in search.run(search.place)[0]}

    def of_loss(self, finding: Finding, others: list[Finding]) -> Finding:
        """Return the finding of a loss with the setting that its gradient has: to one number nothing is fitted."""
        case = None if finding.name != "loss" or finding.explanations else self._cases.case("loss", finding.step)
        if case is None:
            return finding
        search = Search(case, self._cases.deadline)
        for one in (one for other in others for one in other.explanations):
            for made in _with_setting(case, one):
                t = search.explained(made.full(case.graph.arithmetic))
                if t <= search.limit:
                    return replace(finding, explanations=(replace(one, t=t),), runner_up=None, seen=None)
        return finding

    def _is_right_by(self, one: Explanation, judged: Judged) -> bool:
        """Whether a tensor that is right is what a fault would make of it, too: what shows at later steps alone."""
        case = self._cases.case_of(judged)
        if case is None:
            return False
        search = Search(case, self._cases.deadline)
        return any(search.t_of(other.full(case.graph.arithmetic)) <= 1 for other in _made_so(case, one))


def _with_setting(case: Case, one: Explanation) -> Iterator[Prediction]:
    """What another setting, by the words of a fault, makes of another tensor."""
    setting = SETTING.match(one.detail)
    for formula in formulas_of(case.right, case.updating) if setting else ():
        if setting and setting[1] in formula.numbers:
            yield formula.with_number(setting[1], float(setting[2]))


def _made_so(case: Case, one: Explanation) -> Iterator[Prediction]:
    """What a fault, by its words, makes of another tensor."""
    yield from _with_setting(case, one)
    formulas = formulas_of(case.right, case.updating)
    nothing = Target(np.zeros(0, int), np.zeros(0), np.zeros(0), np.zeros(0), case.graph.arithmetic.u)
    stages = (stage for formula in formulas for stage in altered_formulas(formula, nothing))
    for other in itertools.chain(operation_faults(case), itertools.chain.from_iterable(stages)):
        if (other.kinds, other.detail) == (one.kinds, one.detail):
            yield other.operation


def confirmed(finding: Finding, every: list[Finding]) -> Finding:
    """Return a finding with those of its explanations that hold for all others which share the first one.

    One tensor cannot tell them apart: numbers of one size that were printed with few digits are scaled, too.
    """
    said = [{(one.kinds, one.detail) for one in other.explanations} for other in every if other is not finding]
    first = finding.explanations[0] if finding.explanations else None
    with_first = [other for other in said if first is not None and (first.kinds, first.detail) in other]
    kept = [one for one in finding.explanations if all((one.kinds, one.detail) in other for other in with_first)]
    return replace(finding, explanations=tuple(kept))


def shared(finding: Finding, every: list[Finding]) -> Finding:
    """Return a finding of which only the place is known, with what explains two tensors of its sort or more, if that
    kind of fault leaves next to nothing of this error: of gradients that are clipped one may have one such element.
    """
    nearest, sort = finding.runner_up, finding.name.partition("/")[0]
    if nearest is None or nearest.t > 1 or nearest.rest > NEARLY:
        return finding
    if not all(one.by_place for one in finding.explanations):
        return finding
    said = Counter(other.explanations[0].detail for other in every if other.name.partition("/")[0] == sort and
                   [one.kinds for one in other.explanations] == [nearest.kinds])
    most = said.most_common(1)
    if not most or most[0][1] < SEVERAL:
        return finding
    found = replace(nearest, detail=most[0][0])
    return replace(finding, explanations=(found,), runner_up=None, seen=None)


def _is_fitted(one: Explanation) -> bool:
    return bool(FITTED & {kind.key for kind in one.kinds})


def _is_same(one: Explanation, step: list[Explanation]) -> bool:
    """Whether a later step is explained in the same words."""
    return any((other.kinds, other.detail) == (one.kinds, one.detail) for other in step)


def _holds(one: Explanation, step: list[Explanation], size: int) -> bool:
    """Whether an explanation is among those of a later step."""
    keys = {kind.key for kind in one.kinds}
    if _is_same(one, step):
        return True
    if len(keys) == 1 and keys <= FITTED:
        return size >= ENOUGH and any(other.kinds == one.kinds for other in step)
    # In the first step memory holds 0, later what was there before
    return keys <= KEEPING and any({kind.key for kind in other.kinds} <= KEEPING for other in step)


def _at(step: int, one: Explanation) -> Explanation:
    """An explanation that some later step at which the tensor is wrong does not confirm."""
    return replace(one, detail=f"at step {step}, but not at each later one: {one.detail}")
