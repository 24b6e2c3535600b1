# SPDX-License-Identifier: MIT
"""What the operations of a training step of ours take, each pass by itself, one after the other."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from benchmarks.frameworks import bridge_cpu
from benchmarks.frameworks.cpu import OURS
from benchmarks.harness.workloads import OperationPass, Training
from bridge.exchange.file import ExchangeFile
from bridge.operations import BatchNorm2d
from bridge.operations.graph import INPUT, Graph
from bridge.operations.hyperparameters import fields
from bridge.operations.operation import Operation, Shape

#: Runs of a pass, after one that is not counted
RUNS = 5


def profile(training: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Seconds of the forward and the backward passes of each kind of operation, and of adding up the gradients of what
    several take.
    """
    found = Training.of_dict(training)
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: {"forward": 0.0, "backward": 0.0})
    for work in passes(graph_of(found), found.input, found.dtype):
        backward = work.backward or work.kind == "accumulate"
        seconds[work.kind]["backward" if backward else "forward"] += _median(bridge_cpu.operation(OURS, work))
    return seconds


def graph_of(training: Training) -> Graph:
    """Of the training's file."""
    with ExchangeFile(training.path) as file:
        if file.model is None:
            raise ValueError(f"{training.path} has no model")
        return file.model.graph


def passes(graph: Graph, shape: Shape, dtype: str) -> Iterator[OperationPass]:
    """All of a step, for an input of this shape, without the loss and the update.

    Examples
    --------
    >>> from bridge.operations import Add, Relu
    >>> graph = Graph([Relu("a"), Relu("b"), Add("c", inputs=("a", "b"))])
    >>> [one.kind for one in passes(graph, (1, 2, 3, 3), "float32")]
    ['relu', 'relu', 'relu', 'relu', 'add', 'add', 'accumulate']
    """
    shapes = graph.shapes(shape)
    for node in map(_stateless, graph.nodes):
        options = {one.name: getattr(node, one.name) for one in fields(node)}
        for backward in (False, True):
            yield OperationPass(node.kind, backward, tuple(shapes[name] for name in node.inputs), shapes[node.name],
                                tuple(node.parameter_shapes().values()), options, dtype=dtype)
    taken = Counter(name for node in graph.nodes for name in node.inputs if name != INPUT)
    for name, times in taken.items():
        for _ in range(times - 1):
            yield OperationPass("accumulate", False, (shapes[name],) * 2, shapes[name], dtype=dtype)


def _stateless(node: Operation) -> Operation:
    """Without running statistics, which single passes do not have."""
    return replace(node, track_running_stats=False) if isinstance(node, BatchNorm2d) else node


def _median(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(RUNS + 1):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])
