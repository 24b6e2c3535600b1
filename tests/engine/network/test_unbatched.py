# SPDX-License-Identifier: MIT
"""One sample without a batch is computed where torch takes one, and is torch's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from bridge import ArgumentError, EngineError, Network
from bridge.exchange.model import Model
from bridge.operations import Dropout


def of_images() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.ConvTranspose2d(4, 1, 2, 2), nn.Tanh())


def of_a_chain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))


def of_vectors() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 3), nn.LeakyReLU(), nn.Linear(3, 8))


@pytest.mark.parametrize(("make", "shape"), [(of_images, (1, 8, 6)), (of_a_chain, (1, 8, 6)), (of_vectors, (8,))])
def test_a_sample_is_computed_as_torch_does(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module = make().double()
    net = Network.from_torch(module)
    assert Network.from_torch(module, example=shape).model == net.model
    x, target = torch.rand(shape, dtype=torch.float64, requires_grad=True), torch.rand(shape, dtype=torch.float64)
    y = module(x)
    loss = ((y - target) ** 2).mean()
    loss.backward()
    assert x.grad is not None
    np.testing.assert_allclose(net.forward(x.detach().numpy()), y.detach().numpy(), rtol=1e-12)
    assert net.loss(target.numpy()) == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose(net.backward(), x.grad.numpy(), rtol=1e-12, atol=1e-15)
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        np.testing.assert_allclose(net.gradients[name], parameter.grad.numpy(), rtol=1e-12, atol=1e-15)
    with torch.no_grad():
        assert net.output("0").shape == net.output_gradient("0").shape == module[0](x).shape  # type: ignore[operator]
    sample = x.detach().numpy(), target.numpy()
    net.feed(*sample)
    assert net.step(lr=0) == net.step(*sample, lr=0) == net.step(*(one[None] for one in sample), lr=0)


def test_a_batch_and_a_sample_are_not_mixed() -> None:
    net, sample = Network.from_torch(of_images()), np.ones((1, 8, 6), np.float32)
    net.forward(sample)
    with pytest.raises(ArgumentError, match=r"target: 4 dimensions, .*expected 3"):
        net.loss(sample[None])
    net.forward(sample[None])
    with pytest.raises(ArgumentError, match=r"target: 3 dimensions, .*expected 4"):
        net.loss(sample)
    with pytest.raises(ArgumentError, match=r"target: 4 dimensions, .*expected 3"):
        net.feed(sample, sample[None])


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(4), nn.Softmax(1), nn.Upsample(scale_factor=2), nn.Flatten()])
def test_what_torch_does_not_take_or_takes_otherwise_is_refused(layer: nn.Module) -> None:
    net = Network.from_torch(nn.Sequential(nn.Conv2d(1, 4, 3), layer))
    with pytest.raises(EngineError, match=r"input \(1, 8, 6\), expected a shape \(n, c, h, w\)"):
        net.forward(np.ones((1, 8, 6), np.float32))


def test_cross_entropy_would_take_the_channels_for_images() -> None:
    net = Network.from_torch(of_images(), loss="cross_entropy")
    with pytest.raises(EngineError, match="expected a shape"):
        net.forward(np.ones((1, 8, 6), np.float32))


def test_a_dropout_of_one_dimension() -> None:
    """The least that a layer may take."""
    y = Network(Model((Dropout("d", 0.5),))).forward(np.ones(64, np.float32))
    assert y.shape == (64,) and set(y.tolist()) == {0.0, 2.0}
