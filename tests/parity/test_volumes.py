# SPDX-License-Identifier: MIT
"""Convolutions and other operations on volumes beside torch's, on every device; U-Nets of them, trained and judged."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge import Network, Sgd
from bridge.engine.arrays.transfer import to_device
from bridge.engine.library import extension
from bridge.engine.network.passes import OperationPasses
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.operations import Conv3d, ConvTranspose3d, Operation
from bridge.validate.self_test.graph_candidate import GraphOperations, backward, layer, replaced, train_graph
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.loops import looped
from tests.helpers.networks.volumes import NETWORKS

Tensor = torch.Tensor
Case = tuple[Operation, tuple[int, ...]]

#: One, two and three taps along the depth, with strides, gaps, padding and groups
CASES: dict[str, Case] = {
    f"{kernel} taps, stride {stride}, dilation {dilation}, padding {padding}, {groups} groups": (
        Conv3d("it", 4, 6, (kernel, 2, 3), (stride, 2, 1), (padding, 1, 0), (dilation, 1, 2), groups), (2, 4, 6, 5, 7))
    for kernel, stride, dilation, padding, groups in itertools.product((1, 2, 3), (1, 2), (1, 2), (0, 2), (1, 2))}
CASES |= {
    "each channel by itself": (Conv3d("it", 4, 4, (3, 3, 3), padding=(1, 1, 1), groups=4), (2, 4, 5, 4, 6)),
    "single voxels": (Conv3d("it", 4, 5, (1, 1, 1)), (2, 4, 3, 4, 5)),
    "single voxels, stride": (Conv3d("it", 4, 5, (1, 1, 1), (2, 1, 2)), (2, 4, 3, 4, 5)),
    "all of it": (Conv3d("it", 3, 5, (4, 5, 6), bias=False), (2, 3, 4, 5, 6)),
    "more padding than volume": (Conv3d("it", 2, 3, (3, 3, 3), padding=(4, 3, 3)), (1, 2, 2, 3, 2)),
    # Several planes at a time: more of them than a cache holds
    "parts of a volume": (Conv3d("it", 8, 4, (3, 3, 3), (1, 2, 2), padding=(1, 1, 1)), (2, 8, 11, 96, 160)),
    "transposed": (ConvTranspose3d("it", 4, 6, (2, 2, 2), (2, 2, 2)), (2, 4, 3, 2, 4)),
    "transposed, overlapping": (
        ConvTranspose3d("it", 4, 6, (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1)), (2, 4, 3, 2, 4)),
    "transposed, groups": (
        ConvTranspose3d("it", 4, 6, (3, 2, 1), (3, 1, 2), (1, 0, 0), (2, 0, 1), (2, 1, 1), 2), (2, 4, 3, 4, 2)),
    "transposed, parts of a volume": (
        ConvTranspose3d("it", 8, 4, (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1)), (1, 8, 7, 48, 80)),
}


@looped("dtype", ["float32", "float64"])
@looped("name", CASES)
@pytest.mark.parametrize("place", ["cpu", "naive", "cuda"])
def test_convolutions_are_torchs(place: str, name: str, dtype: str, request: pytest.FixtureRequest) -> None:
    """Output and all gradients."""
    node, shape = CASES[name]
    if place == "cuda" and "parts" in name:
        return  # which takes more at a time
    device = request.getfixturevalue("cuda") if place == "cuda" else place
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape).astype(dtype)
    w = {key: rng.standard_normal(one).astype(dtype) for key, one in node.parameter_shapes().items()}
    passes = OperationPasses(node, device)
    found = [passes.forward([x], w)]
    dy = rng.standard_normal(found[0].shape).astype(dtype)
    (dx,), dw = passes.backward(dy, [x], w)
    leaves = {key: torch.from_numpy(one.astype(np.float64)).requires_grad_() for key, one in {"x": x, **w}.items()}
    y = node.torch_forward([leaves["x"]], leaves)
    right = torch.autograd.grad(y, list(leaves.values()), torch.from_numpy(dy.astype(np.float64)))
    close = {"float32": 1e-6, "float64": 1e-14}[dtype]
    for one, wanted in zip([*found, dx, *(dw[key] for key in w)], [y.detach(), *right], strict=True):
        size = float(wanted.abs().max())
        np.testing.assert_allclose(one, wanted.numpy(), 0, 8 * close * max(size, 1.0))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_is_torchs(name: str, device: str) -> None:
    """Three steps of a network that is read at one size and trained at another."""
    torch.manual_seed(1)
    module = NETWORKS[name]().double()
    module.drop = torch.nn.Identity()
    twin = type(module)().double()
    twin.drop = torch.nn.Identity()
    twin.load_state_dict(module.state_dict())
    net = Network.from_torch(module, example=(2, 1, 8, 16, 8), device=device)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    rng = np.random.default_rng(4)
    for _ in range(3):
        x = rng.standard_normal((2, 1, 12, 8, 4))
        optimizer.zero_grad()
        y = twin(torch.from_numpy(x))
        target = rng.standard_normal(y.shape)
        loss = functional.mse_loss(y, torch.from_numpy(target))
        loss.backward()
        optimizer.step()
        found = net.step(to_device(x, device), to_device(target, device), Sgd(0.05, momentum=0.9))
        assert found == pytest.approx(float(loss.detach()), rel=1e-10)
    for key, one in net.to_torch().state_dict().items():
        if one.is_floating_point():
            np.testing.assert_allclose(one.numpy(), twin.state_dict()[key].numpy(), 1e-10, 1e-10, err_msg=key)


@pytest.fixture(scope="module", params=NETWORKS)
def fixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of a network."""
    path = tmp_path_factory.mktemp(request.param) / "fixture.h5"
    export(path, settings_of(request.param))
    return path


def settings_of(name: str) -> ExportSettings:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((2, 1, 8, 4, 8))
    shape = (2, 4) if name == "means" else (2, 2, 8, 4, 8)
    return ExportSettings(model=NETWORKS[name], input=[x, x[::-1].copy()], steps=2,
                          target=[rng.standard_normal(shape), rng.standard_normal(shape)])


def test_our_step_is_right(fixture: Path, device: str, tmp_path: Path) -> None:
    extension.run_file(fixture, tmp_path / "result.h5", device)
    assert_right(fixture, tmp_path / "result.h5")


def test_a_program_in_float64_is_right(fixture: Path, tmp_path: Path) -> None:
    """Which writes what it has as float32."""
    train_graph(fixture, tmp_path / "result.h5", dtype="float64", written="float32")
    assert_right(fixture, tmp_path / "result.h5")


def assert_right(fixture: Path, result: Path) -> None:
    comparison, verdict = judge(fixture, result, diagnosing=False, adequacy=False)
    assert verdict.outcome is Outcome.ROUNDING, verdict.words
    # A bias in front of a normalisation has no gradient
    assert not [one.name for one in comparison.not_judged if "too small" not in one.reason]


def at(name: str, change: Callable[..., Any]) -> type[GraphOperations]:
    """One layer of another formula."""
    return layer(name, lambda self, it, x, p: change(it, x[0], p))


def taps(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda it, x, p: it.torch_forward([x], {**p, "weight": change(p["weight"])})


def without_last_tap(_: GraphOperations, dy: Tensor, x: list[Tensor], p: dict[str, Tensor]) -> list[Tensor]:
    """The data gradient of a convolution by all taps along the depth but the last."""
    w = p["weight"].clone()
    w[:, :, -1] = 0
    return [torch.nn.grad.conv3d_input(x[0].shape, w, dy, padding=1)]


#: A layer, what a program with a mistake does there, and the first tensor that is wrong
MISTAKES: dict[str, tuple[type[GraphOperations], str]] = {
    "flipped along the depth": (at("bottom.conv2", taps(lambda w: w.flip(2))), "forward/bottom.conv2"),
    "channels for depth": (
        at("bottom.conv2", taps(lambda w: w.transpose(1, 2).reshape(w.shape))), "forward/bottom.conv2"),
    "a plane too early": (
        at("down.conv1", lambda it, x, p: it.torch_forward([x.roll(1, 2)], p)), "forward/down.conv1"),
    "windows from the second plane on": (
        at("down.beside", lambda it, x, p: it.torch_forward(
            [functional.pad(x, (0, 0, 0, 0, 0, 1))[:, :, 1:]], p)), "forward/down.beside"),
    "a tap less in the data gradient": (
        backward("bottom.conv2", without_last_tap), "grads/bottom.act1/output"),
    "a transposed one not flipped": (at("up1", taps(lambda w: w.flip(2))), "forward/up1"),
    "the output padding before": (
        at("up2", lambda it, x, p: functional.pad(replace(it, output_padding=(0, 1, 1)).torch_forward(
            [x], p), (0, 0, 0, 0, 1, 0))), "forward/up2"),
    "a filter gradient of the first plane": (
        replaced(gradient=lambda self, name, g: g.roll(1, 2) if name == "up2/weight" else g), "grads/up2/weight"),
}


@pytest.fixture(scope="module")
def strides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("strides") / "fixture.h5"
    export(path, settings_of("strides"))
    return path


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_caught_where_it_is(what: str, strides: Path, tmp_path: Path) -> None:
    wrong, where = MISTAKES[what]
    train_graph(strides, tmp_path / "result.h5", wrong)
    comparison, verdict = judge(strides, tmp_path / "result.h5", diagnosing=False, adequacy=False)
    assert verdict.outcome is Outcome.BUG, verdict.words
    assert next(one.name for one in comparison.judged if one.certain and one.step == 0) == where
