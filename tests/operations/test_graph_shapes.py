# SPDX-License-Identifier: MIT
"""Shapes of graphs, running statistics, and what is no graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from bridge.common.errors import FileError
from bridge.operations import (
    Add,
    Amax,
    AvgPool2d,
    BatchNorm2d,
    Concat,
    Conv2d,
    Dropout,
    Dropout2d,
    Flatten,
    GlobalAvgPool2d,
    GroupNorm,
    LayerNorm,
    Linear,
    Matmul,
    MaxPool2d,
    Mean,
    Operation,
    ReflectionPad2d,
    Relu,
    Reshape,
    Spline,
    Sum,
    Transpose,
    ZeroPad2d,
)
from bridge.operations.graph import Graph
from bridge.operations.losses import MeanSquaredError
from tests.helpers.graphs import judge_step, make_case, torch_step
from tests.helpers.judged.operation_networks import NETWORKS, network


def test_running_statistics() -> None:
    """In training they follow the batch, else they are what normalises; each by PyTorch, and far from the other."""
    for precision in ("float32", "float64"):
        for training in (True, False):
            node = BatchNorm2d("it", 4, momentum=0.3, track_running_stats=True, training=training)
            graph = Graph([Conv2d("first", 2, 4, (3, 3), padding=(1, 1)), node])
            case = make_case(graph, (2, 2, 16, 16), np.random.default_rng(5), precision)
            found = torch_step(case)
            assert ("state/it/running_var" in found) is training
            seen = judge_step(case, found)
            assert all(one.whole <= 1 and one.local <= 1 for one in seen.values()), seen
            other = replace(node, training=not training)
            wrong = other.torch_forward([torch.from_numpy(found["forward/first"])], {
                name: torch.from_numpy(case.parameters[f"it/{name}"].copy())
                for name in ("weight", "bias", "running_mean", "running_var")})
            assert judge_step(case, found | {"forward/it": wrong.numpy()})["forward/it"].local > 1000


def test_shapes_are_torchs() -> None:
    for kind in NETWORKS:
        case = make_case(network(kind), (2, 2, 16, 16), np.random.default_rng(7))
        shapes = case.graph.shapes((2, 2, 16, 16))
        for name, tensor in torch_step(case).items():
            if name.startswith("forward/"):
                assert shapes[name.removeprefix("forward/")] == tensor.shape


@pytest.mark.parametrize(("nodes", "message"), [
    ([], "the network has no layers, expected one or more"),
    ([Relu("a"), Relu("a")], "two layers are named a"),
    ([Relu("input")], "a layer is named input, which names the network's input"),
    ([Relu("a", inputs=("b",))], "layer a: it takes b, and no layer has that name"),
    ([Relu("a", inputs=("b",)), Relu("b", inputs=("a",))],
     "layer a: it takes b, which is computed from it or after it"),
    ([Relu("a"), Relu("b", inputs=("input",))], "layer a: no layer takes its output, and it is not the last"),
    ([Add("a", inputs=("input",))], "layer a (add): 1 inputs, expected 2"),
    ([Concat("a", inputs=("input",))], "layer a (concat): 1 inputs, expected two or more"),
    ([Relu("a", inputs=("input", "input"))], "layer a (relu): 2 inputs, expected 1"),
])
def test_no_graph(nodes: list[Operation], message: str) -> None:
    with pytest.raises(FileError) as error:
        Graph(nodes)
    assert str(error.value) == message


@pytest.mark.parametrize(("nodes", "message"), [
    ([Conv2d("a", 3, 4, (3, 3))], "layer a: input (2, 2, 8, 6) has 2 channels, expected 3"),
    ([Linear("a", 5, 4)], "layer a (linear): input (2, 2, 8, 6), expected 5 features in its last axis"),
    ([Spline("a", 5, 4)], "layer a (spline): input (2, 2, 8, 6), expected 5 features in its last axis"),
    ([MaxPool2d("a", (9, 9), (1, 1))],
     "layer a (max_pool2d): input (2, 2, 8, 6), expected an image of the kernel's size (9, 9) or more"),
    ([AvgPool2d("a", (2, 2), (1, 1), (2, 0))],
     "layer a (avg_pool2d): padding (2, 0), expected at most half of the kernel (2, 2)"),
    ([BatchNorm2d("a", 2, training=False)],
     "layer a (batch_norm2d): training 0 without running statistics, expected track_running_stats 1"),
    ([Dropout("a", 1.0)], "layer a (dropout): p 1.0, expected a number from 0 on, below 1"),
    ([LayerNorm("a", (8,))], "layer a (layer_norm): input (2, 2, 8, 6), expected (8,) behind another axis"),
    ([Flatten("a"), LayerNorm("b", (2, 96))],
     "layer b (layer_norm): input (2, 96), expected (2, 96) behind another axis"),
    ([GroupNorm("a", 1, 3)], "layer a (group_norm): input (2, 2, 8, 6), expected 3 channels"),
    ([Reshape("a", (5, -1))], "layer a (reshape): input (2, 2, 8, 6), expected the elements of (5, -1) in each image"),
    ([Reshape("a", (95,))], "layer a (reshape): input (2, 2, 8, 6), expected the elements of (95,) in each image"),
    ([Reshape("a", (2, 6, 8), fixed=True)],
     "layer a (reshape): input (2, 2, 8, 6), expected images of the shape (2, 6, 8) at which the network was read: "
     "read it again with an example of the new one"),
    ([Transpose("a", 0, 2)], "layer a (transpose): dimensions 0 and 2 of 4, expected others than the batch"),
    ([Flatten("a"), Transpose("b", 1, 2)], "layer b (transpose): dimension 2 of 2, expected one from -2 to 1"),
    ([Sum("a", (1, -3))], "layer a (sum): dimensions (1, -3) of 4, expected each once, and one that remains"),
    ([Amax("a", (0, 1, 2, 3))],
     "layer a (amax): dimensions (0, 1, 2, 3) of 4, expected each once, and one that remains"),
    ([Flatten("a"), Mean("b", (2,))], "layer b (mean): dimension 2 of 2, expected one from -2 to 1"),
    ([Flatten("a"), Dropout2d("b", 0.5)], "layer b (dropout2d): input (2, 96), expected a shape (n, c, h, w)"),
    ([BatchNorm2d("a", 3)], "layer a (batch_norm2d): input (2, 2, 8, 6), expected a shape (n, 3, h, w)"),
    ([MaxPool2d("a", (2, 2), (2, 2)), Add("b", inputs=("a", "input"))],
     "layer b (add): the shapes (2, 2, 4, 3) of a and (2, 2, 8, 6) of input, expected shapes that can be broadcast to "
     "one"),
    ([MaxPool2d("a", (2, 2), (2, 2)), Concat("b", inputs=("a", "input"))],
     "layer b (concat): the shape (2, 2, 8, 6) of input beside (2, 2, 4, 3) of a, expected shapes that differ in their "
     "channels alone"),
    ([ReflectionPad2d("a", (1, 6, 0, 0))],
     "layer a (reflection_pad2d): padding (1, 6, 0, 0) of the input (2, 2, 8, 6), expected fewer pixels than the image "
     "has"),
    ([Matmul("a", inputs=("input", "input"))], "layer a (matmul): the shapes (2, 2, 8, 6) of input and (2, 2, 8, 6) of "
     "input, expected shapes (..., m, k) and (..., k, n)"),
    ([Flatten("a"), ZeroPad2d("b", (1, 1, 1, 1))],
     "layer b (zero_pad2d): input (2, 96), expected a shape (n, c, h, w)"),
    ([Flatten("a"), GlobalAvgPool2d("b")], "layer b (global_avg_pool2d): input (2, 96), expected a shape (n, c, h, w)"),
])
def test_shapes_that_clash(nodes: list[Operation], message: str) -> None:
    with pytest.raises(FileError) as error:
        Graph(nodes).shapes((2, 2, 8, 6))
    assert str(error.value) == message


def test_a_fixed_shape_leaves_nothing_open() -> None:
    with pytest.raises(FileError, match=r"shape \(2, -1, 6\), expected integers from 1 on, or -1 for one"):
        Reshape("a", (2, -1, 6), fixed=True).check()


def test_the_loss_has_no_parameters() -> None:
    assert MeanSquaredError(mean=False).scale((2, 3)) == 1
    assert MeanSquaredError().scale((2, 3)) == 1 / 6
