# SPDX-License-Identifier: MIT
"""The candidate's own inputs of an operation: what it is computed again from."""

from __future__ import annotations

import numpy as np

from bridge.exchange.model import Conv2d
from bridge.judge.diagnosis.predictions.formulas import Joined
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.step_graph import INPUT, TARGET, StepGraph
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.oracle.choices import JOINING


def graph_of(pair: FilePair, step: int) -> StepGraph | None:
    """Return a step with the candidate's own weights; None where they are not in the file, or not finite."""
    weights = pair.start if step == 0 else pair.parameters(pair.candidate, step)
    if weights is None or not all(np.isfinite(w).all() for w in weights.values()):
        return None
    return StepGraph(pair, step, {name: w.astype(np.float64) for name, w in weights.items()})


def are_known(graph: StepGraph, name: str) -> bool:
    """Return whether all inputs of an operation are known to the bit, and finite.

    They are in the file, or follow from what is without a rounding, as what a ReLU hands on does.
    """
    return all(_is_known(graph, other) for other in graph.inputs(name))


def sent_by_others(pair: FilePair, step: int, name: str, layer: Conv2d) -> Predicted | float | None:
    """Return what all readers of a tensor but one send back to it, with its bound and that of adding them.

    Parameters
    ----------
    name : of the gradient of what `layer` takes

    Returns
    -------
    others : 0 where there are none; None where they are not known: their inputs are not in the file, or one of them is
        a convolution, which may be computed by other arithmetic than sums of products, too
    """
    readers = [node for node in pair.model.graph.nodes for source in node.inputs if source == layer.inputs[0]]
    if len(readers) == 1:
        return 0.0
    graph = graph_of(pair, step)
    if sum(isinstance(node, Conv2d) for node in readers) > 1 or graph is None or not are_known(graph, name):
        return None
    right = graph.operation(name)
    assert isinstance(right, Joined)
    found = [part.full(pair.arithmetic) for part, through in zip(right.parts, right.through, strict=True)
             if through != layer.name]
    size = np.abs(graph.found(name)) + sum(np.abs(one.value) for one in found)
    errors = sum(np.zeros(1) if one.error is None else one.error for one in found)
    return Predicted(np.asarray(sum(one.value for one in found)), JOINING * pair.u * size + errors)


def _is_known(graph: StepGraph, name: str) -> bool:
    if name in (INPUT, TARGET):
        return True
    return graph.own(name) is not None if graph.given(name) else graph.value(name).error is None
