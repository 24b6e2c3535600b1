# SPDX-License-Identifier: MIT
"""A network that is switched to evaluation and back computes what torch's module computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bridge import ArgumentTypeError, EngineError, Network
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.exchange.file import ExchangeFile

SHAPE = (3, 2, 8, 6)


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5),
                         nn.BatchNorm2d(4, track_running_stats=False), nn.Conv2d(4, 2, 1)).double()


def given() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, t = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in (SHAPE, (3, 2, 6, 4)))
    return x, t


def trained(device: str = "cpu", **more: Any) -> tuple[nn.Module, Network]:
    """Whose running statistics are those of a batch."""
    torch_module, (x, _) = module(), given()
    net = Network.from_torch(torch_module, device=device, **more)
    torch_module(x)
    net.forward(to_device(x.numpy(), device))
    return torch_module, net


@pytest.mark.parametrize("keep", [True, False])
def test_evaluation_is_torchs(keep: bool) -> None:
    torch_module, net = trained(keep_activations=keep)
    x, t = given()
    torch_module.eval()
    assert net.eval() is net and not net.training
    before = {name: value.copy() for name, value in net.buffers.items()}
    y = torch_module(x)
    np.testing.assert_allclose(net.forward(x.numpy()), y.detach().numpy(), rtol=1e-12, atol=1e-14)
    loss = ((y - t) ** 2).mean()
    loss.backward()
    assert net.loss(t.numpy()) == pytest.approx(loss.item(), rel=1e-12)
    net.backward()
    for name, parameter in torch_module.named_parameters():
        assert parameter.grad is not None
        np.testing.assert_allclose(net.gradients[name], parameter.grad.numpy(), rtol=1e-10, atol=1e-14, err_msg=name)
    for name, value in before.items():
        np.testing.assert_array_equal(net.buffers[name], value, name)


def test_training_goes_on_behind_it() -> None:
    """To the bit, as without it, and the masks are drawn again."""
    (_, net), (_, other) = trained(), trained()
    x, t = (one.numpy() for one in given())
    mask = np.random.default_rng(0).integers(0, 2, (3, 4, 6, 4)).astype(np.float64)
    net.eval().forward(x)
    net.train()
    for one in (net, other):
        one.masks.give({"3": mask})
        one.step(x, t, lr=0.1)
    for name in net.parameters:
        np.testing.assert_array_equal(net.parameters[name], other.parameters[name], name)
    for name in net.buffers:
        np.testing.assert_array_equal(net.buffers[name], other.buffers[name], name)
    np.testing.assert_array_equal(net.masks["3"], mask)


def test_one_number_of_a_channel_is_enough() -> None:
    net = Network.from_torch(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), example=(2, 1, 3, 3))
    one = np.ones((1, 1, 3, 3), np.float32)
    with pytest.raises(EngineError, match="expected more than one number in each channel"):
        net.forward(one)
    assert net.eval().forward(one).shape == (1, 2, 1, 1)


def test_a_network_is_saved_as_it_was_made(tmp_path: Path) -> None:
    _, net = trained()
    net.eval().save(tmp_path / "net.h5")
    with ExchangeFile(tmp_path / "net.h5") as file:
        assert file.model == net.model.joined()
    assert Network.from_file(tmp_path / "net.h5").training


def test_a_chain_computes_the_same() -> None:
    net = Network.from_torch(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()))
    x = np.ones((1, 1, 5, 5), np.float32)
    y = net.forward(x)
    np.testing.assert_array_equal(net.eval().forward(x), y)
    with pytest.raises(ArgumentTypeError, match="mode: 1, expected a bool"):
        net.train(1)  # type: ignore[arg-type]


def test_what_was_computed_before_the_switch_is_forgotten() -> None:
    _, net = trained()
    with pytest.raises(EngineError, match="loss: no output yet, call forward first"):
        net.eval().loss(given()[1].numpy())


def test_a_captured_step_is_forgotten(cuda: str) -> None:
    net = Network.from_torch(nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).double(), device=cuda)
    x, t = (to_device(one.numpy(), cuda) for one in given())
    losses = [net.step(x, t, lr=0.0) for _ in range(3)]
    assert net.captured
    losses.append(net.eval().step(x, t, lr=0.0))
    assert not net.captured
    assert len(set(losses)) == 1


def test_evaluation_on_cuda_is_torchs(cuda: str) -> None:
    torch_module, net = trained(cuda)
    x, _ = given()
    y = torch_module.eval()(x).detach().numpy()
    np.testing.assert_allclose(to_host(net.eval().forward(to_device(x.numpy(), cuda))), y, rtol=1e-10, atol=1e-13)
