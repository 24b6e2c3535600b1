# SPDX-License-Identifier: MIT
"""From a comparison that fails to the faults: which operations are wrong themselves, and what each does instead."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np

from bridge.common.stages import attempt
from bridge.common.threads import one_core
from bridge.judge.diagnosis.candidates import MOST_IMAGES, Case, base_of, operation_faults
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.evidence.describe import describe
from bridge.judge.diagnosis.evidence.extent import extent
from bridge.judge.diagnosis.evidence.reach import is_beyond
from bridge.judge.diagnosis.evidence.view import AXES
from bridge.judge.diagnosis.formulas import Formula
from bridge.judge.diagnosis.operations import Bounded, Given
from bridge.judge.diagnosis.output_faults import axis_names, changed_numbers, permuted, read_wrongly
from bridge.judge.diagnosis.pattern import pattern
from bridge.judge.diagnosis.records import Diagnosis, Explanation, Finding, Seen
from bridge.judge.diagnosis.search import Search
from bridge.judge.diagnosis.step_graph import INPUT, TARGET, StepGraph
from bridge.judge.diagnosis.unobserved import search_unobserved
from bridge.judge.diagnosis.update_cases import new_weights_case
from bridge.judge.diagnosis.update_faults import LATE
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.operation_names import operation
from bridge.judge.measure.pooled_sums import SUMS
from bridge.operations.pointwise import Dropout

Array = np.ndarray

#: Seconds for a diagnosis, where nobody asks for others
BUDGET = 60.0
#: Share of the time that is left which one tensor may take: another fault may wait behind it
SHARE = 1 / 2
#: Pixels below which products are too small to be shared by cores
SMALL_BATCH = 2**17
#: Seconds for what is seen of one tensor
DESCRIBING = 10.0
#: Operations that are diagnosed; the rest is counted
MOST_FINDINGS = 12


def diagnose(pair: FilePair, comparison: Comparison, budget: float = BUDGET) -> Diagnosis:
    """Name the faults of a result that fails.

    Parameters
    ----------
    pair : the two files, by the precision that the candidate is judged by
    comparison : what `bridge.judge.measure.comparison.compare` found
    budget : seconds for the search; a prediction that was begun is finished
    """
    start = time.monotonic()
    small = math.prod(pair.batch_shape) < SMALL_BATCH
    with np.errstate(all="ignore"), one_core() if small else nullcontext():
        diagnosis = _Doctor(pair, comparison, start + budget).run()
    diagnosis.seconds = time.monotonic() - start
    return diagnosis


#: Faults that have a memory of their own, and those that may strike at any step
REMEMBERING = ("accumulated", "previous_step", "stale", "momentum", "mask_other", "other_target", "state",
               "saved_weights", "storage")
LOCAL = ("corrupted", "overwritten", "uninitialised")


#: Kinds that are a number which was fitted to new weights, and those that keep what was there before
FITTED, KEEPING = {"learning_rate", "clipped"}, {"stale", "previous_step", "accumulated"}
#: Whose an operand is that is late by a step
BEFORE = "the step before"
#: What the new weights in the file say, and what it is where the next step computes with others
OLD_WEIGHTS = ("not updated", LATE)
STALE_COPY = ("the file holds the weights before the update once more, and the next step computes with the updated "
              "ones: the update is right, the copy that is written is old")
#: What is said of tensors of the next step
OF_LATER = ": its memory is filled again before it is written"
#: Wrong elements that may be the same ones in several tensors
FEW_WRONG = 1000
#: Fewer numbers than this agree with a factor by chance
ENOUGH = 4
#: Numbers that are those of another tensor by chance are fewer
MANY = 16
#: Where names of tensors begin that follow from others of their step
TENSORS = ("forward/", "grads/")
#: Seconds for the gradient that must agree with what is said of a loss
GRADIENT = 6.0


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
    if keys == {"learning_rate"}:
        return size >= ENOUGH and any(other.kinds == one.kinds for other in step)
    # In the first step memory holds 0, later what was there before
    return keys <= KEEPING and any({kind.key for kind in other.kinds} <= KEEPING for other in step)


def _is_activation(name: str) -> bool:
    """Whether a tensor has images: a layer's output, or the gradient with respect to it."""
    return name.startswith("forward/") or name.endswith("/output") or name == "grads/input"


def _confirmed(finding: Finding, every: list[Finding]) -> Finding:
    """Of explanations that one tensor cannot tell apart those that hold for all others with the first of them."""
    said = [{(one.kinds, one.detail) for one in other.explanations} for other in every if other is not finding]
    first = finding.explanations[0] if finding.explanations else None
    with_first = [other for other in said if first is not None and (first.kinds, first.detail) in other]
    kept = [one for one in finding.explanations if all((one.kinds, one.detail) in other for other in with_first)]
    return replace(finding, explanations=tuple(kept))


def _at(step: int, one: Explanation) -> Explanation:
    """An explanation that some later step at which the tensor is wrong does not confirm."""
    return replace(one, detail=f"at step {step}, but not at each later one: {one.detail}")


class _Doctor:
    """The state of one diagnosis."""

    def __init__(self, pair: FilePair, comparison: Comparison, deadline: float) -> None:
        self.pair, self.comparison, self.end = pair, comparison, deadline
        #: of the tensor that is looked at
        self.deadline = deadline
        self.diagnosis = Diagnosis()
        self.graphs: dict[int, StepGraph] = {}
        #: step of tensors with a finding, by name; at a later step they are not diagnosed again
        self.found: dict[str, int] = {}
        #: weights as they should have been stored, by step and name, where the file's are wrong
        self.unsaved: dict[int, dict[str, Array]] = {}
        #: where the images of the first finding come from, and the right steps, of which nothing is in the file
        self.images: list[int] = []
        #: other tensors of the file contradict the first finding's
        self.apart = False
        #: elements of the first finding, where few are wrong
        self.single = np.zeros(0, int)
        self.fresh: dict[int, StepGraph] = {}
        #: layers whose weights in the file are older than those in use, and from which step on
        self.stale: dict[str, int] = {}

    def run(self) -> Diagnosis:
        diagnosis = self.diagnosis
        for judged in self.comparison.failures:
            if len(diagnosis.findings) == MOST_FINDINGS:
                break
            if judged.name in self.found:
                continue
            now = time.monotonic()
            if now > self.end:
                diagnosis.not_searched += 1
                continue
            self.deadline = now + SHARE * (self.end - now)
            what = f"the search for the fault in {judged.name} of step {judged.step}"
            finding = attempt(diagnosis.missing, what, partial(self._finding, judged), None)
            if finding is not None:
                self.found[judged.name] = judged.step
                diagnosis.findings.append(self._with_state(finding))
        diagnosis.findings = [_confirmed(one, diagnosis.findings) for one in diagnosis.findings]
        diagnosis.complete = diagnosis.complete and not diagnosis.not_searched
        diagnosis.pattern = pattern(diagnosis.findings)
        return diagnosis

    def _finding(self, judged: Judged) -> Finding | None:
        sort, _, parameter = judged.name.partition("/")
        if sort == "weights":
            return self._first_weights(judged, parameter) if judged.step == 0 else None
        if sort == "masks":
            return self._mask(judged, parameter)
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
        return self._said(judged, [Explanation((kind("activation"),), said, 0.0)], None, "")

    def _tensor(self, judged: Judged) -> Finding | None:
        """A tensor of a step: computed from the candidate's own inputs, is it wrong itself?"""
        case = self._case(judged.name, judged.step)
        if case is None:
            return None if self.diagnosis.findings else self._said(judged, [], None, "")
        layer = getattr(case.right, "layer", None) or getattr(case.right, "node", None)
        if layer is not None and judged.step > self.stale.get(layer.name, judged.step) and not judged.of_parameter:
            # The weights that it follows from are known to be others than the file's
            return None
        if judged.note == SUMS and isinstance(case.right, Formula):
            case = replace(case, right=replace(case.right, decided=True))
        search = Search(case, self.deadline)
        if (same := self._damaged_alike(judged, case, search.t > 1)) is not None:
            return same
        if search.t <= 1 or _overflows(case.found, search.truth.value) or self._copied_wrongly(case):
            return None
        finding = self._searched(judged, search)
        if not self.diagnosis.findings and finding.seen is not None and finding.seen.exact:
            self.images = images_of(case.found, search.truth)
            self.apart = bool(self.images) and self._is_contradicted(judged)
        if not self.diagnosis.findings and any(one.by_place for one in finding.explanations):
            wrong = _wrong(search)
            self.single = wrong if wrong.size <= FEW_WRONG else self.single
        return finding

    def _is_contradicted(self, judged: Judged) -> bool:
        """Whether something else of the step does not follow from its inputs in the file: the candidate computed with
        others than it wrote. What follows from them is no damage of its own.
        """
        for other in self.comparison.failures:
            if other.step == judged.step and other.name != judged.name and other.name.startswith(TENSORS):
                case = self._case(other.name, other.step)
                if case is not None and Search(case, self.deadline).t > 1:
                    return True
        return False

    def _damaged_alike(self, judged: Judged, case: Case, wrong: bool) -> Finding | None:
        """What was damaged in the file as the first finding was: it is asked of the right tensor, of which no input is
        in the file.
        """
        first = self.diagnosis.findings[0] if self.diagnosis.findings else None
        if first is None or math.prod(self.pair.batch_shape) >= SMALL_BATCH:
            return None
        stored = [one for one in first.explanations if one.kinds == (kind("storage"),)]
        described = wrong and first.seen is not None and first.seen.exact and _is_activation(first.name)
        graph = case.graph
        follows = wrong and _is_activation(first.name)
        if not (stored or self.images or described or follows or self._is_of_later(first)):
            return None
        right = self._fresh(graph).operation(judged.name)
        if self.images and axis_names(case.right.shape, case.name) == "nchw":
            same = self.apart and images_of(case.found, right.full(graph.arithmetic)) == self.images
            return replace(self._said(judged, [], None, ""), seen=first.seen) if same else None
        if wrong and self._is_of_later(first) and (late := self._of_later(case)) is not None:
            return self._said(judged, [late], None, "")
        search = Search(replace(case, right=right), self.deadline)
        if search.t > 1 and described and _is_activation(judged.name):
            seen = self._described(search)
            if seen is not None and first.seen is not None and seen.said == first.seen.said:
                return replace(self._said(judged, [], None, ""), seen=first.seen)
        activations = _is_activation(first.name) and _is_activation(judged.name)
        if wrong and first.explanations and search.t > 1 and activations:
            if self.single.size and np.array_equal(_wrong(search), self.single):
                return self._said(judged, [first.explanations[0]], None, "")
            base = base_of(right)
            for one in (*read_wrongly(base, case.name), *permuted(base, search.truth.value, case.found, case.name)):
                if any((one.kinds, one.detail) == (known.kinds, known.detail) for known in first.explanations):
                    t = search.t_of(one.operation.full(graph.arithmetic))
                    if t <= 1:
                        return self._said(judged, [Explanation(one.kinds, one.detail, t)], None, "")
        for one in changed_numbers(base_of(right), search.found):
            if stored and one.detail == stored[0].detail and not search.t <= 1:
                t = search.t_of(one.operation.full(graph.arithmetic))
                return self._said(judged, [replace(stored[0], t=t)], None, "") if t <= 1 else None
        return None

    def _fresh(self, graph: StepGraph) -> StepGraph:
        """The right step from the same weights, of which nothing is in the file; its images are not large."""
        if graph.step not in self.fresh:
            self.fresh[graph.step] = StepGraph(self.pair, graph.step, graph.weights,
                                               ignored=frozenset(self.pair.shapes))
        return self.fresh[graph.step]

    @staticmethod
    def _is_of_later(finding: Finding) -> bool:
        return any(one.detail.endswith(OF_LATER) for one in finding.explanations)

    def _of_later(self, case: Case) -> Explanation | None:
        """A tensor that is right for the next step."""
        graph, name = case.graph, case.name
        after = None if graph.step + 1 >= self.pair.steps else self.pair.parameters(
            self.pair.candidate, graph.step + 1)
        if (after is None or name not in self.pair.shapes or case.found.size < MANY
                or not all(np.isfinite(w).all() for w in after.values())
                or math.prod(self.pair.batch_shape) >= SMALL_BATCH):
            return None
        wide = {other: w.astype(np.float64) for other, w in after.items()}
        later = StepGraph(self.pair, graph.step + 1, wide, ignored=frozenset(self.pair.shapes))
        t = Search(replace(case, right=later.operation(name)), self.deadline).t
        # A bound that is wide since nothing of the step is in the file would let this step's numbers pass as well
        if t > 1 or Search(replace(case, right=self._fresh(graph).operation(name)), self.deadline).t <= 1:
            return None
        return Explanation((kind("previous_step"),), f"what belongs to the next step{OF_LATER}", t)

    def _searched(self, judged: Judged, search: Search) -> Finding:
        place = search.place
        elsewhere = self._under_another_name(search)
        if not elsewhere and search.case.updating is None and not self.diagnosis.findings and "/" in judged.name:
            of_later = self._of_later(search.case)
            elsewhere = [of_later] if of_later is not None else []
        explanations, runner_up = (elsewhere, None) if elsewhere else search.run(
            place, None if self.diagnosis.findings else search_unobserved)
        self.diagnosis.hypotheses += search.count
        self.diagnosis.complete = self.diagnosis.complete and not search.cut
        if explanations and explanations[0].detail == "all zero" and self._is_late(judged):
            late = "all zero, and at each later step what belongs to the step before"
            explanations = [replace(explanations[0], kinds=(kind("previous_step"),), detail=late)]
        elif search.case.updating is not None or search.found.size < ENOUGH:
            held = self._holding(judged, explanations, search.found.size)
            # What does not hold elsewhere is not nearly so either
            runner_up = runner_up if held or not explanations else None
            explanations = held
        elif len(explanations) > 1:
            explanations = self._also_later(judged, explanations)
        of_before = bool(explanations) and BEFORE in explanations[0].detail and "later" not in explanations[0].detail
        if of_before and search.case.updating is None:
            explanations = [self._at_later_steps(judged, explanations[0]), *explanations[1:]]
        if explanations and explanations[0].kinds == (kind("learning_rate"),):
            explanations = self._rates_of_all_steps(judged, explanations)
        beyond = is_beyond(search.case.right, search.wrong)
        where = f"{place.said}{', where windows reach beyond the image' if beyond else ''}"
        said = self._said(judged, explanations, runner_up, where)
        seen = self._seen(judged, search, explanations)
        unknown = not explanations and (seen is None or not seen.exact)
        return replace(said, share=place.wrong / search.found.size, seen=seen, cut=search.cut,
                       extent=_extent(search) if unknown else "")

    def _under_another_name(self, search: Search) -> list[Explanation]:
        """The right numbers stand in the file as another tensor of this shape, and that one's here."""
        name, graph = search.case.name, search.case.graph
        # In graphs a join hands gradients on as they are: there two tensors are equal by right
        if not self.pair.model.is_chain:
            return []
        if search.case.updating is not None or name not in self.pair.shapes or search.found.size < MANY:
            return []
        wrong = {j.name for j in self.comparison.failures if j.step == graph.step}
        for other in wrong - {name}:
            if self.pair.shapes.get(other) == self.pair.shapes[name]:
                there = graph.own(other)
                if there is None or not there.any():
                    continue
                t = Search(replace(search.case, found=there), self.deadline).t
                case = self._case(other, graph.step) if t <= 1 else None
                if case is not None and Search(replace(case, found=search.case.found), self.deadline).t <= 1:
                    said = f"its right numbers are in the file as {other}: names or pointers are exchanged"
                    return [Explanation((kind("storage"),), said, t)]
        return []

    def _described(self, search: Search) -> Seen | None:
        until = time.monotonic() + min(DESCRIBING, max(0.0, self.end - time.monotonic()))
        return attempt(self.diagnosis.missing, f"the description of {search.case.name}",
                       lambda: describe(search.case, search.truth, lambda: time.monotonic() > until), None)

    def _seen(self, judged: Judged, search: Search, explanations: list[Explanation]) -> Seen | None:
        """What is seen of an error that nothing predicts."""
        if any(not one.by_place for one in explanations):
            return None
        until = time.monotonic() + min(DESCRIBING, max(0.0, self.end - time.monotonic()))
        what = f"the description of {search.case.name}"
        late = [j.step for j in self.comparison.failures if j.name == "loss" == judged.name and j.step > judged.step]
        later = [case for case in (self._case("loss", step) for step in late) if case is not None]
        return attempt(self.diagnosis.missing, what,
                       lambda: describe(search.case, search.truth, lambda: time.monotonic() > until, later), None)

    def _also_later(self, judged: Judged, explanations: list[Explanation]) -> list[Explanation]:
        """Of explanations that one step cannot tell apart those that a later wrong step confirms, if any."""
        for other in self.comparison.failures:
            if other.name == judged.name and other.step > judged.step:
                updated = other.name.startswith(("optimizer/", "update/"))
                case = self._update_case(other) if updated else self._case(other.name, other.step)
                if case is None:
                    continue
                search = Search(case, self.deadline)
                later = {(one.kinds, one.detail) for one in search.run(search.place)[0]}
                explanations = [one for one in explanations if (one.kinds, one.detail) in later] or explanations
                return explanations
        return explanations

    def _holding(self, judged: Judged, explanations: list[Explanation], size: int) -> list[Explanation]:
        """Those that hold at every step at which the tensor is wrong, if there are any.

        A number that was fitted, and what is said of few numbers, holds everywhere or is a coincidence; of a learning
        rate that is another one at each step many numbers are needed.
        """
        later = [self._explained(other) for other in self.comparison.failures
                 if explanations and other.name == judged.name and other.step > judged.step]
        held = [one for one in explanations if all(_holds(one, step, size) for step in later)]
        # One number for all steps comes before another one for each
        held.sort(key=lambda one: not all(_is_same(one, step) for step in later))
        known = {(one.kinds, one.detail) for finding in self.diagnosis.findings for one in finding.explanations}
        if size < ENOUGH:
            held = [one for one in held if not _is_fitted(one) or (one.kinds, one.detail) in known]
            return [one for one in held if self._is_of_gradient(judged, one)]
        return held or [_at(judged.step, one) for one in explanations if not _is_fitted(one)]

    def _at_later_steps(self, judged: Judged, one: Explanation) -> Explanation:
        """What belongs to the step before is said of every wrong step, to be that of step 0, or of this step alone."""
        later = [other for other in self.comparison.failures if other.name == judged.name and other.step > judged.step]
        found = [self._explained(other) for other in later]
        if all(_is_same(one, step) for step in found):
            return one
        first = replace(one, detail=one.detail.replace(BEFORE, "step 0"))
        if judged.step == 1 and all(_is_same(first, step) for step in found):
            return replace(first, detail=f"{first.detail}, at each later step, too: never refreshed")
        return _at(judged.step, one)

    def _is_late(self, judged: Judged) -> bool:
        """Whether a tensor holds at each later step at which it is wrong what was right at the step before."""
        later = [one for one in self.comparison.failures if one.name == judged.name and one.step > judged.step]
        for one in later:
            now, before = self._case(one.name, one.step), self._case(one.name, one.step - 1)
            if now is None or before is None or Search(replace(before, found=now.found), self.deadline).t > 1:
                return False
        return bool(later)

    def _explained(self, judged: Judged) -> list[Explanation]:
        """What explains a tensor of a later step; it is small, or new weights."""
        updated = judged.name.startswith(("optimizer/", "update/"))
        case = self._update_case(judged) if updated else self._case(judged.name, judged.step)
        search = None if case is None else Search(case, self.deadline)
        return [] if search is None else search.run(search.place)[0]

    def _is_of_gradient(self, judged: Judged, one: Explanation) -> bool:
        """What is said of the target of a loss must explain its gradient, where that is wrong."""
        if judged.name != "loss" or "target" not in one.detail:
            return True
        names = [other.name for other in self.comparison.failures if other.step == judged.step
                 and other.name == f"grads/{self.comparison.model.layers[-1].name}/output"]
        case = self._case(names[0], judged.step) if names else None
        search = None if case is None else Search(case, min(self.deadline, time.monotonic() + GRADIENT))
        if search is None or search.t <= 1:
            return True
        return (one.kinds, one.detail) in {(also.kinds, also.detail) for also in search.run(search.place)[0]}

    def _rates_of_all_steps(self, judged: Judged, explanations: list[Explanation]) -> list[Explanation]:
        """A rate that is wrong by another factor at each step is said with all of them."""
        found = [(judged.step, explanations[0])]
        for other in self.comparison.failures:
            if other.name == judged.name and other.step > judged.step:
                case = self._update_case(other)
                search = None if case is None else Search(case, self.deadline)
                rates = [] if search is None else [one for one in search.run(search.place)[0]
                                                   if one.kinds == explanations[0].kinds]
                if not rates:
                    break
                found.append((other.step, rates[0]))
        if len({one.detail for _, one in found}) == 1:
            return explanations
        said = "; ".join(f"step {step}: {one.detail}" for step, one in found[:4])
        return [replace(explanations[0], detail=f"another one at each step: {said}"), *explanations[1:]]

    def _case(self, name: str, step: int) -> Case | None:
        """None where its inputs are garbage: NaN is the fault of the first tensor that has it."""
        graph = self._graph(step)
        if graph is None:
            return None
        given = [other for other in graph.inputs(name) if other not in (INPUT, TARGET) and graph.given(other)]
        if not all(np.isfinite(graph.found(other)).all() for other in given):
            return None
        before = StepGraph(self.pair, step - 1, self.pair.start) if step else None
        return Case(name, graph, graph.operation(name), graph.found(name), before, self._earlier(name, step))

    def _copied_wrongly(self, case: Case) -> bool:
        """Right by the right inputs: only the file's copy of one is wrong, and that was found already."""
        graph = case.graph
        if graph.step in self.fresh:
            right = self.fresh[graph.step].operation(case.name)
            if Search(replace(case, right=right), self.deadline).t <= 1:
                return True
        wrong = [name for name in graph.inputs(case.name) if name in self.found]
        unsaved = self.unsaved.get(graph.step, {})
        if not wrong and not unsaved:
            return False
        other = StepGraph(self.pair, graph.step, graph.weights | unsaved, ignored=frozenset(wrong))
        return Search(Case(case.name, other, other.operation(case.name), case.found)).t <= 1

    def _first_weights(self, judged: Judged, parameter: str) -> Finding | None:
        graph = self._graph(0)
        assert graph is not None
        right = self.pair.start[parameter].astype(np.float64)
        found = self.pair.candidate.read(f"steps/0/weights/{parameter}", right.shape).astype(np.float64)
        search = Search(Case(judged.name, graph, Given(right.shape, right), found), self.deadline)
        updated = new_weights_case(self.pair, graph, 0, parameter, True, self._graph)
        if updated is not None and Search(replace(updated, found=found), self.deadline).t <= 1:
            said = "the weights after the first update: each step's are written when they are new"
            return self._said(judged, [Explanation((kind("previous_step"),), said, 0.0)], None, "")
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
        if own and known and ((moved and moved[0].passed) or self._by_right_gradient(judged)):
            # Only the file's copy of the gradient is wrong
            return None
        case = self._update_case(judged)
        if case is None:
            return None if self.diagnosis.findings else self._said(judged, [], None, "")
        search = Search(case, self.deadline)
        self.unsaved.setdefault(judged.step + 1, {})[parameter] = search.truth.value
        finding = self._searched(judged, search)
        if finding.explanations and finding.explanations[0].kinds == (kind("saved_weights"),):
            # What follows from them in the file was computed with others
            self.stale.setdefault(parameter.rpartition("/")[0], judged.step + 1)
        old = any(one.detail.endswith(OLD_WEIGHTS) for one in finding.explanations)
        if old and self._was_updated(judged, parameter):
            self.stale.setdefault(parameter.rpartition("/")[0], judged.step + 1)
            copied = Explanation((kind("stale"),), STALE_COPY, 0.0)
            finding = replace(finding, explanations=(copied,), runner_up=None)
        return finding

    def _was_updated(self, judged: Judged, parameter: str) -> bool:
        """The forward pass of the next step is what the weights give that the file lacks."""
        layer, step = parameter.rpartition("/")[0], judged.step
        name, new = f"forward/{layer}", {}
        for other in self.pair.start:
            if other.rpartition("/")[0] == layer:
                graph = self._graph(step)
                case = None if graph is None else new_weights_case(self.pair, graph, step, other, True, self._graph)
                if case is None:
                    return False
                new[other] = case.right.full(case.graph.arithmetic).value
        case = self._case(name, step + 1) if step + 1 < self.pair.steps else None
        if case is None or not case.graph.given(name) or Search(case, self.deadline).t <= 1:
            return False
        graph = StepGraph(self.pair, step + 1, case.graph.weights | new)
        return Search(Case(name, graph, graph.operation(name), case.found), self.deadline).t <= 1

    def _by_right_gradient(self, judged: Judged) -> bool:
        """The weights moved by the gradient that follows from the candidate's own tensors."""
        graph, parameter = self._graph(judged.step), judged.name.partition("/")[2]
        if graph is None:
            return False

        def fresh(step: int) -> StepGraph | None:
            graph = self._graph(step)
            return None if graph is None else self._fresh(graph)

        for graphs in (self._graph, fresh) if self.fresh else (self._graph,):
            case = new_weights_case(self.pair, graph, judged.step, parameter, False, graphs)
            if case is not None and Search(case, self.deadline).t <= 1:
                return True
        return False

    def _update_case(self, judged: Judged) -> Case | None:
        sort, _, parameter = judged.name.partition("/")
        graph = self._graph(judged.step)
        own = sort == "optimizer"
        return None if graph is None else new_weights_case(self.pair, graph, judged.step, parameter, own, self._graph)

    def _said(
        self, judged: Judged, explanations: list[Explanation], runner_up: Explanation | None, where: str
    ) -> Finding:
        what = operation(self.comparison.model, judged.name, judged.step)
        return Finding(judged.name, judged.step, what, judged.t, tuple(explanations), runner_up, where)

    def _with_state(self, finding: Finding) -> Finding:
        """Right at an earlier step, wrong now, without a memory in the fault itself: something lives between calls."""
        own = [j for j in self.comparison.judged if j.name == finding.name]
        earlier = [j for j in own if j.step < finding.step and j.passed]
        # What happens once, at a later step, is no matter of the first call
        if not finding.explanations or [j.step for j in earlier] != [0] or any(j.passed for j in own if j.step > 0):
            return finding
        first = finding.explanations[0]
        if {one.key for one in first.kinds} & {*REMEMBERING, *LOCAL}:
            return finding
        if finding.name.startswith("optimizer/") and self._is_right_by(first, earlier[0]):
            return finding
        if finding.name.startswith("optimizer/") and not all(
                _holds(first, self._explained(j), ENOUGH) for j in own if j.step > finding.step):
            return finding
        detail = f"right at step {earlier[0].step}, then: {first.detail}"
        said = Explanation((kind("state"), *first.kinds), detail, first.t, first.by_place)
        return replace(finding, explanations=(said, *finding.explanations[1:]))

    def _is_right_by(self, one: Explanation, judged: Judged) -> bool:
        """Whether an update that is right is what a fault would make of it, too: a rule that shows later alone."""
        case = self._update_case(judged)
        if case is None:
            return False
        alike = (other for other in operation_faults(case) if (other.kinds, other.detail) == (one.kinds, one.detail))
        search = Search(case, self.deadline)
        return any(search.t_of(other.operation.full(case.graph.arithmetic)) <= 1 for other in alike)

    def _graph(self, step: int) -> StepGraph | None:
        """The graph of a step; None where its weights are not known."""
        if step < 0:
            return None
        if step not in self.graphs:
            weights = self.pair.start if step == 0 else self.pair.parameters(self.pair.candidate, step)
            if weights is None or not all(np.isfinite(w).all() for w in weights.values()):
                return None
            # One step at a time: its tensors may be gigabytes
            wide = {name: w.astype(np.float64) for name, w in weights.items()}
            self.graphs = {step: StepGraph(self.pair, step, wide)}
        return self.graphs[step]

    def _earlier(self, name: str, step: int) -> dict[str, Array]:
        """What the memory of a tensor held at earlier steps, by description."""
        if name == "loss":
            return {}
        graphs = [StepGraph(self.pair, k, self.pair.start) for k in range(step)]
        olds = [graph.own(name) for graph in graphs]
        known = [old for old in olds if old is not None]
        found: dict[str, Array] = {}
        if step and olds[-1] is not None:
            found["the step before"] = olds[-1]
        if len(known) > 1 and len(known) == step:
            found["all steps before"] = np.sum(known, axis=0)
        for k, old in enumerate(olds[:-1]):
            if old is not None:
                found[f"step {k}"] = old
        return found


def images_of(found: Array, truth: Bounded) -> list[int]:
    """Return which right image each image of a tensor is, -1 where it is 0; empty where one is none, or all are right.
    """
    value = truth.value
    if value.ndim != 4 or not 1 < len(value) <= MOST_IMAGES:
        return []
    found = found.reshape(value.shape)
    error = np.broadcast_to(np.zeros(1) if truth.error is None else truth.error, value.shape)
    order = []
    for i, image in enumerate(found):
        near = [j for j in dict.fromkeys((i, *range(len(value)))) if (np.abs(image - value[j]) <= error[j]).all()]
        if not near and image.any():
            return []
        order.append(near[0] if near else -1)
    return order if order != list(range(len(value))) else []


def _wrong(search: Search) -> Array:
    """Flat indices of the wrong elements."""
    error = np.zeros(1) if search.truth.error is None else search.truth.error
    value = search.truth.value
    wrong: Array = np.flatnonzero(~(np.abs(search.case.found.reshape(value.shape) - value) <= error))
    return wrong


def _extent(search: Search) -> str:
    right, name = search.truth.value, search.case.name
    found = search.case.found.reshape(right.shape)
    axes = AXES[axis_names(right.shape, name)]
    error = np.zeros(1) if search.truth.error is None else search.truth.error
    wrong = ~(np.abs(found - right) <= error)
    return extent(found, right, wrong, axes) if len(axes) == right.ndim else ""


def _overflows(found: Array, right: Array) -> bool:
    """Infinite where the right number is out of range too: a run that diverges, no fault of this operation."""
    bad = ~np.isfinite(found)
    return bool(bad.any() and not (np.abs(right.reshape(found.shape)[bad]) < np.finfo(np.float32).max).any())
