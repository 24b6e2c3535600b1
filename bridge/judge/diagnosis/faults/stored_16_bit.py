# SPDX-License-Identifier: MIT
"""A result that stores 16 bits, judged operation by operation.

Bounds that carry such roundings through a network would hide a flipped gradient. So everything that fails by the
declared precision is computed again from the candidate's own inputs of that operation, in the declared precision and in
the lower one: it must be one of them. If every operation is right by its own inputs, all are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.faults.convolution_faults import in_reduced_precision
from bridge.judge.diagnosis.faults.lowered import kept_in
from bridge.judge.diagnosis.faults.unfolded import unfolded
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.elementwise import BiasGradient, LossGradient
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.diagnosis.predictions.step_graph import INPUT, TARGET, StepGraph
from bridge.judge.diagnosis.predictions.update_cases import new_weights_case
from bridge.judge.diagnosis.records import Diagnosis, Explanation
from bridge.judge.measure.error_statistics import Statistic, measure
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.oracle.reduced_precision import HALF, HYPOTHESES

Array = np.ndarray
#: Operations whose results a program of 16 bits rounds
ROUNDED = (Forward, Data, Filter, BiasGradient, LossGradient)
OWN_GRADIENTS = "from the candidate's own gradients"


def replay(pair: FilePair, comparison: Comparison, lower: str) -> Comparison:
    """Return the comparison, with what fails judged once more by a precision of 16 bits.

    Parameters
    ----------
    pair : the two files
    comparison : what `bridge.judge.measure.comparison.compare` found by the declared precision; it is not changed
    lower : a name of `bridge.judge.oracle.reduced_precision.HALF`

    Returns
    -------
    Comparison
        T of what failed is the smallest that the declared precision or the lower one gives. Where neither explains it,
        T is 1 and the distance from what the lower one gives, in steps of its numbers.
    """
    with np.errstate(all="ignore"):
        again = _Replay(pair, pair.reduced_to(lower), comparison)
        judged = [one if one.passed else again.judged(one) for one in comparison.judged]
    return replace(comparison, judged=judged)


def prefer_precision(diagnosis: Diagnosis, lower: str) -> None:
    """Where the precision is proven elsewhere, it explains what it can; what else would is not named."""
    said = HALF[lower].type
    for i, finding in enumerate(diagnosis.findings):
        named = [_as_precision(one, said) for one in finding.explanations]
        simple = [one for one in named if one is not None]
        stored = [one for one in simple if one.detail.startswith(f"{said} ") and "results" in one.detail]
        if simple:
            chosen = min(stored or simple, key=lambda one: "operands" not in one.detail)
            diagnosis.findings[i] = replace(finding, explanations=(chosen,))


def _as_precision(one: Explanation, said: str) -> Explanation | None:
    """An explanation, if it is the precision; so is a sum of another kind that was stored in it."""
    keys = [kind.key for kind in one.kinds]
    if keys == ["precision"]:
        return one
    if keys in (["storage"], ["underflow"]) and one.detail.startswith((f"rounded to {said}", f"{said}, ")):
        return Explanation((kind("precision"),), f"{said} results", one.t)
    return None


class _Replay:
    """Two files, and the steps of both precisions."""

    def __init__(self, declared: FilePair, lower: FilePair, comparison: Comparison) -> None:
        self.pairs, self.comparison = (declared, lower), comparison
        self.reduced = HALF[lower.lower or ""]
        self.step = -1
        self.kept: tuple[StepGraph, StepGraph] | None = None

    def judged(self, one: Judged) -> Judged:
        """Return what fails, by the precision that suits it."""
        sort, _, parameter = one.name.partition("/")
        if sort in ("weights", "optimizer", "memory"):
            return one
        if sort == "update":
            return self._update(one, parameter)
        graphs = self._graphs(one.step)
        if graphs is None or not np.isfinite(graphs[0].found(one.name)).all() or not self._known(graphs[0], one.name):
            return one
        for graph in graphs:
            # Of large images no more than one operation's tensors at a time
            graph.known = {name: value for name, value in graph.known.items() if not graph.given(name)}
        found, best = graphs[0].found(one.name), None
        for operation in self._alternatives(graphs, one.name):
            best = _better(best, compared(found, operation.full(graphs[0].arithmetic)))
            if best.t <= 1:
                return self._said(one, best)
        if best is not None and not isinstance(graphs[1].operation(one.name), ROUNDED):
            return self._said(one, best)
        return self._said(one, self._unexplained(graphs[1], one.name, found))

    def _said(self, one: Judged, statistic: Statistic) -> Judged:
        return Judged(one.name, one.step, statistic, note=f"by {self.reduced.said}, from the candidate's own inputs")

    def _alternatives(self, graphs: tuple[StepGraph, StepGraph], name: str) -> Iterator[Prediction]:
        """Right operations: of the lower precision, of the declared one, with a part of what that rounds, with more."""
        exact, low = (graph.operation(name) for graph in graphs)
        if isinstance(low, Forward | Data | Filter):
            yield low
        yield exact
        if isinstance(exact, Forward | Data | Filter):
            alike = (one for one in HYPOTHESES["float32"].values() if one.type == self.reduced.type)
            yield from (in_reduced_precision(exact, one) for one in alike)
            yield from (other for _, other in unfolded(low.replaced(reduced=None), self.reduced))
        elif isinstance(exact, BiasGradient | LossGradient):
            yield kept_in(exact, self.reduced)
            yield from (other for _, other in unfolded(exact, self.reduced))

    def _unexplained(self, graph: StepGraph, name: str, found: Array) -> Statistic:
        """Beyond what the lower precision can give, T counts steps of its numbers: sums may be rounded otherwise."""
        bounded = graph.operation(name).full(graph.arithmetic)
        error = np.zeros(1) if bounded.error is None else bounded.error
        step = self.reduced.step(bounded.value)
        statistic = compared(found, Predicted(bounded.value, error + step))
        beyond = np.abs(found.reshape(step.shape) - bounded.value) - error
        return replace(statistic, t=1 + float(np.max(beyond / step, where=beyond > 0, initial=0.0)))

    def _update(self, one: Judged, parameter: str) -> Judged:
        """The step that was taken, by the candidate's own gradients where its file holds them: those are judged."""
        for other in self.comparison.judged:
            if other.name == f"optimizer/{parameter}" and other.step == one.step:
                return replace(one, statistic=other.statistic, bug_above=other.bug_above, note=OWN_GRADIENTS)
        best = None
        for i in (0, 1):
            case = self._case(one.step, parameter, i)
            if case is not None:
                best = _better(best, compared(case.found, case.right.full(case.graph.arithmetic)))
        return one if best is None else self._said(one, best)

    def _case(self, step: int, parameter: str, i: int) -> Case | None:
        def graph(k: int) -> StepGraph | None:
            graphs = self._graphs(k)
            return None if graphs is None else graphs[i]

        here = graph(step)
        return None if here is None else new_weights_case(self.pairs[i], here, step, parameter, False, graph)

    def _known(self, graph: StepGraph, name: str) -> bool:
        """No input of the operation is NaN or infinite."""
        given = [other for other in graph.inputs(name) if other not in (INPUT, TARGET) and graph.given(other)]
        return all(np.isfinite(graph.found(other)).all() for other in given)

    def _graphs(self, step: int) -> tuple[StepGraph, StepGraph] | None:
        """Of the declared precision and of the lower one; None where the weights of the step are not known."""
        if step != self.step:
            pair = self.pairs[0]
            weights = pair.start if step == 0 else pair.parameters(pair.candidate, step)
            self.step, self.kept = step, None
            if weights is not None and all(np.isfinite(w).all() for w in weights.values()):
                wide = {name: w.astype(np.float64) for name, w in weights.items()}
                self.kept = (StepGraph(self.pairs[0], step, wide), StepGraph(self.pairs[1], step, wide))
        return self.kept


def _better(one: Statistic | None, other: Statistic) -> Statistic:
    return other if one is None or other.t < one.t else one


def compared(found: Array, predicted: Predicted) -> Statistic:
    """Return the statistic of a candidate's tensor against a prediction with its bound."""
    error = np.zeros(1) if predicted.error is None else predicted.error
    value = predicted.value.reshape(found.shape)
    return measure(found, value, np.broadcast_to(error, predicted.value.shape).reshape(found.shape))
