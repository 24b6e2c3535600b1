# SPDX-License-Identifier: MIT
"""Tensors of five to eight dimensions: operations beside numpy and torch, and a network of windows, judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.engine.library import extension
from bridge.engine.network.passes import OperationPasses
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.operations import (
    Add,
    Amax,
    Concat,
    Exp,
    Flip,
    Max,
    Mean,
    Multiply,
    Operation,
    Permute,
    Relu,
    Reshape,
    Roll,
    Slice,
    Softmax,
    Sum,
    Transpose,
)
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.loops import looped
from tests.helpers.networks.exported_networks import Windows, conv

Shape = tuple[int, ...]
BOTH = ("a", "b")
#: Every other dimension is one, so that no two neighbours are one axis
STRIPED, OTHER = (2, 1, 3, 1, 2, 1, 3, 1), (2, 2, 1, 3, 1, 2, 1, 2)
EIGHT = (2, 2, 3, 2, 2, 3, 2, 2)
CASES: dict[str, tuple[Operation, list[Shape]]] = {
    "function": (Exp("it"), [(2, 3, 1, 2, 4)]), "rectifier": (Relu("it"), [EIGHT]),
    "sum of two": (Add("it", inputs=BOTH), [STRIPED, OTHER]),
    "product": (Multiply("it", inputs=BOTH), [STRIPED, OTHER]),
    "product of alike": (Multiply("it", inputs=BOTH), [EIGHT, EIGHT]),
    "product in five": (Multiply("it", inputs=BOTH), [(2, 3, 1, 4, 2), (1, 1, 5, 4, 1)]),
    "reshape": (Reshape("it", (3, 2, 1, 2, 6, 2)), [(2, 6, 4, 6)]),
    "sum": (Sum("it", (1, 3, 5, 7)), [EIGHT]), "sum of others": (Sum("it", (2, 4, 6), True), [EIGHT]),
    "sum of rows": (Sum("it", (4,)), [(2, 3, 2, 2, 700)]),
    "sum of images": (Sum("it", (0, 2, 4), True), [(3, 2, 2, 2, 2)]),
    "mean": (Mean("it", (-1, 2, 5)), [EIGHT]),
    "largest": (Amax("it", (1, 3, 5)), [EIGHT]), "first largest": (Max("it", (2,), True), [(2, 3, 4, 2, 3)]),
    "concat": (Concat("it", -3, inputs=BOTH), [(2, 2, 3, 1, 2, 2), (2, 2, 3, 4, 2, 2)]),
    "softmax": (Softmax("it", 3), [(2, 2, 3, 4, 2)]), "softmax of rows": (Softmax("it", -1), [(2, 2, 3, 2, 5)]),
    "transpose": (Transpose("it", 2, -2), [(2, 3, 4, 2, 3, 5)]), "wide": (Transpose("it", -1, -2), [(2, 1, 2, 70, 33)]),
    "permute": (Permute("it", (0, 7, 2, 5, 4, 3, 6, 1)), [EIGHT]),
    "windows": (Permute("it", (0, 1, 3, 2, 4, 5)), [(2, 3, 2, 4, 2, 5)]),
    "slice": (Slice("it", 3, 1, -1, 2), [(2, 2, 3, 6, 2)]),
    "flip": (Flip("it", (1, -1, 4)), [(2, 2, 3, 2, 4, 3)]),
    "roll": (Roll("it", (3, -1, 7), (1, 5, 4)), [(2, 4, 3, 2, 5, 3)]),
}


def of_torch(node: Operation, inputs: list[np.ndarray], dy: np.ndarray | None) -> list[np.ndarray]:
    """Its output, or the gradients, in float64."""
    leaves = [torch.from_numpy(one.astype(np.float64)).requires_grad_() for one in inputs]
    y = node.torch_forward(leaves, {})
    found = [y] if dy is None else torch.autograd.grad(y, leaves, torch.from_numpy(dy.astype(np.float64)))
    return [one.detach().numpy() for one in found]


@looped("dtype", ["float32", "float64"])
@looped("name", CASES)
@pytest.mark.parametrize("place", ["cpu", "naive", "cuda"])
def test_operations_are_those_of_torch(place: str, name: str, dtype: str, request: pytest.FixtureRequest) -> None:
    """To rounding; where numbers only move, or are chosen, to the bit."""
    device = request.getfixturevalue("cuda") if place == "cuda" else place
    rng, (node, shapes) = np.random.default_rng(5), CASES[name]
    inputs = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    passes = OperationPasses(node, device)
    found = [passes.forward(inputs, {})]
    dy = rng.standard_normal(found[0].shape).astype(dtype)
    found += passes.backward(dy, inputs, {})[0]
    wanted = [*of_torch(node, inputs, None), *of_torch(node, inputs, dy)]
    tolerance = 0.0 if name in EXACT else {"float32": 1e-6, "float64": 1e-13}[dtype]
    for one, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, right.astype(dtype), tolerance, tolerance)


EXACT = {"rectifier", "reshape", "largest", "first largest", "concat", "transpose", "wide", "permute", "windows",
         "slice", "flip", "roll"}


def windows() -> nn.Module:
    return nn.Sequential(conv(1, 4), Windows(4), nn.Conv2d(4, 1, 1))


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of a network with six dimensions inside."""
    path = tmp_path_factory.mktemp("windows") / "fixture.h5"
    export(path, ExportSettings(model=windows, height=4, width=6, batch=2, steps=2))
    return path


def test_windows_are_right(fixture: Path, device: str, tmp_path: Path) -> None:
    extension.run_file(fixture, tmp_path / "result.h5", device)
    comparison, verdict = judge(fixture, tmp_path / "result.h5", diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING, verdict.words
    assert not comparison.not_judged
    with h5py.File(fixture) as file:
        assert max(one.ndim for one in file["steps/0/forward"].values()) == 6


#: Of a layer by the last part of its name, and of what it gives
MISTAKES: dict[str, Any] = {
    "permute": lambda y: np.ascontiguousarray(y.transpose(0, 2, 1, 3, 4, 5).reshape(y.shape)),
    "roll": lambda y: np.roll(y, 1, 2),
    "chunk": lambda y: y[..., ::-1],
    "softmax": lambda y: np.exp(y) / np.exp(y).sum(2, keepdims=True),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_in_the_middle_is_caught(fixture: Path, what: str, tmp_path: Path) -> None:
    result = tmp_path / "result.h5"
    extension.run_file(fixture, result, "cpu")
    with h5py.File(result, "r+") as file:
        outputs = file["steps/0/forward"]
        name = next(one for one in outputs if what in one)
        outputs[name][...] = MISTAKES[what](outputs[name][...])
    _, verdict = judge(fixture, result, diagnosing=False, adequacy=False)
    assert verdict.outcome is Outcome.BUG, verdict.words
