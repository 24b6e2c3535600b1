# SPDX-License-Identifier: MIT
"""Networks that torch.export reads, in Fortran: output, gradients, a step, and back as the module that was read."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bridge import ArgumentError, EngineError, Network
from tests.helpers.networks.exported_networks import NETWORKS, Attention, Unet, conv
from tests.helpers.tiers import few

FAST = {"unet", "windows", "moved", "attention", "signal", "gate", "generator", "features"}


def close(found: np.ndarray, wanted: torch.Tensor, least: float = 1e-3) -> bool:
    """To what rounding in float64 and a constant of torch's kernels in float32 make of it."""
    value = wanted.detach().numpy()
    return found.size == value.size and bool(
        np.abs(found.reshape(value.shape) - value).max() <= 1e-7 * max(np.abs(value).max(), least))


@pytest.mark.parametrize("name", few(NETWORKS, FAST.__contains__))
def test_it_learns_as_torch_does(name: str) -> None:
    """Output, gradients of input and parameters, one step of SGD, other buffers; in evaluation, too."""
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    module = make().double()
    net = Network.from_torch(module, example=shape)
    x = torch.randn((shape[0] + 1, *shape[1:]), dtype=torch.float64, requires_grad=True)
    y = module(x)
    target = torch.randn(y.shape, dtype=torch.float64)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    nn.functional.mse_loss(y, target).backward()
    assert close(net.forward(x.detach().numpy()), y)
    net.loss(target.numpy())
    of_input = net.backward()
    assert x.grad is not None and close(of_input, x.grad)
    grads = {name: one.grad for name, one in module.named_parameters()}
    largest = max(float(one.abs().max()) for one in grads.values() if one is not None)
    for parameter, found in net.gradients.items():
        one = grads.get(parameter, grads.get("_".join(parameter.rsplit(".", 1))))
        if ".constant" in parameter:
            continue
        assert one is not None and close(found, one, largest), parameter
    # The passes have changed what batch normalisations keep
    net = Network.from_torch(copy.deepcopy(module), example=shape)
    net.step(x.detach().numpy(), target.numpy(), lr=0.1)
    optimizer.zero_grad()
    nn.functional.mse_loss(module(x), target).backward()
    optimizer.step()
    back = net.to_torch()
    assert type(back) is type(module) and back.state_dict().keys() == module.state_dict().keys()
    for one, value in module.state_dict().items():
        if "num_batches" not in one:
            assert close(back.state_dict()[one].numpy(), value), one
    module.eval()
    assert close(net.eval().forward(x.detach().numpy()), module(x))
    assert close(back.eval()(x).detach().numpy(), module(x))


def test_an_array_is_an_example_as_its_shape_is() -> None:
    """Of one input it need not lie in a list."""
    module = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2)).double()
    words = np.array([[0, 4]])
    for example in (words, torch.from_numpy(words), [words]):
        net = Network.from_torch(module, example=example)
        assert close(net.forward(words), module(torch.from_numpy(words)))



def test_parameters_have_the_names_of_the_state_dict() -> None:
    module = Unet()
    net = Network.from_torch(module, example=(2, 1, 8, 12))
    assert set(net.parameters) == {name for name, _ in module.named_parameters()}
    assert [one.name for one in net.model.layers][:4] == ["down.conv", "down.norm", "down.act", "pool"]


def test_it_is_saved_and_read(tmp_path: Path) -> None:
    net = Network.from_torch(Unet(), example=(2, 1, 8, 12))
    net.save(tmp_path / "unet.h5")
    x = np.random.default_rng(0).standard_normal((3, 1, 16, 8)).astype(np.float32)
    assert np.array_equal(Network.from_file(tmp_path / "unet.h5").forward(x), net.forward(x))


def test_what_depends_on_the_size_says_so(tmp_path: Path) -> None:
    """The batch is free, the size is not: in Fortran, in Python, from a file."""
    torch.manual_seed(0)
    module = nn.Sequential(conv(1, 4), Attention(4, 2))
    net = Network.from_torch(module, example=(2, 1, 4, 6))
    net.save(tmp_path / "net.h5")
    for one in (net, Network.from_file(tmp_path / "net.h5")):
        x = torch.randn(5, 1, 4, 6)
        assert np.allclose(one.forward(x.numpy()), module(x).detach().numpy(), atol=1e-5)
        for shape in ((5, 1, 6, 4), (5, 1, 8, 6), (5, 1, 2, 12)):
            with pytest.raises(EngineError, match=r"images of the shape \(1, 4, 6\) at which the network was read"):
                one.forward(np.zeros(shape, np.float32))
        with pytest.raises(Exception, match=r"images of the shape \(1, 4, 6\) at which the network was read"):
            one.model.output_shapes((5, 1, 2, 12))


def test_without_an_example_it_is_said_what_is_missing() -> None:
    with pytest.raises(ArgumentError, match=r"given the shape of an input \(example\), torch.export may read it"):
        Network.from_torch(Unet())
