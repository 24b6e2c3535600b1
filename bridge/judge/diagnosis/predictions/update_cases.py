# SPDX-License-Identifier: MIT
"""The case of new weights: what the optimiser made of known gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.predictions.updating import Updating
from bridge.judge.measure.file_pair import FilePair

Array = np.ndarray


def new_weights_case(
    pair: FilePair, graph: StepGraph, step: int, parameter: str, own: bool, graphs: Callable[[int], StepGraph | None]
) -> Case | None:
    """Return the weights after a step as a case; None where what they follow from is not known.

    Parameters
    ----------
    own : from the candidate's own gradients, else from the oracle's
    graphs : gives the graph of a step
    """
    shape = pair.start[parameter].shape
    first = 0 if pair.optimizer.remembers or step == 0 else step - 1
    weights: list[Array] = []
    gradients: list[Array] = []
    errors: list[Array] = []
    steps: list[int] = []
    for k in range(first, step + 1):
        before = pair.start if k == 0 else pair.parameters(pair.candidate, k)
        gradient = _gradient(pair, k, parameter, own, graphs)
        if before is None or gradient is None:
            weights, gradients, errors, steps = [], [], [], []
            if pair.optimizer.remembers:
                return None
            continue
        weights.append(before[parameter].astype(np.float64))
        gradients.append(gradient[0])
        errors.append(gradient[1])
        steps.append(k)
    if not gradients:
        return None
    others = {}
    for other, w in pair.start.items():
        if other != parameter and w.shape == shape and pair.candidate.has(f"steps/{step}/grads/{other}"):
            others[other] = pair.candidate.read(f"steps/{step}/grads/{other}", shape).astype(np.float64)
    after = pair.candidate.read(f"steps/{step + 1}/weights/{parameter}", shape).astype(np.float64)
    trained = pair.optimizer_at(step) if parameter in pair.frozen else None
    around = {"the step before": step - 1, "the step after": step + 1} | ({"step 0": 0} if step > 1 else {})
    rates = {said: pair.optimizer_at(k).lr for said, k in around.items() if 0 <= k < pair.steps}
    settings = pair.optimizer_of(parameter, step)
    updating = Updating(settings, parameter, weights, gradients, errors, others, after, pair.arithmetic, trained, rates,
                        tuple(pair.optimizer_at(k).lr for k in steps), _norms(pair, steps), pair.batch_shape[0],
                        len(pair.start) - len(pair.frozen), _before(pair, [*others], steps[:-1]),
                        _weights(pair, [*others], step), pair.remembered.get(parameter),
                        pair.rate_error_at(step))
    right = updating.right()
    return Case(f"optimizer/{parameter}", graph, right, after, updating=updating)


def _weights(pair: FilePair, names: list[str], step: int) -> dict[str, Array]:
    """Weights of other parameters before this step; empty where the file lacks them."""
    known = pair.start if step == 0 else pair.parameters(pair.candidate, step)
    return {} if known is None else {name: known[name].astype(np.float64) for name in names}


def _before(pair: FilePair, others: list[str], steps: list[int]) -> dict[str, list[tuple[Array, Array]]]:
    """Weights and gradients of other parameters at the steps before; without those that the file lacks."""
    found = {}
    for name in others:
        shape = pair.start[name].shape
        known = [pair.start if k == 0 else pair.parameters(pair.candidate, k) for k in steps]
        paths = [f"steps/{k}/grads/{name}" for k in steps]
        if steps and all(one is not None for one in known) and all(pair.candidate.has(path) for path in paths):
            found[name] = [(one[name].astype(np.float64), pair.candidate.read(path, shape).astype(np.float64))
                           for one, path in zip(known, paths, strict=True) if one is not None]
    return found


def _norms(pair: FilePair, steps: list[int]) -> tuple[float, ...]:
    """Euclidean norms of all gradients of each step together, as the candidate has them; empty where it lacks one."""
    found = []
    for k in steps:
        names = [name for name in pair.start if name not in pair.frozen]
        if not all(pair.candidate.has(pair.applied(k, name)) for name in names):
            return ()
        every = [pair.candidate.read(pair.applied(k, name), pair.start[name].shape) for name in names]
        found.append(math.hypot(*(float(np.linalg.norm(g.astype(np.float64))) for g in every)))
    return tuple(found)


def _gradient(
    pair: FilePair, k: int, parameter: str, own: bool, graphs: Callable[[int], StepGraph | None]
) -> tuple[Array, Array] | None:
    """A gradient and its bound: the candidate's own is exact."""
    name = f"grads/{parameter}"
    if own:
        shape = pair.start[parameter].shape
        if not pair.candidate.has(pair.applied(k, parameter)):
            return None
        g = pair.candidate.read(pair.applied(k, parameter), shape).astype(np.float64)
        return (g, np.zeros_like(g)) if np.isfinite(g).all() else None
    graph = graphs(k)
    if graph is None:
        return None
    found = graph.operation(name).full(graph.arithmetic)
    error = np.zeros_like(found.value) if found.error is None else found.error
    return found.value, error
