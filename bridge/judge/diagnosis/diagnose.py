# SPDX-License-Identifier: MIT
"""From a comparison that fails to the faults: which operations are wrong themselves, and what each does instead."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np

from bridge.common.stages import attempt
from bridge.common.threads import one_core
from bridge.judge.diagnosis.altered.updates import Update
from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.evidence.describe import describe
from bridge.judge.diagnosis.evidence.places.extent import extent
from bridge.judge.diagnosis.evidence.places.reach import is_beyond
from bridge.judge.diagnosis.evidence.view import AXES
from bridge.judge.diagnosis.faults.output_faults import axis_names
from bridge.judge.diagnosis.faults.update_faults import LATE, NOT_UPDATED
from bridge.judge.diagnosis.other_steps import ENOUGH, OtherSteps, confirmed, shared
from bridge.judge.diagnosis.pattern import pattern
from bridge.judge.diagnosis.predictions.cases import Cases
from bridge.judge.diagnosis.predictions.formulas import decided
from bridge.judge.diagnosis.predictions.operations import Given, Remade
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.predictions.update_cases import new_weights_case
from bridge.judge.diagnosis.predictions.weights_in_use import are_updated, moved_by_right_gradient
from bridge.judge.diagnosis.records import Diagnosis, Explanation, Finding, Seen
from bridge.judge.diagnosis.same_damage import SameDamage
from bridge.judge.diagnosis.search import Search
from bridge.judge.diagnosis.unobserved import search_unobserved
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.operation_names import operation
from bridge.judge.measure.per_step import SUMS
from bridge.operations.pointwise import Dropout

Array = np.ndarray

#: Seconds for a diagnosis, where nobody asks for others
BUDGET = 60.0
#: Share of the time that is left which one tensor may take: another fault may wait behind it
SHARE = 1 / 2
#: Seconds for what is seen of one tensor
DESCRIBING = 10.0
#: Operations that are diagnosed; the rest is counted
MOST_FINDINGS = 12
#: What the new weights in the file say, and what it is where the next step computes with others
OLD_WEIGHTS = (NOT_UPDATED, LATE)
STALE_COPY = ("the file holds the weights before the update once more, and the next step computes with the updated "
              "ones: the update is right, the copy that is written is old")


def diagnose(pair: FilePair, comparison: Comparison, budget: float = BUDGET) -> Diagnosis:
    """Name the faults of a result that fails.

    Parameters
    ----------
    pair : the two files, by the precision that the candidate is judged by
    comparison : what `bridge.judge.measure.comparison.compare` found
    budget : seconds for the search, see `bridge.judge.diagnosis.clock`; a prediction that was begun is finished
    """
    start = time.monotonic()
    cases = Cases(pair, comparison, now() + budget)
    with np.errstate(all="ignore"), one_core() if cases.small else nullcontext():
        diagnosis = _Doctor(cases).run()
    diagnosis.seconds = time.monotonic() - start
    return diagnosis


class _Doctor:
    """The state of one diagnosis."""

    def __init__(self, cases: Cases) -> None:
        self.cases, self.end = cases, cases.deadline
        self.pair, self.comparison = cases.pair, cases.comparison
        self.diagnosis = Diagnosis()
        self.damage, self.steps = SameDamage(cases, self._described), OtherSteps(cases)
        #: step of tensors with a finding, by name; at a later step they are not diagnosed again
        self.found: dict[str, int] = {}
        #: weights as they should have been stored, by step and name, where the file's are wrong
        self.unsaved: dict[int, dict[str, Array]] = {}
        #: layers whose weights in the file are older than those in use, and from which step on
        self.stale: dict[str, int] = {}

    def run(self) -> Diagnosis:
        diagnosis = self.diagnosis
        for judged in self.comparison.failures:
            if len(diagnosis.findings) == MOST_FINDINGS:
                break
            if judged.name in self.found:
                continue
            start = now()
            if start > self.end:
                diagnosis.not_searched += 1
                continue
            self.cases.deadline = start + SHARE * (self.end - start)
            what = f"the search for the fault in {judged.name} of step {judged.step}"
            finding = attempt(diagnosis.missing, what, partial(self._finding, judged), None)
            if finding is not None:
                self.found[judged.name] = judged.step
                diagnosis.findings.append(self.steps.with_state(finding))
        diagnosis.findings = [self.steps.of_loss(one, diagnosis.findings) for one in diagnosis.findings]
        diagnosis.findings = [confirmed(one, diagnosis.findings) for one in diagnosis.findings]
        diagnosis.findings = [shared(one, diagnosis.findings) for one in diagnosis.findings]
        diagnosis.complete = diagnosis.complete and not diagnosis.not_searched
        diagnosis.pattern = pattern(diagnosis.findings)
        return diagnosis

    def _finding(self, judged: Judged) -> Finding | None:
        sort, _, parameter = judged.name.partition("/")
        if sort == "weights":
            return self._first_weights(judged, parameter) if judged.step == 0 else None
        if sort == "masks":
            return self._mask(judged, parameter)
        if sort == "memory":
            return self._memory(judged, parameter)
        if sort == "optimizer":
            return self._update(judged, parameter, own=True)
        if sort == "update":
            known = any(j.name == f"optimizer/{parameter}" and j.step == judged.step for j in self.comparison.judged)
            return None if known or f"grads/{parameter}" in self.found else self._update(judged, parameter, own=False)
        return self._tensor(judged)

    def _mask(self, judged: Judged, layer: str) -> Finding:
        """A mask that the candidate has drawn keeps too many elements, or too few."""
        share = float(self.pair.masks(judged.step)[f"{layer}/mask"].mean())
        expected = next(node.p for node in self.pair.model.graph.nodes if isinstance(node, Dropout) and
                        node.name == layer)
        said = f"the mask keeps {share:.1%} of the elements, expected {1 - expected:.1%}"
        return self._said(judged, Explanation((kind("activation"),), said, 0.0))

    def _memory(self, judged: Judged, name: str) -> Finding:
        """What the optimiser remembers after a step: is it what it was before, or by another rule?"""
        parameter, _, memory = name.rpartition("/")
        file = self.pair.candidate if judged.step else self.pair.reference
        before = self.pair.memory(file, judged.step, parameter)
        after = self.pair.memory(self.pair.candidate, judged.step + 1, parameter)
        if after is None:
            return self._said(judged)
        if before is None or not np.array_equal(before.tensors[memory], after.tensors[memory]):
            update = self.cases.update_case(replace(judged, name=f"optimizer/{parameter}"))
            if update is None or update.updating is None:
                return self._said(judged)
            found = after.tensors[memory].astype(np.float64)
            right = Update(found.shape, update.updating, memory=memory)
            return self._searched(judged, Search(Case(judged.name, update.graph, right, found), self.cases.deadline))
        sort = kind("momentum" if memory == "momentum" else "adam")
        return self._said(judged, Explanation((sort,), "after the step it is what it was before: not updated", 0.0))

    def _tensor(self, judged: Judged) -> Finding | None:
        """A tensor of a step: computed from the candidate's own inputs, is it wrong itself?"""
        case = self.cases.case(judged.name, judged.step)
        if case is None:
            return None if self.diagnosis.findings else self._said(judged)
        layer = getattr(case.right, "layer", None) or getattr(case.right, "node", None)
        if layer is not None and judged.step > self.stale.get(layer.name, judged.step) and not judged.of_parameter:
            # The weights that it follows from are known to be others than the file's
            return None
        if judged.note == SUMS:
            case = replace(case, right=decided(case.right))
        search = Search(case, self.cases.deadline)
        if (same := self.damage.of(judged, case, search.t > 1)) is not None:
            return replace(self._said(judged, *same[0]), seen=same[1])
        if search.t <= 1 or _overflows(case.found, search.truth.value) or self._copied_wrongly(search):
            return None
        return self._searched(judged, search)

    def _searched(self, judged: Judged, search: Search) -> Finding:
        """What explains a tensor, and what is seen of it."""
        first, place = not self.diagnosis.findings, search.place
        elsewhere = self._elsewhere(search)
        explanations, runner_up = ([elsewhere], None) if elsewhere is not None else search.run(
            place, search_unobserved if first else None)
        Remade.forget()
        self.diagnosis.hypotheses += search.count
        self.diagnosis.complete = self.diagnosis.complete and not search.cut
        explanations, runner_up = self._of_all_steps(judged, search, explanations, runner_up)
        beyond = is_beyond(search.case.right, search.wrong)
        where = f"{place.said}{', where windows reach beyond the image' if beyond else ''}"
        seen = self._seen(judged, search, explanations)
        unknown = not explanations and (seen is None or not seen.exact)
        finding = replace(
            self._said(judged, *explanations), runner_up=runner_up, where=where, share=place.wrong / search.found.size,
            seen=seen, cut=search.cut, extent=_extent(search) if unknown else "")
        if first:
            of_step = judged.name.startswith(("forward/", "state/", "grads/", "loss"))
            self.damage.note(finding, search if of_step else None)
        return finding

    def _elsewhere(self, search: Search) -> Explanation | None:
        """Right numbers in the wrong place of the file."""
        if search.case.updating is not None:
            return None
        exchanged = self.damage.under_another_name(search)
        if exchanged is not None or self.diagnosis.findings or "/" not in search.case.name:
            return exchanged
        return self.damage.of_later(search.case)

    def _of_all_steps(self, judged: Judged, search: Search, explanations: list[Explanation],
                      runner_up: Explanation | None) -> tuple[list[Explanation], Explanation | None]:
        """Explanations as the other steps leave them."""
        updating, size = search.case.updating is not None, search.found.size
        if explanations and explanations[0].detail == "all zero" and self.steps.is_late(judged):
            late = "all zero, and at each later step what belongs to the step before"
            explanations = [replace(explanations[0], kinds=(kind("previous_step"),), detail=late)]
        elif updating or size < ENOUGH or judged.name.startswith("state/"):
            held = self.steps.holding(judged, explanations, size, self.diagnosis.findings)
            # What does not hold elsewhere is not nearly so either
            runner_up = runner_up if held or not explanations else None
            explanations = held
        elif len(explanations) > 1:
            explanations = self.steps.also_later(judged, explanations)
        if explanations and not updating:
            explanations = [self.steps.late(judged, explanations[0]), *explanations[1:]]
        return self.steps.numbers(judged, explanations) if updating else explanations, runner_up

    def _described(self, search: Search, later: tuple[Case, ...] = ()) -> Seen | None:
        until = now() + min(DESCRIBING, max(0.0, self.end - now()))
        return attempt(self.diagnosis.missing, f"the description of {search.case.name}",
                       lambda: describe(search.case, search.truth, lambda: now() > until, later), None)

    def _seen(self, judged: Judged, search: Search, explanations: list[Explanation]) -> Seen | None:
        """What is seen of an error that nothing predicts."""
        if any(not one.by_place for one in explanations):
            return None
        late = self.cases.later(judged) if judged.name == "loss" else []
        cases = [self.cases.case("loss", other.step) for other in late]
        return self._described(search, tuple(case for case in cases if case is not None))

    def _copied_wrongly(self, search: Search) -> bool:
        """Right by the right inputs: only the file's copy of one is wrong, and that was found already."""
        case, own = search.case, search.truth.value
        graph = case.graph
        if graph.step in self.cases.recomputed:
            right = self.cases.recompute(graph).operation(case.name)
            if Search(replace(case, right=right), self.cases.deadline).follows(own):
                return True
        wrong = [name for name in graph.inputs(case.name) if name in self.found]
        unsaved = self.unsaved.get(graph.step, {})
        if not wrong and not unsaved:
            return False
        other = StepGraph(self.pair, graph.step, graph.weights | unsaved, ignored=frozenset(wrong))
        return Search(Case(case.name, other, other.operation(case.name), case.found)).follows(own)

    def _first_weights(self, judged: Judged, parameter: str) -> Finding | None:
        graph = self.cases.graph(0)
        assert graph is not None
        right = self.pair.start[parameter].astype(np.float64)
        found = self.pair.candidate.read(f"steps/0/weights/{parameter}", right.shape).astype(np.float64)
        search = Search(Case(judged.name, graph, Given(right.shape, right), found), self.cases.deadline)
        updated = new_weights_case(self.pair, graph, 0, parameter, True, self.cases.graph)
        if updated is not None and Search(replace(updated, found=found), self.cases.deadline).t <= 1:
            said = "the weights after the first update: each step's are written when they are new"
            return self._said(judged, Explanation((kind("previous_step"),), said, 0.0))
        if not self._other_start():
            return self._searched(judged, search)
        finding = self._searched(judged, search) if not self.diagnosis.findings else None
        if finding is None or finding.explanations:
            return finding
        stale = Explanation((kind("stale"),), "no first weights are the fixture's: a result of another fixture", 0.0)
        return replace(finding, explanations=(stale,))

    def _other_start(self) -> bool:
        """All first weights are wrong."""
        wrong = {j.name for j in self.comparison.failures if j.step == 0 and j.name.startswith("weights/")}
        return len(wrong) == len(self.pair.start) > 1

    def _update(self, judged: Judged, parameter: str, own: bool) -> Finding | None:
        gradient = f"grads/{parameter}"
        moved = [j for j in self.comparison.judged if j.name == f"update/{parameter}" and j.step == judged.step]
        wrong = any(j.name == gradient and j.step <= judged.step for j in self.comparison.failures)
        known = gradient in self.found or (wrong and bool(self.diagnosis.findings))
        if own and known and ((moved and moved[0].passed) or moved_by_right_gradient(
                self.cases, judged.step, parameter)):
            # Only the file's copy of the gradient is wrong
            return None
        case = self.cases.update_case(judged)
        if case is None:
            return None if self.diagnosis.findings else self._said(judged)
        search = Search(case, self.cases.deadline)
        self.unsaved.setdefault(judged.step + 1, {})[parameter] = search.truth.value
        finding = self._searched(judged, search)
        layer = parameter.rpartition("/")[0]
        if finding.explanations and finding.explanations[0].kinds == (kind("saved_weights"),):
            # What follows from them in the file was computed with others
            self.stale.setdefault(layer, judged.step + 1)
        old = any(one.detail.endswith(OLD_WEIGHTS) for one in finding.explanations)
        if old and are_updated(self.cases, judged.step, parameter):
            self.stale.setdefault(layer, judged.step + 1)
            copied = Explanation((kind("stale"),), STALE_COPY, 0.0)
            finding = replace(finding, explanations=(copied,), runner_up=None)
        return finding

    def _said(self, judged: Judged, *explanations: Explanation) -> Finding:
        what = operation(self.comparison.model, judged.name, judged.step)
        return Finding(judged.name, judged.step, what, judged.t, explanations)


def _extent(search: Search) -> str:
    right, name = search.truth.value, search.case.name
    axes = AXES[axis_names(right.shape, name)]
    return extent(search.case.found.reshape(right.shape), right, search.wrong, axes) if len(axes) == right.ndim else ""


def _overflows(found: Array, right: Array) -> bool:
    """Infinite where the right number is out of range too: a run that diverges, no fault of this operation."""
    bad = ~np.isfinite(found)
    return bool(bad.any() and not (np.abs(right.reshape(found.shape)[bad]) < np.finfo(np.float32).max).any())
