# SPDX-License-Identifier: MIT
"""Faults of operations whose result the file does not hold: they show only in what follows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from bridge.judge.diagnosis.candidates import Case, base_of, operation_faults
from bridge.judge.diagnosis.faults.output_faults import read_wrongly
from bridge.judge.diagnosis.predictions.hypothesis import Hypothesis
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.step_graph import INPUT, TARGET, StepGraph
from bridge.judge.diagnosis.records import Explanation
from bridge.judge.diagnosis.search import REJECTED, Search
from bridge.judge.measure.operation_names import operation

#: Hypotheses about each unobserved operation: each costs all operations up to the tensor that shows it
MOST = 96


def unobserved_operations(graph: StepGraph, name: str) -> list[str]:
    """Return the tensors that a tensor follows from and the file lacks, the nearest first."""
    found, waiting = [], list(graph.inputs(name))
    while waiting:
        one = waiting.pop(0)
        if one not in (INPUT, TARGET) and not graph.given(one) and one not in found:
            found.append(one)
            waiting += graph.inputs(one)
    return found


def search_unobserved(search: Search) -> list[Explanation]:
    """Plant the faults of every unobserved operation, and see which explains the tensor; then one in all of a kind.

    Of new weights whose gradient is not in the file, that gradient is the nearest unobserved tensor.
    """
    case = search.case
    unobserved = _unobserved(case)
    accepted: list[Explanation] = []
    for name in unobserved:
        where = operation(case.graph.model, name)
        for one in _likely(_case(case, case.graph, name)):
            if search.late:
                return accepted
            accepted += _explained(search, one, where, partial(case.graph.planting, name, one.operation))
    return accepted or list(_everywhere(search, [*unobserved, case.name]))


def _everywhere(search: Search, names: list[str]) -> Iterator[Explanation]:
    """The same fault in all operations of a kind that the tensor follows from."""
    case, order = search.case, list(search.case.graph.pair.shapes)
    kinds: dict[type, list[str]] = {}
    for name in sorted((name for name in names if name in order), key=order.index):
        kinds.setdefault(type(case.graph.operation(name)), []).append(name)
    for alike in kinds.values():
        faults = _likely(_case(case, case.graph, alike[0])) if len(alike) > 1 else []
        for one in faults:
            if search.late:
                return
            planted = partial(_plant_all, case, alike, one.detail)
            yield from _explained(search, one, f"every one of {', '.join(alike)}", planted)


def _plant_all(case: Case, names: list[str], detail: str, bounded: bool) -> StepGraph | None:
    """A step with one fault in several operations, in the order of computation; None where one knows no such fault."""
    graph = case.graph
    for name in names:
        fault = next((one for one in _likely(_case(case, graph, name)) if one.detail == detail), None)
        if fault is None:
            return None
        graph = graph.planting(name, fault.operation, bounded)
    return graph


def _case(case: Case, graph: StepGraph, name: str) -> Case:
    """An unobserved tensor, in a graph that may be planted with faults before it."""
    right = graph.operation(name)
    return Case(name, graph, right, right.values(), case.before)


def _explained(
    search: Search, one: Hypothesis, where: str, planted: Callable[[bool], StepGraph | None]
) -> list[Explanation]:
    """By its values first; only what comes near is computed with its bounds.

    Parameters
    ----------
    planted : the step with the fault in it, with or without bounds
    """
    search.count += 1
    graph, detail = planted(False), f"in {where}: {one.detail}"
    if graph is None:
        return []
    predicted = _predicted(search.case, graph).value.reshape(-1)[search.sample]
    near = search.near(predicted)
    graph = planted(True) if near <= REJECTED else None
    whole = None if graph is None else _predicted(search.case, graph)
    t = near if whole is None else search.explained(whole)
    found = Explanation(one.kinds, detail, t, rest=search.rest(predicted))
    if whole is not None and t <= search.limit and search.says_enough(whole, t, fitted=one.fitted):
        return [found]
    search.elsewhere.append(found)
    return []


def _unobserved(case: Case) -> list[str]:
    if case.updating is None:
        return unobserved_operations(case.graph, case.name)
    gradient = f"grads/{case.updating.name}"
    if case.graph.given(gradient):
        return []
    return [gradient, *unobserved_operations(case.graph, gradient)]


def _likely(case: Case) -> Iterator[Hypothesis]:
    """Simple faults of one operation, and of how its result is read."""
    base = base_of(case.right)
    every = itertools.chain(operation_faults(case), read_wrongly(base, case.name))
    simple = (one for one in every if len(one.kinds) == 1 and (one.layout is None or one.layout.common))
    yield from itertools.islice(simple, MOST)


def _predicted(case: Case, graph: StepGraph) -> Predicted:
    """The tensor of the case in a step that is planted with faults."""
    if case.updating is None:
        last = graph.planted.get(case.name) or graph.operation(case.name)
        return last.full(graph.arithmetic) if graph.bounded else Predicted(last.values())
    g = graph.value(f"grads/{case.updating.name}")
    error = np.zeros_like(g.value) if g.error is None else g.error
    new = case.updating.by(case.updating.settings, last=(g.value, error))
    return new.full(graph.arithmetic)
