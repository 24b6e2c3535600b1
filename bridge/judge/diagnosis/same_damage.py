# SPDX-License-Identifier: MIT
"""Tensors of a file that were damaged as another one was: by what wrote the file, not by the step that it is of.

Their right numbers are computed from the weights alone: what of the step is in the file may be damaged, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bridge.judge.diagnosis.candidates import MOST_IMAGES, Case, base_of
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.faults.output_faults import axis_names, changed_numbers, permuted, read_wrongly
from bridge.judge.diagnosis.predictions.cases import Cases
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.records import Explanation, Finding, Seen
from bridge.judge.diagnosis.search import Search
from bridge.judge.measure.findings import Judged

Array = np.ndarray

#: What is said of tensors of the next step
OF_LATER = "what belongs to the next step: its memory is filled again before it is written"
#: Wrong elements that may be the same ones in several tensors
FEW_WRONG = 1000
#: Numbers that are those of another tensor by chance are fewer
MANY = 16
#: Where names of tensors begin that follow from others of their step
TENSORS = ("forward/", "grads/")

#: What explains a tensor, and what is seen of it
Damage = tuple[tuple[Explanation, ...], Seen | None]


class SameDamage:
    """Asks of each wrong tensor whether it is damaged as the first one is.

    Parameters
    ----------
    cases : the tensors
    describe : gives what is seen of an error
    """

    def __init__(self, cases: Cases, describe: Callable[[Search], Seen | None]) -> None:
        self._cases, self._describe = cases, describe
        self._first: Finding | None = None
        #: where the images of the first finding come from, and whether other tensors contradict it
        self._images: list[int] = []
        self._apart = False
        #: elements of the first finding, where few are wrong
        self._single = np.zeros(0, int)

    def note(self, first: Finding, search: Search | None = None) -> None:
        """Take the first finding, and what was searched where that is a tensor of a step."""
        self._first = first
        if search is None:
            return
        if first.seen is not None and first.seen.exact:
            self._images = images_of(search.case.found, search.truth)
            self._apart = bool(self._images) and self._is_contradicted(first)
        if any(one.by_place for one in first.explanations):
            wrong = np.flatnonzero(search.wrong)
            self._single = wrong if wrong.size <= FEW_WRONG else self._single

    def of(self, judged: Judged, case: Case, wrong: bool) -> Damage | None:
        """Return the damage of a tensor that is the first finding's; None where it is another one, or none.

        Parameters
        ----------
        wrong : it does not follow from its inputs in the file
        """
        first = self._first
        if first is None or not self._cases.small:
            return None
        stored = [one for one in first.explanations if one.kinds == (kind("storage"),)]
        images = bool(self._images) and axis_names(case.right.shape, case.name) == "nchw"
        of_later = wrong and is_of_later(first)
        activations = wrong and is_activation(first.name)
        if not (stored or images or of_later or activations):
            return None
        right = self._cases.recompute(case.graph).operation(judged.name)
        if images:
            same = self._apart and images_of(case.found, right.full(case.graph.arithmetic)) == self._images
            return ((), first.seen) if same else None
        if of_later and (late := self.of_later(case)) is not None:
            return (late,), None
        search = Search(replace(case, right=right), self._cases.deadline)
        if search.t <= 1:
            return None
        alike = self._alike(first, search) if activations and is_activation(judged.name) else None
        return alike or (_stored(stored[0], search) if stored else None)

    def _alike(self, first: Finding, search: Search) -> Damage | None:
        """The same is seen, the same elements are wrong, or the same fault explains them."""
        if first.seen is not None and first.seen.exact:
            seen = self._describe(search)
            if seen is not None and seen.said == first.seen.said:
                return (), first.seen
        if not first.explanations:
            return None
        if self._single.size and np.array_equal(np.flatnonzero(search.wrong), self._single):
            return (first.explanations[0],), None
        case, base, known = search.case, base_of(search.case.right), {(one.kinds, one.detail) for one in
                                                                      first.explanations}
        for one in (*read_wrongly(base, case.name), *permuted(base, search.truth.value, case.found, case.name)):
            if (one.kinds, one.detail) in known:
                t = search.t_of(one.operation.full(case.graph.arithmetic))
                if t <= 1:
                    return (Explanation(one.kinds, one.detail, t),), None
        return None

    def _is_contradicted(self, first: Finding) -> bool:
        """Whether something else of the step does not follow from its inputs in the file: the candidate computed with
        others than it wrote. What follows from them is no damage of its own.
        """
        for other in self._cases.comparison.failures:
            if other.step == first.step and other.name != first.name and other.name.startswith(TENSORS):
                case = self._cases.case(other.name, other.step)
                if case is not None and Search(case, self._cases.deadline).t > 1:
                    return True
        return False

    def of_later(self, case: Case) -> Explanation | None:
        """Return that a tensor is the next step's, where it is."""
        cases, graph, name = self._cases, case.graph, case.name
        if graph.step + 1 >= cases.pair.steps:
            return None
        after = cases.pair.parameters(cases.pair.candidate, graph.step + 1)
        if after is None or name not in cases.pair.shapes or case.found.size < MANY or not cases.small:
            return None
        if not all(np.isfinite(w).all() for w in after.values()):
            return None
        wide = {other: w.astype(np.float64) for other, w in after.items()}
        later = StepGraph(cases.pair, graph.step + 1, wide, ignored=frozenset(cases.pair.shapes))
        t = Search(replace(case, right=later.operation(name)), cases.deadline).t
        # A bound that is wide since nothing of the step is in the file would let this step's numbers pass as well
        if t > 1 or Search(replace(case, right=cases.recompute(graph).operation(name)), cases.deadline).t <= 1:
            return None
        return Explanation((kind("previous_step"),), OF_LATER, t)

    def under_another_name(self, search: Search) -> Explanation | None:
        """Return that the right numbers stand in the file as another tensor of this shape, and that one's here."""
        name, graph, pair = search.case.name, search.case.graph, self._cases.pair
        # A join hands gradients on as they are: there two tensors are equal by right
        if not pair.model.graph.is_path or name not in pair.shapes or search.found.size < MANY:
            return None
        wrong = [j.name for j in self._cases.comparison.failures if j.step == graph.step and j.name != name]
        for other in wrong:
            there = graph.own(other) if pair.shapes.get(other) == pair.shapes[name] else None
            if there is None or not there.any():
                continue
            t = Search(replace(search.case, found=there), self._cases.deadline).t
            case = self._cases.case(other, graph.step) if t <= 1 else None
            if case is not None and Search(replace(case, found=search.case.found), self._cases.deadline).t <= 1:
                said = f"its right numbers are in the file as {other}: names or pointers are exchanged"
                return Explanation((kind("storage"),), said, t)
        return None


def is_of_later(finding: Finding) -> bool:
    """Return whether a tensor was found to be the next step's."""
    return any(one.detail == OF_LATER for one in finding.explanations)


def is_activation(name: str) -> bool:
    """Return whether a tensor has images: a layer's output, or the gradient with respect to it."""
    return name.startswith("forward/") or name.endswith("/output") or name == "grads/input"


def images_of(found: Array, truth: Predicted) -> list[int]:
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


def _stored(first: Explanation, search: Search) -> Damage | None:
    """Numbers that were rounded, printed, or truncated in the same way."""
    for one in changed_numbers(base_of(search.case.right), search.found):
        if one.detail == first.detail:
            t = search.t_of(one.operation.full(search.case.graph.arithmetic))
            return ((replace(first, t=t),), None) if t <= 1 else None
    return None
