# SPDX-License-Identifier: MIT
"""The candidate's own inputs of an operation: what it is computed again from."""

from __future__ import annotations

import numpy as np

from bridge.judge.diagnosis.step_graph import INPUT, TARGET, StepGraph
from bridge.judge.measure.file_pair import FilePair


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


def _is_known(graph: StepGraph, name: str) -> bool:
    if name in (INPUT, TARGET):
        return True
    return graph.own(name) is not None if graph.given(name) else graph.value(name).error is None
