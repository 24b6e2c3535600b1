# SPDX-License-Identifier: MIT
"""Faults of operations whose result the file does not hold: they show only in what follows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from bridge.diagnosis.candidates import Case, base_of, operation_faults
from bridge.diagnosis.chain import INPUT, TARGET, Chain
from bridge.diagnosis.hypothesis import Hypothesis
from bridge.diagnosis.operations import Bounded
from bridge.diagnosis.output_faults import read_wrongly
from bridge.diagnosis.records import Explanation
from bridge.diagnosis.search import REJECTED, Search, Tried
from bridge.operation import operation

#: Hypotheses about each hidden operation: each costs all operations up to the tensor that shows it
MOST = 80


def hidden_operations(chain: Chain, name: str) -> list[str]:
    """Tensors that a tensor follows from and the file lacks, the nearest first."""
    found, waiting = [], list(chain.inputs(name))
    while waiting:
        one = waiting.pop(0)
        if one not in (INPUT, TARGET) and not chain.given(one) and one not in found:
            found.append(one)
            waiting += chain.inputs(one)
    return found


def search_hidden(search: Search) -> list[Explanation]:
    """Plant the faults of every hidden operation, and see which explains the tensor.

    Of new weights whose gradient is not in the file, that gradient is the nearest hidden tensor.
    """
    case, accepted = search.case, []
    for name in _hidden(case):
        right = case.chain.operation(name)
        hidden = Case(name, case.chain, right, right.values(), case.before)
        for one in _likely(hidden):
            if time.monotonic() > search.deadline:
                return accepted
            explanation = _explained(search, name, one)
            if explanation is not None:
                accepted.append(explanation)
    return accepted


def _explained(search: Search, name: str, one: Hypothesis) -> Explanation | None:
    """By its values first; only what comes near is computed with its bounds."""
    search.count += 1
    near = search.near(_predicted(search.case, name, one, bounded=False).value.reshape(-1)[search.sample])
    detail = f"in {operation(search.case.chain.model, name)}: {one.detail}"
    search.tried.append(Tried(Hypothesis(one.kinds, detail, one.operation), near, np.zeros(0)))
    if not near <= REJECTED:
        return None
    t = search.t_of(_predicted(search.case, name, one, bounded=True))
    return Explanation(one.kinds, detail, t) if t <= search.limit else None


def _hidden(case: Case) -> list[str]:
    if case.updating is None:
        return hidden_operations(case.chain, case.name)
    gradient = f"grads/{case.updating.name}"
    if case.chain.given(gradient):
        return []
    return [gradient, *hidden_operations(case.chain, gradient)]


def _likely(case: Case) -> Iterator[Hypothesis]:
    """Simple faults of one operation, and of how its result is read."""
    base = base_of(case.right)
    every = [*operation_faults(case), *read_wrongly(base, case.name)]
    yield from [one for one in every if len(one.kinds) == 1 and (one.layout is None or one.layout.common)][:MOST]


def _predicted(case: Case, name: str, one: Hypothesis, bounded: bool) -> Bounded:
    """The tensor of the case, where one operation before it is planted with a fault."""
    chain = case.chain.planting(name, one.operation, bounded)
    if case.updating is None:
        last = chain.operation(case.name)
        return last.full(chain.arithmetic) if bounded else Bounded(last.values())
    g = chain.value(f"grads/{case.updating.name}")
    error = np.zeros_like(g.value) if g.error is None else g.error
    new = case.updating.by(case.updating.sgd, last=(g.value, error))
    return new.full(chain.arithmetic)
