# SPDX-License-Identifier: MIT
"""Graphs that keep only what training needs: the same numbers to the bit, in less memory."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import bridge
from benchmarks.validator import random_graphs
from bridge import EngineError
from bridge.common.errors import DivergenceError
from bridge.engine.arrays.transfer import to_device, to_host
from tests.helpers.library import fortran_program
from tests.helpers.peak_memory import growth
from tests.helpers.tiers import few
from tests.helpers.torch_graphs import Denoiser, Resnet, Unet

SHAPE = (2, 1, 12, 10)


class Twisted(nn.Module):
    """Where memory is shared, and must not be: outputs and an input that several take, the sum of a tensor with itself,
    operations in place one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.again = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.last = nn.Conv2d(9, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = torch.tanh(self.conv(x))
        b = torch.sigmoid(functional.leaky_relu(torch.relu(a + a) + a, 0.1))
        c = functional.leaky_relu(self.again(b) + b, 0.5)
        return self.last(torch.cat((c, b + c, x), 1))


class Joined(nn.Module):
    """Where outputs are found again for the backward pass, and lie in concatenations: one twice in the same, one in
    two, a concatenation in another, one that two read, one behind which something works in place, paddings."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.low = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.twice, self.outer = nn.Conv2d(8, 4, 1), nn.Conv2d(13, 4, 3, padding=1)
        self.a, self.b, self.c = nn.Conv2d(8, 3, 1), nn.Conv2d(8, 3, 3, padding=1), nn.Conv2d(8, 4, 3)
        self.d, self.last = nn.Conv2d(8, 2, 1), nn.Conv2d(13, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = _leaky(self.first(x))
        low = _leaky(self.low(functional.max_pool2d(first, 2)))
        large = _larger(first)
        twice = _leaky(functional.max_pool2d(self.twice(torch.cat((large, large), 1)), 2))
        inner = torch.cat((x, _larger(low)), 1)
        outer = _leaky(self.outer(torch.cat((twice, inner, _larger(low, "bilinear")), 1)))
        up = _larger(low)
        read = torch.cat((up, outer), 1)
        padded = functional.pad(torch.cat((outer, up), 1), (1, 1, 1, 1), "reflect")
        behind = torch.relu(torch.cat((_larger(low), self.a(read) + self.b(read)), 1))
        return self.last(torch.cat((behind, self.c(padded), self.d(torch.relu(read))), 1))


class Rectified(nn.Module):
    """ReLUs that convolutions of every kind compute, behind them and before them, and ReLUs that they must not: of what
    two take, before what two take, behind a sum and a concatenation, and without a slope."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.point = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 64, 1)
        self.lanes, self.depth = nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1, groups=64)
        self.second, self.fifth = nn.Conv2d(64, 16, 3, 2, padding=1, bias=False), nn.Conv2d(16, 16, 5, 5, padding=4)
        self.a, self.b, self.c = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(24, 4, 3, padding=2, dilation=2)
        self.d, self.e, self.last = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.point(_leaky(self.first(x))))
        x = _leaky(self.second(_leaky(self.depth(_leaky(self.lanes(x))))))
        a = self.a(torch.relu(self.fifth(x)))
        b = torch.relu(functional.avg_pool2d(a, 1) + self.b(torch.relu(a)))
        both = torch.relu(torch.cat((b, self.d(b), self.e(functional.leaky_relu(b, 0.1))), 1))
        return functional.leaky_relu(self.last(functional.leaky_relu(self.c(both), 1.5)), 0.0)


def _leaky(x: Tensor) -> Tensor:
    return functional.leaky_relu(x, 0.2)


def _larger(x: Tensor, mode: str = "nearest") -> Tensor:
    return functional.interpolate(x, scale_factor=2, mode=mode)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(120, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.conv(functional.pad(x, (1, 1, 1, 1), "reflect"))))
        y = functional.avg_pool2d(functional.max_pool2d(y, 2), 1)
        return torch.softmax(self.linear(torch.flatten(y, 1)), 1)


def both(module: nn.Module, device: str = "cpu") -> tuple[bridge.Network, bridge.Network]:
    """One that keeps everything, and one that keeps what training needs, whose masks of dropout are the same."""
    plain, planned = (bridge.Network.from_torch(module, device=device, keep_activations=keep, example=SHAPE)
                      for keep in (True, False))
    plain.masks.generator, planned.masks.generator = np.random.default_rng(7), np.random.default_rng(7)
    return plain, planned


def assert_same(plain: bridge.Network, planned: bridge.Network, shape: tuple[int, ...], seed: int) -> None:
    """A step, and a pass without one, give the same numbers to the bit."""
    rng = np.random.default_rng(seed)
    x = to_device(rng.normal(size=shape).astype(np.float32), plain.device)
    y, other = plain.forward(x), planned.forward(x)
    assert_bits(to_host(y), to_host(other))
    target = to_device(rng.normal(size=y.shape).astype(np.float32), plain.device)
    assert plain.step(x, target, lr=0.01, momentum=0.9) == planned.step(x, target, lr=0.01, momentum=0.9)
    for kept, found in ((plain.gradients, planned.gradients), (plain.parameters, planned.parameters),
                        (plain.buffers, planned.buffers)):
        for name in kept:
            assert_bits(to_host(kept[name]), to_host(found[name]), name)


def assert_bits(one: np.ndarray, other: np.ndarray, name: str = "") -> None:
    """Also the signs of zeros are the same."""
    np.testing.assert_array_equal(one, other, name)
    assert one.tobytes() == other.tobytes(), name


NETWORKS = (Twisted, Joined, Rectified, Classifier, Unet, Resnet, Denoiser)


@pytest.mark.parametrize("network", NETWORKS)
def test_steps_are_those_of_a_network_that_keeps_everything(network: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    plain, planned = both(network())
    # Another batch, and then other images, are planned anew
    shapes = [SHAPE, SHAPE, (3, *SHAPE[1:])] + ([] if network is Classifier else [(1, 1, 16, 14), SHAPE])
    for seed, shape in enumerate(shapes):
        assert_same(plain, planned, shape, seed)


def test_infinities_and_nan() -> None:
    torch.manual_seed(0)
    plain, planned = both(Rectified())
    x = np.ones(SHAPE, np.float32)
    # Sums overflow, and further on infinities are subtracted
    x[0, 0, 3, 4], x[1, 0, 2, 7] = 3e38, -3e38
    plain.parameters["first.weight"][...] *= 10
    planned.parameters["first.weight"][...] *= 10
    y = plain.forward(x)
    assert np.isinf(plain.output("first")).any() and np.isnan(y).any()
    np.testing.assert_array_equal(y, planned.forward(x))


def test_large_images() -> None:
    """Whose tensors are written past the caches, where they are not overwritten."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 32, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
    plain, planned = both(nn.Sequential(*layers, nn.Conv2d(32, 1, 1)))
    assert_same(plain, planned, (1, 1, 256, 256), 0)


@pytest.mark.parametrize("network", few(NETWORKS, 1))
def test_on_cuda(cuda: str, network: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    plain, planned = both(network(), cuda)
    for seed in range(3):
        assert_same(plain, planned, SHAPE, seed)


@pytest.mark.parametrize("seed", few(range(40), 1))
def test_random_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    drawn = 0
    while drawn < 5:
        layers = random_graphs.draw_layers(rng, SHAPE)
        if not layers:
            continue
        drawn += 1
        plain, planned = both(random_graphs.Network(layers))
        for step in range(2):
            try:
                assert_same(plain, planned, SHAPE, step)
            except DivergenceError:
                # A few of them diverge, and then in the second step: one was the same
                assert step == 1


def test_only_the_last_output_is_kept() -> None:
    _, net = both(Twisted())
    x = np.ones(SHAPE, np.float32)
    y = net.forward(x)
    np.testing.assert_array_equal(net.output("last"), y)
    with pytest.raises(EngineError, match="output: 'again' is not kept, expected 'last', or a network with keep_act"):
        net.output("again")
    net.loss(x)
    assert net.backward() is None
    np.testing.assert_array_equal(net.output("last"), y)
    with pytest.raises(EngineError, match="output_gradient: that of 'again' is not kept"):
        net.output_gradient("again")
    with pytest.raises(EngineError, match="call forward first"):
        net.loss(x)
    net.update(lr=0.1)


def test_buffers_that_are_needed_at_the_same_time_lie_apart(tmp_path: Path) -> None:
    """At random, and nothing lies higher than all of them one behind the other; nothing lower than at one time."""
    program = fortran_program.build(fortran_program.PROGRAMS / "place_buffers.f90", tmp_path)
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 40, 40, 40):
        size = rng.integers(1, 5000, count)
        # Some of them twice; others never again
        times = np.cumsum(rng.integers((0, 0, 1, 0), (15, 6, 15, 6), (count, 4)), axis=1)
        times[rng.random(count) < 0.5, 2:] = (99, -99)
        text = "\n".join(f"{a} {b} {d} {c} {e}" for a, (b, c, d, e) in zip(size, times, strict=True))
        out = subprocess.run([program], input=f"{count}\n{text}\n", capture_output=True, text=True, check=True).stdout
        *offsets, total = map(int, out.split())
        room = -(-size // 256) * 256
        alive = np.array([[b <= t <= c or d <= t <= e for t in range(42)] for b, c, d, e in times])
        for i in range(count):
            assert offsets[i] >= 0 and offsets[i] % 256 == 0 and offsets[i] + room[i] <= total
            for j in range(i):
                together = (alive[i] & alive[j]).any()
                assert not together or offsets[i] + room[i] <= offsets[j] or offsets[j] + room[j] <= offsets[i]
        most = max(int(room[one].sum()) for one in alive.T)
        assert most <= total <= 1.5 * most


#: Without torch, whose import takes most of the time
GRAPH = """
from bridge.operations import Conv2d, LeakyRelu
layers = []
for i in range(4):
    layers += [Conv2d(f"c{{i}}", 16 if i else 1, 16, (3, 3), padding=(1, 1)), LeakyRelu(f"r{{i}}", 0.1)]
net = bridge.Network(bridge.Model((*layers, Conv2d("last", 16, 1, (1, 1)))), keep_activations={keep})
"""


def test_the_peak_of_memory_is_less_than_half() -> None:
    """Four tensors of 16 channels and two gradients, in place of eight and eight."""
    tensor = 16 * 2 * 512 * 512 * 4
    plain, planned = (growth(GRAPH.format(keep=keep)) for keep in (True, False))
    assert 16 * tensor < plain
    assert planned < 8 * tensor


JOIN = """
import torch
from torch import nn
class Join(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.low = self.block(1, 8), self.block(8, 8)
        self.rest = nn.Sequential(self.block(16, 8), self.block(8, 8), self.block(8, 8), nn.Conv2d(8, 1, 1))
    def block(self, a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.LeakyReLU(0.1))
    def forward(self, x):
        x = self.first(x)
        low = self.low(nn.functional.max_pool2d(x, 2))
        return self.rest(torch.cat((x, nn.functional.interpolate(low, scale_factor=2)), 1))
net = bridge.Network.from_torch(Join(), keep_activations=False, example=(1, 1, 8, 8))
"""


def test_a_concatenation_is_not_kept() -> None:
    """Of 8 channels four tensors, one gradient and two halves of one, in place of two tensors more."""
    assert growth(JOIN) < 6.8 * 8 * 2 * 512 * 512 * 4


FIRST = """
from bridge.operations import Conv2d, LeakyRelu
net = bridge.Network(bridge.Model((Conv2d("c", 1, 1, (3, 3), padding=(1, 1)), LeakyRelu("r", 0.1))),
                     keep_activations=False)
"""


def test_nobody_computes_the_gradient_of_the_input() -> None:
    """The output and its gradient, and no gradient of the image."""
    assert growth(FIRST, 2048) < 2.5 * 2 * 2048 * 2048 * 4


def test_an_input_without_memory_leaves_the_network_as_it_was() -> None:
    """17 TB of outputs, more than the offsets of a plan have; 1 PB, more than they are added up for."""
    module = nn.Sequential(nn.Conv2d(1, 16, 1), nn.Upsample(scale_factor=250))
    net = bridge.Network.from_torch(module, keep_activations=False, example=(1, 1, 1, 1))
    small = np.ones((1, 1, 1, 1), np.float32)
    y = net.forward(small)
    for size in (2048, 16000):
        with pytest.raises(EngineError, match="of outputs and gradients, for which there is no memory"):
            net.forward(np.zeros((1, 1, size, size), np.float32))
        np.testing.assert_array_equal(net.forward(small), y)
