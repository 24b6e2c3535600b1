# SPDX-License-Identifier: MIT
"""Recognise single operands of a lower precision: weights, activations or gradients that were rounded, and others not.

`precision.py` asks whether both operands of the first product of the forward pass are rounded. Here every tensor that
fails is computed again from the candidate's own inputs of its operation, with one of its operands (x, w, dz), or both,
rounded to TF32, fp16 or bf16. All failures of all steps must be explained by one type, to the float32 bound, or be what
the right operation gives.

A result that is rounded, of operands that are not, is a tensor that was damaged when it was stored. Only where all
results of its sort in that step (all data gradients of convolutions, say) are of 16 bits, is that how the program keeps
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bridge.common.number_format import short
from bridge.exchange.model import Conv2d, Model, Relu
from bridge.judge.arithmetic.own_inputs import are_known, graph_of
from bridge.judge.arithmetic.recognised import LowerPrecision, Recognised
from bridge.judge.diagnosis.faults.lowered import kept_in, lowered, operands_of
from bridge.judge.diagnosis.faults.stored_16_bit import compared
from bridge.judge.diagnosis.faults.unfolded import unfolded
from bridge.judge.diagnosis.predictions.convolutions import Forward
from bridge.judge.diagnosis.predictions.formulas import PRODUCTS, Joined
from bridge.judge.diagnosis.predictions.hypothesis import Passed
from bridge.judge.diagnosis.predictions.operations import Prediction
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.measure.error_statistics import Statistic
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.operation_names import operation
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.reduced_precision import HALF, HYPOTHESES, ReducedPrecision

Array = np.ndarray

#: Layers of whose operands a library may lower the precision
LAYERS = (Conv2d, *PRODUCTS)
#: The types, those that tensors are stored in first: TF32 and fp16 have as many digits
TYPES = sorted((one for one in HYPOTHESES["float32"].values() if one.results is None),
               key=lambda one: one.name.startswith("TF32"))
#: Elements by which a hypothesis is rejected, and how much wider the bound of rounded operands may be
LOOKED_AT, WIDER = 1024, 4.0
RESULT = ("its result",)
#: Operations that are named of many that do the same
FEW = 6


@dataclass(frozen=True)
class Rounded:
    """What is rounded in one operation: operands, and sums that are stored; and its T with that."""

    operands: tuple[str, ...]
    kept: tuple[str, ...]
    statistic: Statistic

    def words(self, kind: str) -> str:
        """Return it in words, of an operation."""
        parts = [f"takes {' and '.join(self.operands)} in {kind}"] if self.operands else []
        kept = [f"keeps {' and '.join(self.kept)} in {kind}"] if self.kept else []
        return " and ".join(parts + kept)


def recognise(pair: FilePair, comparison: Comparison) -> Recognised | None:
    """Return what is rounded, and the comparison with the failures judged so; None where a failure is left.

    Parameters
    ----------
    pair : the two files
    comparison : what `bridge.judge.measure.comparison.compare` found; it is not changed
    """
    # Beside an algorithm that is allowed nothing else is excused
    if pair.candidate.precision != "float32" or pair.algorithm is not None:
        return None
    alive: dict[str, list[tuple[Judged, Rounded]]] = {one.name: [] for one in TYPES}
    again: dict[tuple[str, int], Statistic] = {}
    graph: StepGraph | None = None
    with np.errstate(all="ignore"):
        for judged in comparison.failures:
            right = _new_weights(comparison, judged)
            new_weights = right is not None
            if right is None:
                graph = graph if graph is not None and graph.step == judged.step else graph_of(pair, judged.step)
                if graph is None or not are_known(graph, judged.name):
                    return None
                right = _right(graph, judged.name)
            if not right.t <= 1:
                if new_weights or graph is None or right.nonfinite:
                    return None
                tried = {one.name: _rounded(graph, judged.name, one) for one in TYPES if one.name in alive}
                alive = {name: [*alive[name], (judged, found)] for name, found in tried.items() if found is not None}
                if not alive:
                    return None
            again[judged.name, judged.step] = right
    name, found = next(iter(alive.items()))
    if not found:
        return None
    again.update({(judged.name, judged.step): rounded.statistic for judged, rounded in found})
    kinds = " or ".join(other for other, same in alive.items() if _places(same) == _places(found))
    places: dict[str, dict[str, None]] = {}
    for judged, rounded in found:
        places.setdefault(rounded.words(kinds), {})[operation(pair.model, judged.name)] = None
    said = "; ".join(_places_said(list(doing), words) for words, doing in places.items())
    first, rounded = found[0]
    lower = LowerPrecision(name, first.name, rounded.statistic.t, first.t, said)
    return _recognised(lower, pair, replace(comparison, judged=[_judged(one, again) for one in comparison.judged]))


def excluded(pair: FilePair, comparison: Comparison) -> Judged | None:
    """Return a product that is wrong by the candidate's own inputs, and not what operands of a lower precision give.

    Parameters
    ----------
    pair, comparison : the two files, and what was found

    Returns
    -------
    judged : the first such tensor; None where none is, or none can be computed again
    """
    with np.errstate(all="ignore"):
        return next((judged for judged in comparison.failures if _is_other(pair, judged)), None)


def _is_other(pair: FilePair, judged: Judged) -> bool:
    graph = graph_of(pair, judged.step) if judged.name.startswith(("forward/", "grads/")) else None
    if graph is None or not are_known(graph, judged.name):
        return False
    if not operands_of(graph.operation(judged.name)) or _right(graph, judged.name).t <= 1:
        return False
    return all(_rounded(graph, judged.name, one) is None for one in TYPES)


def _recognised(lower: LowerPrecision, pair: FilePair, judged: Comparison) -> Recognised:
    words = (
        f"LOWER PRECISION than declared, of some operands or results: {lower.said} ({lower.layer}: "
        f"T = {short(lower.t)}; as {judged.precision}: T = {short(lower.declared_t)}). All else "
        "is right by the candidate's own inputs."
    )
    hint = f"Keep these tensors in {judged.precision}, or declare the lower precision; then compare again."
    return Recognised(Outcome.PRECISION, words, pair, judged, (hint,), precisions=(lower,))


def _places_said(doing: list[str], words: str) -> str:
    """Which operations round something, of many the first few; the table has them all."""
    if len(doing) == 1:
        return f"{doing[0]} {words}"
    more = [f"{len(doing) - FEW} more"] * (len(doing) > FEW)
    *most, last = [*doing[:FEW], *more]
    for one, all_of in (("takes", "take"), ("keeps", "keep"), ("its result", "their results")):
        words = words.replace(one, all_of)
    return f"{', '.join(most)} and {last} {words}"


def _places(found: list[tuple[Judged, Rounded]]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(rounded.operands, rounded.kept) for _, rounded in found]


def _judged(one: Judged, again: dict[tuple[str, int], Statistic]) -> Judged:
    statistic = again.get((one.name, one.step))
    note = "by rounded operands, from the candidate's own inputs"
    return one if statistic is None else Judged(one.name, one.step, statistic, note=note)


def _new_weights(comparison: Comparison, one: Judged) -> Statistic | None:
    """New weights, by the candidate's own gradients, and masks, which are drawn; None of what operations compute."""
    sort, _, parameter = one.name.partition("/")
    if sort not in ("weights", "masks", "optimizer", "update", "memory"):
        return None
    own = (f"optimizer/{parameter}", one.step)
    return next((other.statistic for other in comparison.judged
                 if sort == "update" and (other.name, other.step) == own), one.statistic)


def _right(graph: StepGraph, name: str) -> Statistic:
    """The candidate against the right operation on its own inputs."""
    # Of large images no more than one operation's tensors at a time
    graph.known.clear()
    return compared(graph.found(name), graph.operation(name).full(graph.arithmetic))


def _rounded(graph: StepGraph, name: str, one: ReducedPrecision) -> Rounded | None:
    """What of an operation that fails is rounded to a type; the result alone comes first."""
    right, found = graph.operation(name), graph.found(name)
    names, stored = operands_of(right), [half for half in HALF.values() if half.type == one.name]
    kept_alone = [compared(found, _kept(right, half, found).full(graph.arithmetic)) for half in stored]
    if any(one.t <= 1 for one in kept_alone):
        if all(_all_kept(graph, name, half) for half in stored[:1]):
            return Rounded((), RESULT, min(kept_alone, key=lambda one: one.t))
        # It may have been damaged when it was stored: its operands alone are asked
        stored = []
    limit = right.full(graph.arithmetic).error
    if not names or limit is None:
        return None
    # A result that is stored in the type is made of its numbers, but for what is added to it
    kept_so = isinstance(right, Forward | Joined) or np.array_equal(one.widened(found), found)
    for storage in (None, *(stored if kept_so else ())):
        ways = []
        for which in ((0,), (1,), (0, 1))[: 2 * len(names) - 1]:
            changed, operands = lowered(right, which, one.widened), tuple(names[i] for i in which)
            kept = changed if storage is None else _kept(changed, storage, found)
            if _near(kept, found, np.broadcast_to(limit, right.shape)):
                statistic = compared(found, kept.full(graph.arithmetic))
                ways += [Rounded(operands, RESULT if storage else (), statistic)] if statistic.t <= 1 else []
        if ways:
            return min(ways, key=lambda way: way.statistic.t)
    return _unfolded(graph, lowered(right, (0, 1), one.widened), found, stored[0]) if stored and kept_so else None


def _unfolded(graph: StepGraph, changed: Prediction, found: Array, half: ReducedPrecision) -> Rounded | None:
    """What of a convolution's pass has partial sums that are stored, too."""
    for words, stepwise in unfolded(changed, half):
        statistic = compared(found, stepwise.full(graph.arithmetic))
        if statistic.t <= 1:
            return Rounded(operands_of(changed), (*RESULT, words), statistic)
    return None


def _kept(operation: Prediction, half: ReducedPrecision, found: Array) -> Prediction:
    """An operation with its result stored; a sum of several, too, where what was found is made of such numbers."""
    kept = kept_in(operation, half)
    if isinstance(kept, Joined) and np.array_equal(half.widened(found), found):
        return Passed(kept.shape, kept, half.widened, half.relative, half.absolute)
    return kept


def _near(changed: Prediction, found: Array, limit: Array) -> bool:
    """Whether some elements are what the changed operation gives: it costs less than all of them."""
    at = np.unique(np.linspace(0, found.size - 1, min(found.size, LOOKED_AT)).astype(np.int64))
    value = changed.at(at)
    error = np.abs(found.reshape(-1)[at] - value)
    return bool((error <= WIDER * limit.reshape(-1)[at] + changed.slack(value)).all())


def _all_kept(graph: StepGraph, name: str, half: ReducedPrecision) -> bool:
    """Whether all results of this sort in the step hold numbers of the type, and are not lost: this one, and all sums
    of products, since other operations may keep float32 beside them. If several operations of its kind are among them,
    it is these: a program may have convolutions of 16 bits beside linear layers of float32. A ReLU copies what it is
    given.

    One alone proves nothing.
    """
    model, sort, kinds = graph.model, _sort(name), _kinds(graph.model, name)
    alike = [one for one in graph.pair.shapes if sort is not None and _sort(one) == sort and graph.given(one)]
    names = [one for one in alike if one == name or _kinds(model, one) & kinds]
    if len(names) == 1 and sort == "bias":
        # The only one: with the gradients of weights, by the same way
        names += [one for one in graph.pair.shapes if _sort(one) == "weight" and _kinds(model, one) & kinds]
    if len(names) == 1:
        names = [one for one in alike if one == name or is_product(model, one)]
    if sort == "images" and model.graph.consists_of(Conv2d, Relu):
        names = alike
    kept = [graph.own(one) for one in names]
    return len(kept) > 1 and all(
        one is not None and one.any() and np.array_equal(half.widened(one), one) for one in kept)


def _sort(name: str) -> str | None:
    """Results of the forward pass, gradients of weights, of biases, or of images; None of all else."""
    sort, _, rest = name.partition("/")
    if sort == "forward":
        return "forward"
    if sort != "grads":
        return None
    return rest.rpartition("/")[2] if rest.endswith(("/weight", "/bias")) else "images"


def is_product(model: Model, name: str) -> bool:
    """Return whether a tensor is a sum of products of what a layer takes, of its weights, or of a gradient; or a bias
    gradient.
    """
    return bool(_kinds(model, name))


def _kinds(model: Model, name: str) -> set[str]:
    """The operations that sum products to a tensor, by their kinds."""
    sort, _, rest = name.partition("/")
    layer, _, what = rest.partition("/")
    if sort not in ("forward", "grads"):
        return set()
    makes = sort == "forward" or what in ("weight", "bias")
    return {node.kind for node in model.graph.nodes
            if isinstance(node, LAYERS) and (node.name == layer if makes else layer in node.inputs)}
