# SPDX-License-Identifier: MIT
"""Faults of operations whose result the file does not hold: they show only in what follows."""

from __future__ import annotations

import time

from bridge.diagnosis.candidates import Case, operation_faults
from bridge.diagnosis.chain import INPUT, TARGET, Chain
from bridge.diagnosis.hypothesis import Hypothesis
from bridge.diagnosis.records import Explanation
from bridge.diagnosis.search import Search
from bridge.operation import operation

#: Hypotheses about each hidden operation: each costs all operations up to the tensor that shows it
MOST = 60


def hidden_operations(chain: Chain, name: str) -> list[str]:
    """Tensors that a tensor follows from and the file lacks, the nearest first."""
    found, waiting = [], list(chain.inputs(name))
    while waiting:
        one = waiting.pop(0)
        if one not in (INPUT, TARGET) and not chain.given(one) and one not in found:
            found.append(one)
            waiting += chain.inputs(one)
    return found


def search_hidden(search: Search, runner_up: Explanation | None) -> tuple[list[Explanation], Explanation | None]:
    """Plant the faults of every hidden operation, and see which explains the tensor."""
    case, accepted = search.case, []
    for name in hidden_operations(case.chain, case.name):
        right = case.chain.operation(name)
        hidden = Case(name, case.chain, right, right.full(search.arithmetic).value, case.before)
        for one in _likely(hidden):
            if time.monotonic() > search.deadline:
                return accepted, runner_up
            search.count += 1
            explanation = _planted(search, name, one)
            if explanation.t <= 1:
                accepted.append(explanation)
            elif runner_up is None or explanation.t < runner_up.t:
                runner_up = explanation
    return accepted, runner_up


def _likely(case: Case) -> list[Hypothesis]:
    """Simple faults of one operation."""
    return [one for one in operation_faults(case) if len(one.kinds) == 1][:MOST]


def _planted(search: Search, name: str, one: Hypothesis) -> Explanation:
    chain = search.case.chain.planting(name, one.operation)
    predicted = chain.operation(search.case.name)
    what = operation(chain.model, name)
    explanation = Explanation(one.kinds, f"in {what}: {one.detail}", search._t(predicted.full(search.arithmetic)))
    return explanation
