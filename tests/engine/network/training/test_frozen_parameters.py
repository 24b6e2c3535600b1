# SPDX-License-Identifier: MIT
"""Frozen parameters: no update changes a bit of them, whatever it does to the others, as torch.optim.SGD does."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.library import extension
from tests.helpers.cases import Array, batch, three_layers
from tests.helpers.tiers import few

SHAPE = (2, 1, 6, 7)
DEVICES = pytest.mark.parametrize("device", ["cpu", "naive", "cuda", "cuda,capture=no"])
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
#: Weights and biases apart, next to each other, at both ends, all, none
CHOICES = (("conv1.weight",), ("conv1.bias", "conv2.weight"), ("conv1.weight", "conv2.bias", "conv3.bias"),
           ("conv3.weight", "conv3.bias"), tuple(f"conv{n}.{kind}" for n in (1, 2, 3) for kind in ("weight", "bias")))
SGD = {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05}
KINDS = pytest.mark.parametrize("given", [{}, {"keep_activations": "after_relu"}, {"keep_activations": False}],
                                ids=["all", "after ReLU", "none"])


def network(device: str, cuda: str, dtype: str = "float32", **given: bool) -> bridge.Network:
    return bridge.Network.from_torch(three_layers(1, 3), dtype=dtype, device=device.replace("cuda", cuda), **given)


def images(net: bridge.Network, seed: int) -> tuple[object, object]:
    x, target = batch(SHAPE, net.dtype, seed), batch(SHAPE, net.dtype, seed + 50)
    return to_device(x, net.device), to_device(target, net.device)


def weights(net: bridge.Network) -> dict[str, Array]:
    return {name: to_host(array).copy() for name, array in net.parameters.items()}


@DEVICES
@DTYPES
@KINDS
@pytest.mark.parametrize("frozen", few(CHOICES, 2), ids=" ".join)
def test_steps_leave_frozen_parameters(cuda: str, device: str, dtype: str, given: dict[str, bool],
                                       frozen: tuple[str, ...]) -> None:
    """Not a bit of them changes; each step does to all others what it does where nothing is frozen."""
    net, free = (network(device, cuda, dtype, **given) for _ in range(2))
    net.frozen = frozen
    start = weights(net)
    for seed in range(3):
        x, target = images(net, seed)
        for name, array in weights(net).items():
            free.parameters[name][...] = array
        assert net.step(x, target, **SGD) == free.step(x, target, **SGD)
        changed, expected = weights(net), weights(free)
        for name, array in changed.items():
            right = start[name] if name in frozen else expected[name]
            assert array.tobytes() == right.tobytes(), f"{name}, step {seed}"
            assert np.array_equal(to_host(net.gradients[name]), to_host(free.gradients[name]))
            assert name in frozen or not np.array_equal(array, start[name])


@DTYPES
@pytest.mark.parametrize("sgd", [
    {"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.1}, {"lr": 0.1, "momentum": 0.9, "dampening": 0.4},
    {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}], ids=str)
def test_freezing_in_the_middle_as_torch(dtype: str, sgd: dict[str, float]) -> None:
    """What is frozen for a while keeps its momentum; what was frozen at first starts it at its own first step."""
    net = network("cpu", "", dtype)
    learned = {name: nn.Parameter(torch.from_numpy(array.astype(np.float64))) for name, array in net.parameters.items()}
    optimizer = torch.optim.SGD(list(learned.values()), **sgd)
    for seed, frozen in enumerate([("conv1.weight", "conv3.bias"), (), (), ("conv2.weight", "conv2.bias"), (), ()]):
        net.frozen = frozen
        x, target = images(net, seed)
        net.forward(x)
        net.loss(target)
        net.backward()
        for name, one in learned.items():
            one.grad = None if name in frozen else torch.from_numpy(net.gradients[name].astype(np.float64))
        optimizer.step()
        net.update(**sgd)
        for name, one in learned.items():
            scale = 1e-6 if dtype == "float32" else 1e-14
            assert np.allclose(net.parameters[name], one.detach().numpy(), rtol=0, atol=scale), f"{name}, step {seed}"


@pytest.mark.parametrize("frozen", CHOICES, ids=" ".join)
def test_torch_to_network_and_back(frozen: tuple[str, ...]) -> None:
    """`requires_grad`, weight and bias apart."""
    module = three_layers(1, 3)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in frozen)
    net = bridge.Network.from_torch(module)
    assert net.frozen == frozen
    back = {name: value.requires_grad for name, value in net.to_torch().named_parameters()}
    assert back == {name: name not in frozen for name in net.parameters}
    assert bridge.Network.from_torch(net.to_torch()).frozen == frozen


@DEVICES
def test_a_file_keeps_what_is_frozen(cuda: str, tmp_path: Path, device: str) -> None:
    net = network(device, cuda)
    assert net.frozen == ()
    net.frozen = ["conv2.bias", "conv1.weight"]
    net.save(tmp_path / "net.h5")
    with h5py.File(tmp_path / "net.h5") as file:
        group = file["steps/0/weights"]
        assert {name for name in net.parameters if "frozen" in group[name.replace(".", "/")].attrs} == set(net.frozen)
    again = bridge.Network.from_file(tmp_path / "net.h5", device=net.device)
    assert again.frozen == net.frozen == ("conv1.weight", "conv2.bias")
    again.frozen = ()
    again.save(tmp_path / "net.h5")
    assert bridge.Network.from_file(tmp_path / "net.h5").frozen == ()


@pytest.mark.parametrize("value", [2, -1, 0.5, np.nan, "yes", [1, 1]], ids=str)
def test_another_mark_in_a_file_is_refused(tmp_path: Path, value: object) -> None:
    path = tmp_path / "net.h5"
    network("cpu", "").save(path)
    with h5py.File(path, "r+") as file:
        file["steps/0/weights/conv1/bias"].attrs["frozen"] = value
    with pytest.raises(bridge.EngineError, match=r"net\.h5: attribute frozen of /steps/0/weights/conv1/bias is n"):
        bridge.Network.from_file(path)


@pytest.mark.parametrize("device", ["cpu", "naive", "cuda"])
def test_cnn_step_leaves_frozen_parameters(cuda: str, device: str, small_fixture: Path, tmp_path: Path) -> None:
    """A fixture may say it; so does the result then."""
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    fixture.write_bytes(small_fixture.read_bytes())
    frozen = ("conv1/weight", "conv3/bias")
    with h5py.File(fixture, "r+") as file:
        for name in frozen:
            file[f"steps/0/weights/{name}"].attrs["frozen"] = 1
    extension.run_file(fixture, result, device.replace("cuda", cuda))
    with h5py.File(result) as file:
        for name in ("conv1/weight", "conv1/bias", "conv2/weight", "conv2/bias", "conv3/weight", "conv3/bias"):
            first, last = (file[f"steps/{k}/weights/{name}"] for k in (0, 3))
            assert np.array_equal(first, last) == (name in frozen) == ("frozen" in last.attrs), name
            assert np.any(file[f"steps/2/grads/{name}"][()] != 0)


@pytest.mark.parametrize(("names", "error"), [
    (["conv1"], bridge.ArgumentError), (["conv1.weight", "conv4.bias"], bridge.ArgumentError),
    ([1], bridge.ArgumentError), ("conv1.weight", bridge.ArgumentTypeError), (None, bridge.ArgumentTypeError),
    (True, bridge.ArgumentTypeError)])
def test_only_parameters_can_be_frozen(names: object, error: type[Exception]) -> None:
    """Nothing has changed after a refusal."""
    net = network("cpu", "")
    net.frozen = ["conv2.weight"]
    with pytest.raises(error, match=r"^frozen: .*, expected (parameters of conv1\.weight, |a tuple of names)"):
        net.frozen = names
    assert net.frozen == ("conv2.weight",)
