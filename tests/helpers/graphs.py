# SPDX-License-Identifier: MIT
"""Graphs of operations at random, computed by PyTorch, and judged by the oracle of graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from bridge.common.errors import FileError
from bridge.judge.measure.error_statistics import measure
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.judge.oracle.graph_step import GraphStep
from bridge.operations import (
    OPERATIONS,
    AdaptiveAvgPool2d,
    Add,
    Amax,
    Amin,
    AvgPool2d,
    BatchNorm2d,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Dropout,
    Dropout2d,
    Flatten,
    GlobalAvgPool2d,
    GroupNorm,
    LayerNorm,
    Linear,
    LogSoftmax,
    Matmul,
    Max,
    MaxPool2d,
    Mean,
    Min,
    Multiply,
    Operation,
    Prelu,
    ReflectionPad2d,
    Relu,
    ReplicationPad2d,
    Reshape,
    Sigmoid,
    Softmax,
    Spline,
    Subtract,
    Sum,
    Transpose,
    UpsampleBilinear2d,
    UpsampleNearest2d,
    ZeroPad2d,
)
from bridge.operations.graph import INPUT, Graph
from bridge.operations.losses import MeanSquaredError
from bridge.operations.pointwise import Pointwise
from reference.network.pointwise import ELEMENTARY

Array = np.ndarray
Tensors = dict[str, Array]


@dataclass
class Case:
    """A graph with its data."""

    graph: Graph
    loss: MeanSquaredError
    parameters: Tensors
    x: Array
    target: Array
    precision: str = "float32"


def make_case(graph: Graph, shape: tuple[int, ...], rng: np.random.Generator, precision: str = "float32", *,
              mean: bool = True) -> Case:
    """Weights as torch draws them, images of size 1."""
    parameters = {}
    for name, extent in graph.parameter_shapes().items():
        bound = 1 / np.sqrt(max(1, int(np.prod(extent[1:]))))
        parameters[name] = rng.uniform(-bound, bound, extent).astype(precision)
    for name, extent in graph.state_shapes().items():
        parameters[name] = rng.uniform(0.5, 1.5, extent).astype(precision)
    shapes = graph.shapes(shape)
    kept = {node.name: node.mask_shape(shapes[node.name]) for node in graph.nodes}
    for name in graph.masked():
        parameters[f"{name}/mask"] = (rng.random(kept[name]) > 0.4).astype(precision)
    x = rng.standard_normal(shape).astype(precision)
    output = shapes[graph.nodes[-1].name]
    return Case(graph, MeanSquaredError(mean), parameters, x, rng.standard_normal(output).astype(precision), precision)


def torch_step(case: Case) -> Tensors:
    """Every tensor of a step by PyTorch's autograd; gradients that do not exist are 0."""
    dtype = getattr(torch, case.precision)
    state, trained = case.graph.state_shapes(), case.graph.parameter_shapes()
    learned = {name: torch.tensor(array, dtype=dtype, requires_grad=name in trained)
               for name, array in case.parameters.items()}
    known = {INPUT: torch.tensor(case.x, dtype=dtype, requires_grad=True)}
    for node in case.graph.nodes:
        own = {name.removeprefix(f"{node.name}/"): tensor for name, tensor in learned.items()
               if name.startswith(f"{node.name}/")}
        known[node.name] = node.torch_forward([known[name] for name in node.inputs], own)
        known[node.name].retain_grad()
    loss = case.loss.torch_forward(known[case.graph.nodes[-1].name], torch.tensor(case.target, dtype=dtype))
    loss.backward()
    found = {f"forward/{node.name}": known[node.name] for node in case.graph.nodes} | {"loss": loss}
    found |= {f"grads/{node.name}/output": known[node.name].grad for node in case.graph.nodes}
    new_state = {f"{node.name}/{name}" for node in case.graph.nodes for name in node.new_state_shapes()}
    found |= {f"state/{name}": learned.pop(name) for name in state if name in new_state}
    learned = {name: tensor for name, tensor in learned.items() if name in trained}
    found |= {f"grads/{name}": tensor.grad for name, tensor in learned.items()} | {"grads/input": known[INPUT].grad}
    shapes = {f"grads/{name}": tensor.shape for name, tensor in learned.items()}
    shapes |= {f"grads/{name}/output": tensor.shape for name, tensor in known.items()} | {"grads/input": case.x.shape}
    return {name: np.zeros(shapes[name], case.precision) if tensor is None else tensor.detach().numpy()
            for name, tensor in found.items()}


@dataclass
class Seen:
    """T of a tensor, in the whole step and from the candidate's own inputs of the operation."""

    whole: float
    local: float


def judge_step(case: Case, found: Tensors) -> dict[str, Seen]:
    """T of every tensor of a step."""
    truths = true_step(case, found)
    assert set(truths) == set(found)
    return {name: Seen(*(t_of(found[name], one) for one in pair)) for name, pair in truths.items()}


def true_step(case: Case, found: Tensors) -> dict[str, tuple[Bounded, Bounded]]:
    """Every tensor of a step with its bound, and as what was found before it gives it."""
    seen = {}

    def visit(name: str, truth: Bounded, local: Bounded | None, /) -> Array | None:
        seen[name] = truth, truth if local is None else local
        return found.get(name)

    parameters = {name: array.astype(np.float64) for name, array in case.parameters.items()}
    step = GraphStep(case.graph, case.loss, parameters, Arithmetic(total_roundoff(case.precision)), visit,
                     peek=found.get)
    step.run(case.x.astype(np.float64), case.target.astype(np.float64))
    return seen


def t_of(found: Array, truth: Bounded) -> float:
    """T of a tensor, or of a number."""
    return measure(*(np.atleast_1d(one) for one in (found, truth.value, truth.error))).t


def random_graph(rng: np.random.Generator, shape: tuple[int, ...]) -> Graph:
    """Up to ten operations, each on outputs drawn among the last ones; branches are joined where shapes allow it."""
    nodes: list[Operation] = []
    shapes = {INPUT: shape}
    for i in range(int(rng.integers(2, 11))):
        node = _random_node(rng, f"n{i}", shapes, {one.name for one in nodes if isinstance(one, (Sigmoid, Softmax))})
        try:
            output = node.output_shape(*(shapes[name] for name in node.inputs))
        except FileError:
            continue
        if np.prod(output) > 4000 or len(output) < 2:
            continue
        nodes.append(node)
        shapes[node.name] = output
    # What nobody takes is left out, from the end on
    kept, wanted = list[Operation](), {nodes[-1].name} if nodes else set()
    for node in reversed(nodes):
        if node.name in wanted:
            kept.insert(0, node)
            wanted |= set(node.inputs)
    return Graph(kept or [Relu("n0")])


def _random_node(rng: np.random.Generator, name: str, shapes: dict[str, tuple[int, ...]], positive: set[str]
                 ) -> Operation:
    """Any operation; functions that are no activations only behind what is `positive`."""
    names = list(shapes)[-4:]
    one = str(rng.choice(names))
    shape, two = shapes[one], (one, str(rng.choice(names)))
    takes, pair = {"inputs": (one,)}, lambda low, high: tuple(int(n) for n in rng.integers(low, high, 2))
    flat: list[Operation] = [*(made(name, **takes) for kind, made in OPERATIONS.items()
                               if issubclass(made, Pointwise) and (one in positive or kind not in ELEMENTARY)),
                             Softmax(name, **takes), LogSoftmax(name, **takes),
                             Dropout(name, 0.4, **takes), Matmul(name, inputs=two),
                             Prelu(name, int(rng.choice([1, *shape[1:2]])), **takes),
                             (Add, Subtract, Multiply)[int(rng.integers(3))](name, inputs=two),
                             LayerNorm(name, shape[int(rng.integers(1, len(shape))):], 1e-2, bool(rng.integers(2)),
                                       bool(rng.integers(2)), **takes),
                             Reshape(name, ((-1, shape[-1]), (-1,), (1, -1))[int(rng.integers(3))], **takes),
                             Transpose(name, int(rng.integers(1, len(shape))), -1, **takes),
                             (Sum, Mean, Amax, Amin, Max, Min)[int(rng.integers(6))](
                                 name, (int(rng.integers(1, len(shape))),), bool(rng.integers(2)), **takes),
                             Spline(name, shape[-1], int(rng.integers(1, 9)), int(rng.integers(1, 7)),
                                    int(rng.integers(2, 6)), -1.5, 1.0, bool(rng.integers(2)), **takes),
                             Linear(name, shape[-1], int(rng.integers(1, 9)), **takes)]
    if len(shape) != 4:
        return flat[int(rng.integers(len(flat)))]
    c, groups = shape[1], int(rng.choice([g for g in (1, 2, 3) if shape[1] % g == 0]))
    kernel, sides = pair(2, 4), (*pair(0, 4), *pair(0, 4))
    image: list[Operation] = [
        Conv2d(name, c, groups * int(rng.integers(1, 5)), pair(1, 4), pair(1, 3), pair(0, 3), pair(1, 3), groups,
               bool(rng.integers(2)), **takes),
        Conv2d(name, c, int(rng.integers(1, 7)), (3, 3), padding=(1, 1), **takes),
        BatchNorm2d(name, c, 1e-3, 0.3, bool(rng.integers(2)), **takes),
        BatchNorm2d(name, c, 1e-3, 0.3, True, False, **takes),
        GroupNorm(name, groups, c, 1e-2, bool(rng.integers(2)), **takes),
        Concat(name, inputs=two), MaxPool2d(name, kernel, pair(1, 4), **takes),
        AvgPool2d(name, kernel, pair(1, 4), (1, 1), **takes), GlobalAvgPool2d(name, **takes),
        AdaptiveAvgPool2d(name, pair(1, 6), **takes), Dropout2d(name, 0.4, **takes), Flatten(name, **takes),
        UpsampleNearest2d(name, pair(1, 4), **takes),
        UpsampleBilinear2d(name, pair(1, 4), bool(rng.integers(2)), **takes),
        (ReflectionPad2d, ReplicationPad2d, ZeroPad2d)[int(rng.integers(3))](name, sides, **takes),
        ConvTranspose2d(name, c, groups * int(rng.integers(1, 4)), pair(1, 4), pair(1, 4), pair(0, 2), (0, 0),
                        pair(1, 3), groups, bool(rng.integers(2)), **takes),
    ]
    chosen = image + flat[:-1]
    return chosen[int(rng.integers(len(chosen)))]
