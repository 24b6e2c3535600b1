# SPDX-License-Identifier: MIT
"""Training steps of whole networks, the same on every device, beside PyTorch in float64 and its rounding bounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.engine.arrays.transfer import to_device, to_host
from tests.helpers.cases import Array, batch, check, three_layers, torch_step
from tests.helpers.networks.parity_tools import fused, loss_and_gradients, on_host, sized

Maker = Callable[[], nn.Sequential]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
KEEP = pytest.mark.parametrize("keep", [True, "after_relu"], ids=["all", "after ReLU"])


def one_convolution() -> nn.Sequential:
    """2 -> 5 channels; every length is different."""
    torch.manual_seed(5)
    return nn.Sequential(OrderedDict(conv=nn.Conv2d(2, 5, (3, 4), padding=(0, 1))))


def three_convolutions() -> nn.Sequential:
    """1 -> 16 -> 16 -> 1, the network of the reference."""
    return three_layers(3)


def odd_convolutions() -> nn.Sequential:
    """Strides, paddings, dilations, groups, no bias, a ReLU at the end."""
    torch.manual_seed(6)
    return nn.Sequential(OrderedDict(
        a=nn.Conv2d(2, 6, (3, 4), stride=(2, 1), padding=(1, 3)), r=nn.ReLU(),
        b=nn.Conv2d(6, 9, (2, 5), dilation=(2, 1), groups=3, bias=False), s=nn.ReLU(),
        c=nn.Conv2d(9, 4, (4, 1), stride=(1, 3), padding=(2, 0)), t=nn.ReLU()))


def wide_convolutions() -> nn.Sequential:
    """3 -> 32 -> 256 -> 2."""
    torch.manual_seed(7)
    return nn.Sequential(OrderedDict(
        a=nn.Conv2d(3, 32, 3, padding=1), r=nn.ReLU(), b=nn.Conv2d(32, 256, 3, padding=1), s=nn.ReLU(),
        c=nn.Conv2d(256, 2, 1)))


NETWORKS: dict[Maker, tuple[int, ...]] = {
    one_convolution: sized((3, 2, 7, 6), (3, 2, 127, 118)),
    three_convolutions: sized((2, 1, 9, 11), (2, 1, 229, 251)),
    odd_convolutions: sized((3, 2, 12, 13), (3, 2, 125, 142)),
    wide_convolutions: sized((2, 3, 5, 4), (2, 3, 45, 54)),
}
MAKERS = pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)


def data(net: bridge.Network, shape: tuple[int, ...], seed: int = 1) -> tuple[Array, Array]:
    """Input and target."""
    y = net.to_torch()(torch.zeros(shape, dtype=getattr(torch, net.dtype))).shape
    return batch(shape, net.dtype, seed), batch(tuple(y), net.dtype, seed + 1000)


def check_step(net: bridge.Network, x: Array, target: Array) -> None:
    """Loss, outputs and gradients of one step, all that exist."""
    judged = torch_step(on_host(net), x, target)
    loss, found = loss_and_gradients(net, x, target)
    value, bound = judged.pop("loss")
    assert abs(loss - value) <= bound
    assert set(judged) - set(found) == {f"output/{name}" for name in fused(net)}
    judged = {name: judged[name] for name in found}
    check(found, judged, net.dtype)


@MAKERS
@DTYPES
@KEEP
def test_outputs_and_gradients(make: Maker, dtype: torch.dtype, keep: bool | str, device: str) -> None:
    """Forward in training, weight, bias and input gradients of one and of three layers."""
    net = bridge.Network.from_torch(make().to(dtype), device=device, keep_activations=keep)
    check_step(net, *data(net, NETWORKS[make]))


@KEEP
def test_backward_again_gives_the_same_bits(keep: bool | str, device: str) -> None:
    """Gradients are set, not added to, by `backward` as by a whole step."""
    net = bridge.Network.from_torch(three_layers(2), device=device, keep_activations=keep)
    x, target = data(net, NETWORKS[three_convolutions])
    loss, first = loss_and_gradients(net, x, target)
    dx = to_host(net.backward())
    assert np.array_equal(dx, first["gradient/input"])
    for name, array in net.gradients.items():
        assert np.array_equal(to_host(array), first[name]), name
    again, found = loss_and_gradients(net, x, target)
    assert again == loss
    for name, array in found.items():
        assert np.array_equal(array, first[name]), name


@MAKERS
@DTYPES
def test_a_lean_network_learns_the_same(make: Maker, dtype: torch.dtype, device: str) -> None:
    """Three steps with momentum beside a fused network: the losses to the bit, and weights that rounding of the bias
    gradients alone may part."""
    nets = [bridge.Network.from_torch(make().to(dtype), device=device, keep_activations=keep)
            for keep in ("after_relu", False)]
    for name, array in nets[0].parameters.items():
        nets[1].parameters[name][...] = array
    for step in range(3):
        x, target = (to_device(array, device) for array in data(nets[0], NETWORKS[make], seed=step))
        losses = [net.step(x, target, lr=2.0**-6, momentum=0.5) for net in nets]
        assert losses[1] == pytest.approx(losses[0], rel=1e-6)
        assert step or losses[0] == losses[1]
    for name, array in nets[0].parameters.items():
        expected, found = to_host(array), to_host(nets[1].parameters[name])
        assert np.allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max()), name
    nets[1].forward(x)
    nets[1].loss(target)
    assert nets[1].backward() is None


@pytest.mark.deep
@KEEP
def test_a_denoiser_learns(keep: bool | str, device: str) -> None:
    """From noisy to clean images: in the end it does better than to leave them as they are, and the loss falls."""
    torch.manual_seed(0)
    net = bridge.Network.from_torch(three_layers(8, 8), device=device, keep_activations=keep)
    x, clean = noisy(*sized((16, 12), (96, 80)))
    noise = float(np.mean((x - clean) ** 2))
    moved = to_device(x, device), to_device(clean, device)
    losses = [net.step(*moved, lr=0.05, momentum=0.9) for _ in range(150)]
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.1 * noise and losses[-1] < 0.1 * losses[0]


def noisy(height: int, width: int) -> tuple[Array, Array]:
    """Four smooth images with noise, and without."""
    rng = np.random.default_rng(0)
    row, column = np.mgrid[:height, :width] / max(height, width)
    waves = [np.sin(2 * np.pi * (a * row + b * column + c)) for a, b, c in rng.uniform(0.5, 1.5, (4, 3))]
    clean = np.stack(waves)[:, None].astype(np.float32)
    return clean + 0.5 * rng.standard_normal(clean.shape).astype(np.float32), clean
