# SPDX-License-Identifier: MIT
"""Weights that a program computes with and does not write, and gradients that it writes and does not use."""

from __future__ import annotations

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.predictions.cases import Cases
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.predictions.update_cases import new_weights_case
from bridge.judge.diagnosis.search import Search


def are_updated(cases: Cases, step: int, parameter: str) -> bool:
    """Return whether the forward pass of the next step is what the weights give that the file lacks."""
    layer = parameter.rpartition("/")[0]
    name, new = f"forward/{layer}", {}
    for other in cases.pair.start:
        if other.rpartition("/")[0] == layer:
            graph = cases.graph(step)
            case = None if graph is None else new_weights_case(cases.pair, graph, step, other, True, cases.graph)
            if case is None:
                return False
            new[other] = case.right.full(case.graph.arithmetic).value
    case = cases.case(name, step + 1) if step + 1 < cases.pair.steps else None
    if case is None or not case.graph.given(name) or Search(case, cases.deadline).t <= 1:
        return False
    graph = StepGraph(cases.pair, step + 1, case.graph.weights | new)
    return Search(Case(name, graph, graph.operation(name), case.found), cases.deadline).t <= 1


def moved_by_right_gradient(cases: Cases, step: int, parameter: str) -> bool:
    """Return whether the weights moved by the gradient that follows from the candidate's own tensors, or from none."""
    graph = cases.graph(step)
    if graph is None:
        return False

    def recomputed(step: int) -> StepGraph | None:
        graph = cases.graph(step)
        return None if graph is None else cases.recompute(graph)

    own = new_weights_case(cases.pair, graph, step, parameter, True, cases.graph)
    otherwise = None if own is None else own.right.full(graph.arithmetic).value
    for graphs in (cases.graph, recomputed) if cases.recomputed else (cases.graph,):
        case = new_weights_case(cases.pair, graph, step, parameter, False, graphs)
        if case is not None and otherwise is not None and Search(case, cases.deadline).follows(otherwise):
            return True
    return False
