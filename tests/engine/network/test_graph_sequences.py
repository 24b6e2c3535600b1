# SPDX-License-Identifier: MIT
"""Fused sequences of convolutions inside graphs: the same numbers as a network that computes node by node."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.common.errors import EngineError
from bridge.exchange.model import Conv2d, Model, Operation, Relu
from bridge.operations.arithmetic import Add
from bridge.operations.joins import Concat
from bridge.operations.pointwise import LeakyRelu
from bridge.operations.pooling import MaxPool2d
from bridge.operations.resizing import UpsampleNearest2d
from tests.helpers.cases import Array
from tests.helpers.tiers import few

CHANNELS = 4
#: Images of one window, and of several chunks and windows
SMALL, LARGE = (2, 3, 12, 10), (1, 3, 96, 80)


def draw(rng: np.random.Generator, nodes: int) -> Model:
    """A random graph, mostly of convolutions and ReLUs one behind the other; what nobody has taken is added up."""
    layers: list[Operation] = [Conv2d("n0", 3, CHANNELS, (3, 3), padding=(1, 1), inputs=("input",))]
    for i in range(1, nodes):
        name, before = f"n{i}", f"n{i - 1}"
        any_before = f"n{rng.integers(i)}"
        other = any_before if rng.random() < 0.4 else before
        kind, after_relu = rng.random(), isinstance(layers[-1], Relu)
        if kind < 0.08:
            layers.append(LeakyRelu(name, inputs=(other,)))
        elif kind < 0.2:
            layers.append(Add(name, inputs=(before, any_before)))
        elif kind < 0.3:
            layers += [MaxPool2d(name + "p", (2, 2), (2, 2), inputs=(other,)),
                       UpsampleNearest2d(name + "u", (2, 2), inputs=(name + "p",)),
                       Concat(name + "c", inputs=(name + "u", any_before)),
                       Conv2d(name, 2 * CHANNELS, CHANNELS, (3, 3), padding=(1, 1), inputs=(name + "c",))]
        elif kind < 0.6 or after_relu:
            layers.append(Conv2d(name, CHANNELS, CHANNELS, (3, 3), padding=(1, 1), bias=bool(rng.random() < 0.7),
                                 inputs=(other,)))
        else:
            layers.append(Relu(name, inputs=(other,)))
    taken = {one for layer in layers for one in layer.inputs}
    ends = [layer.name for layer in layers if layer.name not in taken]
    for i, (a, b) in enumerate(itertools.pairwise(ends)):
        layers.append(Add(f"s{i + 1}", inputs=(f"s{i}" if i else a, b)))
    return Model(tuple(layers))


def networks(model: Model, device: str) -> list[bridge.Network]:
    """One that computes node by node, and the two that fuse; the same weights."""
    rng = np.random.default_rng(5)
    kept: tuple[bridge.engine.network.arguments.Keep, ...] = (True, "after_relu", False)
    found = [bridge.Network(model, "float64", device, keep_activations=keep) for keep in kept]
    for name, values in found[0].parameters.items():
        drawn = rng.normal(size=values.shape) / 4
        for net in found:
            net.parameters[name][...] = drawn
    return found


def assert_same(model: Model, shape: tuple[int, int, int, int], device: str) -> None:
    """Outputs and losses to the bit, parameter gradients as far as another order of float64 sums can be."""
    rng = np.random.default_rng(6)
    plain, *fused = networks(model, device)
    for size in (shape, (shape[0], shape[1], shape[2] + 2, shape[3])):
        x = rng.normal(size=size)
        y = plain.forward(x)
        target = rng.normal(size=y.shape)
        loss = plain.loss(target)
        plain.backward()
        for net in fused:
            assert np.array_equal(net.forward(x), y)
            for layer in model.layers:
                assert_output(net, layer.name, plain.output(layer.name))
            assert net.loss(target) == loss
            net.backward()
            for name, right in plain.gradients.items():
                np.testing.assert_allclose(net.gradients[name], right, 0, 1e-12 * np.abs(right).max() + 1e-300, name)


def assert_output(net: bridge.Network, layer: str, right: Array) -> None:
    """What can be had is right; what cannot, says why."""
    try:
        found = net.output(layer)
    except EngineError as error:
        assert net.keep_activations is False or "computed together with its ReLU" in str(error)
    else:
        assert np.array_equal(found, right), layer


@pytest.mark.parametrize("device", ["cpu", "naive"])
@pytest.mark.parametrize("seed", few(range(150), 12))
def test_random_graphs(seed: int, device: str) -> None:
    rng = np.random.default_rng(seed)
    model = draw(rng, int(rng.integers(5, 25)))
    assert_same(model, LARGE if device == "cpu" and seed % 2 else SMALL, device)


class Denoiser(nn.Module):
    """The noise is what four convolutions find."""

    def __init__(self) -> None:
        super().__init__()
        self.noise = nn.Sequential(*(layer for a, b in ((1, 8), (8, 8), (8, 8)) for layer in (
            nn.Conv2d(a, b, 3, padding=1), nn.ReLU())), nn.Conv2d(8, 1, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.noise(x)


class Unet(nn.Module):
    """Two convolutions before, below, and behind the concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.low, self.up = (nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())
            for a, b in ((1, 8), (8, 16), (24, 8)))
        self.last = nn.Conv2d(8, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x)
        low = nn.functional.interpolate(self.low(nn.functional.max_pool2d(x, 2)), scale_factor=2)
        return self.last(self.up(torch.cat((low, x), 1)))


@pytest.mark.parametrize(("module", "sequences"), [
    (Denoiser, ["noise.0 .. noise.6"]), (Unet, ["down.0 .. down.2", "low.0 .. low.2", "up.0 .. last"])])
def test_networks_with_skips_go_depth_first(module: type[nn.Module], sequences: list[str]) -> None:
    torch.manual_seed(0)
    net = bridge.Network.from_torch(module(), keep_activations=False, example=(1, 1, 64, 48))
    x = np.random.default_rng(1).normal(size=(1, 1, 64, 48)).astype(np.float32)
    y = net.forward(x)
    plan = net.plan((2, 1, 128, 96))
    assert [line.partition(":")[0] for line in plan] == sequences
    assert all("outputs depth first" in line and "gradients depth first" in line for line in plan)
    # What was asked about another size changes nothing between the passes
    assert net.loss(np.zeros_like(y)) == pytest.approx(float((y.astype(np.float64)**2).mean()))
    assert net.backward() is None
    assert all(np.isfinite(values).all() and values.any() for values in net.gradients.values())
