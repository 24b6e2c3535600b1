# SPDX-License-Identifier: MIT
"""Recurrent layers whose state is not 0 at the beginning: what the batch before has left goes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.judge.diagnosis.predictions.formulas import Formula
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, hypothesis
from bridge.judge.diagnosis.predictions.step_graph import INPUT, StepGraph
from bridge.judge.diagnosis.wrong_operations.change import changed
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.from_own import paths_of_itself
from bridge.operations.operation import Operation

Array = np.ndarray
#: Output and state before the first time; None: 0
Beginning = tuple[Bounded | None, Bounded | None]


def carried_state(right: Formula, before: StepGraph | None) -> Hypotheses:
    """Yield a recurrent layer that begins with the last output and the last state of the batch before.

    Parameters
    ----------
    before : the step before; None at the first one
    """
    found = _last(right, before) if before is not None and right.node.follows_itself else None
    if found is None:
        return
    output, state = found
    both = "output and state" if state is not None else "output"
    yield hypothesis("state", f"at the beginning stands the last {both} of the batch before, not 0", right.replaced(
        node=_begun(right.node, found)))
    if state is not None:
        for one, word in (((output, None), "output"), ((None, state), "state")):
            yield hypothesis("state", f"at the beginning stands the last {word} of the batch before, not 0",
                             right.replaced(node=_begun(right.node, one)))


def _begun(node: Operation, beginning: Beginning) -> Operation:
    """The layer with other numbers before the first time."""
    def of(z: Bounded) -> Beginning:
        output, state = (None if one is None else Bounded(one.value, one.error if z.arithmetic.bounds else 0.0,
                                                          z.arithmetic) for one in beginning)
        return output, state

    return changed(node, _beginning=of)


def _last(right: Formula, before: StepGraph) -> Beginning | None:
    """What all steps up to that before leave, each beginning with what the one before it has left; None where one
    has other images than the next, or is not known.
    """
    found: Beginning = (None, None)
    pair, images = before.pair, len(right.inputs[0].value)
    for step in range(before.step + 1):
        weights = before.weights if step == before.step else pair.parameters(pair.candidate, step)
        graph = StepGraph(pair, step, {name: w.astype(np.float64) for name, w in (weights or {}).items()})
        own = graph.own(paths_of_itself(graph.model.graph, right.node)["output"]) if weights else None
        if own is None or len(own) != images:
            return None
        found = _after(graph, _begun(right.node, found), own)
    return found


def _after(graph: StepGraph, node: Any, own: Array) -> Beginning:
    """The last output and state of a step whose outputs are known."""
    (name,) = node.inputs
    z = graph.value(name if name == INPUT else f"forward/{name}")
    given = Bounded(z.value, 0.0 if z.error is None else z.error, graph.arithmetic)
    weights = {what: Bounded(graph.weights[f"{node.name}/{what}"], 0.0, graph.arithmetic)
               for what in node.parameter_shapes()}
    z_, y = (node._ordered(one) for one in (given, Bounded(own, 0.0, graph.arithmetic)))
    state = node._known(z_, node._before(y), weights, node._beginning(z_)[1]).get("state")
    return y[:, -1:], None if state is None else state[:, -1:]
