# SPDX-License-Identifier: MIT
"""Windows, paddings and sizes with all of torch's arguments: beside torch, in networks, with mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from bridge import Network, Sgd
from bridge.common.errors import BridgeError
from bridge.engine.library import extension
from bridge.engine.network.passes import OperationPasses
from bridge.judge.judge import judge
from bridge.judge.measure.error_statistics import measure
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.operations import (
    AdaptiveMaxPool2d,
    AvgPool2d,
    CircularPad,
    ConstantPad,
    Interpolate,
    MaxPool2d,
    Operation,
)
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.loops import looped
from tests.helpers.networks.exported_networks import conv

Draw = Callable[[np.random.Generator], Operation]
Array = np.ndarray


def pair(rng: np.random.Generator, low: int, high: int) -> tuple[int, int]:
    return int(rng.integers(low, high)), int(rng.integers(low, high))


def half(rng: np.random.Generator, kernel: tuple[int, int]) -> Any:
    return tuple(int(rng.integers(0, n // 2 + 1)) for n in kernel)


def of_largest(rng: np.random.Generator) -> Operation:
    kernel = pair(rng, 1, 5)
    return MaxPool2d("it", kernel, pair(rng, 1, 5), half(rng, kernel), pair(rng, 1, 4), bool(rng.integers(2)))


def of_means(rng: np.random.Generator) -> Operation:
    kernel = pair(rng, 1, 6)
    return AvgPool2d("it", kernel, pair(rng, 1, 5), half(rng, kernel), bool(rng.integers(2)), bool(rng.integers(2)),
                     int(rng.choice([0, 0, 0, 7])))


def of_pads(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(-3, 5, 2 * rng.integers(1, 4)))


def of_sizes(rng: np.random.Generator) -> Operation:
    """Larger and smaller ones, of all degrees."""
    given: dict[str, Any] = {"size": pair(rng, 1, 30)}
    if rng.integers(2):
        given = {"scale_factor": tuple(float(one) for one in rng.choice([0.3, 0.5, 0.7, 1.0, 1.3, 1.9, 2.0, 3.1], 2))}
    degree = int(rng.choice([0, 1, 3]))
    return Interpolate("it", degree, **given, align_corners=bool(degree and rng.integers(2)),
                       exact=bool(degree == 0 and rng.integers(2)))


DRAWN: dict[str, Draw] = {
    "constant_pad": lambda rng: ConstantPad("it", of_pads(rng), float(rng.choice([0.0, -0.25, 7.0]))),
    "circular_pad": lambda rng: CircularPad("it", of_pads(rng)), "interpolate": of_sizes,
    "max_pool2d": of_largest, "avg_pool2d": of_means,
    "adaptive_max_pool2d": lambda rng: AdaptiveMaxPool2d("it", pair(rng, 1, 12))}
#: What only moves numbers; gradients may be sums
EXACT = {"max_pool2d", "adaptive_max_pool2d", "constant_pad", "circular_pad"}


def of_torch(node: Operation, x: Array, dy: Array | None = None) -> Array:
    """Its output, or the gradient, in the precision of the numbers."""
    leaf = torch.from_numpy(x).requires_grad_()
    y = node.torch_forward([leaf], {})
    found = y if dy is None else torch.autograd.grad(y, leaf, torch.from_numpy(dy))[0]
    array: Array = found.detach().numpy()
    return array


def drawn(kind: str, number: int) -> tuple[Operation, Array, Array]:
    """An operation with settings by chance, an image of small integers, many of them equal, and a gradient."""
    for seed in range(1000 * number, 1000 * (number + 1)):
        rng = np.random.default_rng(seed)
        node, x = DRAWN[kind](rng), np.round(2 * rng.standard_normal((2, 2, *pair(rng, 1, 14))))
        try:
            shape = node.output_shape(x.shape)
        except BridgeError:
            continue
        return node, x, rng.standard_normal(shape)
    raise AssertionError(kind)


@looped("number", range(40))
@looped("kind", DRAWN)
@pytest.mark.parametrize("place", ["cpu", "naive", "cuda"])
def test_settings_are_those_of_torch(place: str, kind: str, number: int, request: pytest.FixtureRequest) -> None:
    """Shapes, outputs and gradients, of equal numbers, too, where torch takes the first."""
    device = request.getfixturevalue("cuda") if place == "cuda" else place
    node, x, dy = drawn(kind, number)
    assert of_torch(node, x).shape == dy.shape, node
    for dtype, tolerance in (("float64", 1e-13), ("float32", 2e-6)):
        passes, given = OperationPasses(node, device), x.astype(dtype)
        upstream = dy.astype(dtype)
        # Of the same numbers in float64: torch's own weights in float32 are further off
        y, right = passes.forward([given], {}), of_torch(node, given.astype("float64"))
        np.testing.assert_allclose(y, right, *[0.0 if kind in EXACT else tolerance] * 2, err_msg=repr(node))
        (dx,), _ = passes.backward(upstream, [given], {})
        np.testing.assert_allclose(dx, of_torch(node, *(one.astype("float64") for one in (given, upstream))), tolerance,
                                   tolerance, err_msg=repr(node))


def bounded(node: Operation, x: Array, dy: Array) -> tuple[Bounded, Bounded]:
    arithmetic = Arithmetic(total_roundoff(x.dtype.name))
    given, upstream = (Bounded(one, 0.0, arithmetic) for one in (x, dy))
    return node.forward([given], {}), node.backward(upstream, [given], {})[0][0]


@looped("number", range(40))
@looped("kind", DRAWN)
def test_bounds_hold_for_torch(kind: str, number: int) -> None:
    """In both precisions; what is 1e-4 off is outside, or 1e-3 of cubic polynomials, with many roundings."""
    node, x, dy = drawn(kind, number)
    off = 1e-3 if getattr(node, "degree", 0) == 3 else 1e-4
    for dtype in ("float32", "float64"):
        given, upstream = x.astype(dtype) + np.random.default_rng(1).random(x.shape).astype(dtype), dy.astype(dtype)
        for found, right in zip((of_torch(node, given), of_torch(node, given, upstream)),
                                bounded(node, given, upstream), strict=True):
            assert measure(found, right.value, right.error).t <= 1, node
            if found.any():
                assert measure(found * (1 + off), right.value, right.error).t > 1, node


SHAPE = (2, 1, 12, 15)
#: Networks with all of them
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "pools": lambda: nn.Sequential(
        conv(1, 4), nn.MaxPool2d(3, 2, ceil_mode=True), nn.AvgPool2d(3, 2, 1, True, False), conv(4, 3),
        nn.AdaptiveMaxPool2d((3, 2)), nn.Conv2d(3, 2, 1)),
    "holes": lambda: nn.Sequential(
        conv(1, 4), nn.MaxPool2d(3, 1, 1, (2, 1)), nn.AvgPool2d(2, divisor_override=3), nn.Conv2d(4, 1, 1)),
    "pads": lambda: nn.Sequential(
        conv(1, 2), nn.CircularPad2d((2, 1, 0, 3)), conv(2, 3), nn.ConstantPad2d((1, -2, -1, 2), 0.4),
        nn.Conv2d(3, 1, 1)),
    "sizes": lambda: nn.Sequential(
        conv(1, 3), nn.Upsample((7, 22), mode="bicubic"), nn.Upsample(scale_factor=0.7, mode="bilinear"), conv(3, 3),
        nn.Upsample((9, 8), mode="nearest-exact"), nn.Upsample(scale_factor=1.4), nn.Conv2d(3, 1, 1))}
#: Of a layer of a network: what a program with a mistake makes of its input
MISTAKES: list[tuple[str, str, Callable[[torch.Tensor], torch.Tensor]]] = [
    ("pools", "1", lambda x: functional.max_pool2d(functional.pad(x, (0, 2, 0, 1)), 3, 2)[..., :6, :7]),
    ("pools", "2", lambda x: functional.avg_pool2d(x, 3, 2, 1, True)),
    ("pools", "2", lambda x: functional.avg_pool2d(x, 3, 2, 1, True, divisor_override=9)),
    ("pools", "4", lambda x: functional.adaptive_avg_pool2d(x, (3, 2))),
    ("holes", "1", lambda x: functional.max_pool2d(x, 3, 1, (0, 1))),
    ("holes", "2", lambda x: functional.avg_pool2d(x, 2)),
    ("pads", "1", lambda x: functional.pad(x, (2, 1, 0, 3), "reflect")),
    ("pads", "3", lambda x: functional.pad(x, (1, -2, -1, 2), value=0.0)),
    ("pads", "3", lambda x: functional.pad(x, (-2, 1, 2, -1), value=0.4)),
    ("sizes", "1", lambda x: functional.interpolate(x, (7, 22), mode="bilinear")),
    ("sizes", "2", lambda x: functional.interpolate(x, scale_factor=0.7, mode="bilinear", recompute_scale_factor=True)),
    ("sizes", "4", lambda x: functional.interpolate(x, (9, 8), mode="nearest")),
    ("sizes", "5", lambda x: functional.interpolate(x, scale_factor=1.4, mode="nearest-exact"))]


@pytest.fixture(scope="module", params=NETWORKS)
def fixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Two steps of a network."""
    path = tmp_path_factory.mktemp(request.param) / "fixture.h5"
    export(path, ExportSettings(model=NETWORKS[request.param], height=SHAPE[2], width=SHAPE[3], batch=2, steps=2))
    return request.param, path


def test_networks_are_right(fixture: tuple[str, Path], device: str, tmp_path: Path) -> None:
    extension.run_file(fixture[1], tmp_path / "result.h5", device)
    comparison, verdict = judge(fixture[1], tmp_path / "result.h5", diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING, verdict.words
    assert not comparison.not_judged


def test_a_mistake_is_caught(fixture: tuple[str, Path], tmp_path: Path) -> None:
    """Of each of them."""
    name, path = fixture
    for network, layer, wrong in MISTAKES:
        if network == name:
            result = tmp_path / f"{layer}.h5"
            extension.run_file(path, result, "cpu")
            with h5py.File(result, "r+") as file:
                outputs = file["steps/0/forward"]
                given = outputs[str(int(layer) - 1)][()]
                outputs[layer][...] = wrong(torch.from_numpy(given)).numpy()
            _, verdict = judge(path, result, diagnosing=False, adequacy=False)
            assert verdict.outcome is Outcome.BUG, (layer, verdict.words)


@pytest.mark.parametrize("name", NETWORKS)
def test_training_is_that_of_torch(name: str) -> None:
    """Read from torch, and a few steps beside it, in float64."""
    torch.manual_seed(1)
    module = NETWORKS[name]().double()
    net = Network.from_torch(module, example=SHAPE, dtype="float64")
    x = torch.randn(SHAPE, dtype=torch.float64)
    target = torch.randn(module(x).shape, dtype=torch.float64)
    optimizer = torch.optim.SGD(module.parameters(), 0.05, momentum=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss = functional.mse_loss(module(x), target)
        loss.backward()
        optimizer.step()
        assert abs(net.step(x.numpy(), target.numpy(), Sgd(0.05, momentum=0.5)) - loss.item()) < 1e-12
    for key, value in module.named_parameters():
        np.testing.assert_allclose(net.parameters[key], value.detach().numpy(), 1e-11, 1e-12)


#: Of volumes, signals and channels: what only torch.export reads
WRITTEN: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...], list[str]]] = {
    "volumes": (lambda x: functional.pad(x, (1, 2, 0, 1, 2, 0), "reflect"), (2, 2, 4, 5, 3), ["reflection_pad2d"] * 2),
    "replicated volumes": (lambda x: functional.pad(x, (1, 2, 3, 1, 2, 0), "replicate"), (2, 2, 4, 5, 3),
                           ["replication_pad2d"] * 2),
    "circular signals": (lambda x: functional.pad(x, (3, 2), "circular"), (2, 3, 7), ["circular_pad"]),
    "circular volumes": (lambda x: functional.pad(x, (1, 1, 2, 1, 0, 3), "circular"), (2, 2, 4, 5, 3),
                         ["circular_pad"]),
    "channels": (lambda x: functional.pad(x, (0, 0, 0, 0, 1, 2), value=1.5), (2, 2, 4, 5), ["constant_pad"]),
    "cropped": (lambda x: functional.pad(x, (-1, 0, 0, -2)), (2, 2, 4, 5), ["constant_pad"]),
    "signals": (lambda x: functional.max_pool1d(x, 3, 2, 1, 2, True), (2, 3, 12), ["max_pool2d"]),
    "means of signals": (lambda x: functional.avg_pool1d(x, 3, 2, 1, True, False), (2, 3, 12), ["avg_pool2d"]),
    "maxima of signals": (lambda x: functional.adaptive_max_pool1d(x, 5), (2, 3, 12), ["adaptive_max_pool2d"]),
    "longer signals": (lambda x: functional.interpolate(x, 17, mode="linear"), (2, 3, 12), ["interpolate"]),
    "shorter signals": (lambda x: functional.interpolate(x, scale_factor=0.4, mode="nearest-exact"), (2, 3, 12),
                        ["interpolate"]),
    "of another size": (lambda x: functional.interpolate(x, scale_factor=1.3, mode="bicubic",
                                                         recompute_scale_factor=True), (2, 2, 4, 5), ["interpolate"])}


class Written(nn.Module):
    """A function of what a layer gives."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], width: int) -> None:
        super().__init__()
        self.first, self.function = nn.Linear(width, width), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.first(x))


@pytest.mark.parametrize("name", WRITTEN)
def test_they_are_read(name: str) -> None:
    function, shape, kinds = WRITTEN[name]
    torch.manual_seed(1)
    module = Written(function, shape[-1])
    net = Network.from_torch(module, example=shape)
    assert [one.kind for one in net.model.layers if one.kind not in ("linear", "reshape")] == kinds
    x = torch.randn(shape)
    np.testing.assert_allclose(net.forward(x.numpy()), module(x).detach().numpy(), 1e-5, 1e-6)
