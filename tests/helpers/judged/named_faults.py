# SPDX-License-Identifier: MIT
"""What the judge recomputes to name a mistake: hypotheses about the tensors of one operation, or of a loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bridge import Conv2d, Model, Network
from bridge.judge.diagnosis.altered.formulas import formulas_of
from bridge.judge.diagnosis.candidates import Case, operation_faults
from bridge.judge.diagnosis.predictions.hypothesis import Hypothesis
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.measure.file_pair import open_pair
from bridge.operations.pointwise import Sigmoid
from bridge.validate.self_test.graph_candidate import train_graph
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.judged.operation_networks import network

#: What any operation may do: operands of other layers and steps, a part of the batch, fewer bits
OF_ALL = {"other_layer", "previous_step", "part_of_batch", "precision"}


@contextmanager
def right_step(model: Model, folder: Path) -> Iterator[StepGraph]:
    """A step that is right, by a fixture of the network, whose weights are drawn."""
    net, rng = Network(model), np.random.default_rng(0)
    for weights in net.parameters.values():
        weights[...] = rng.uniform(-0.5, 0.5, weights.shape)
    module = net.to_torch()
    fixture = export(folder / "fixture.h5", ExportSettings(
        model=lambda: module, loss=model.loss, height=16, width=16, batch=2, steps=1, threads=1)).path
    with open_pair(fixture, train_graph(fixture, folder / "result.h5")) as pair:
        yield StepGraph(pair, 0, {name: w.astype(np.float64) for name, w in pair.start.items()})


def of_operation(kind: str, folder: Path) -> dict[str, list[Hypothesis]]:
    """Those of its output, and of its gradients, that are its own, by the names of the tensors; not of gradients that
    other operations have a part in.
    """
    with right_step(Model(network(kind, 1, of_fixture=True).nodes), folder) as graph:
        (it,) = [node for node in graph.model.graph.nodes if node.kind == kind and node.name not in ("first", "other")]
        taken = [name for node in graph.model.graph.nodes for name in node.inputs]
        names = [f"forward/{it.name}", *(f"grads/{it.name}/{one}" for one in it.parameter_shapes()),
                 *(f"grads/{name}/output" for name in it.inputs if taken.count(name) == 1)]
        return _of_tensors(graph, names)


def of_loss(text: str, folder: Path) -> dict[str, list[Hypothesis]]:
    """Those of the loss and of its gradient."""
    layers = (Conv2d("first", 1, 4, (3, 3)), Sigmoid("share"))
    with right_step(Model(layers, loss=text), folder) as graph:
        last = graph.model.graph.nodes[-1].name
        return _of_tensors(graph, ["loss", f"grads/{last}/output"])


def _of_tensors(graph: StepGraph, names: list[str]) -> dict[str, list[Hypothesis]]:
    found = {}
    for name in names:
        case = Case(name, graph, graph.operation(name), graph.found(name))
        own = {formula.family for formula in formulas_of(case.right, None)}
        every = list(operation_faults(case))
        # Every operand of any operation may be another one: of those that only move numbers there is nothing else
        found[name] = [one for one in every if (
            one.kinds[0].key in own if one.altered else one.kinds[0].key not in OF_ALL)] or [
                one for one in every if one.altered]
    return found
