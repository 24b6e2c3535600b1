# SPDX-License-Identifier: MIT
"""Network: to torch and files and back, views, lifetimes."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import pickle
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from tests.helpers.cases import batch, check, network_step, one_layer, three_layers, torch_step


class Block(nn.Module):
    """A convolution and its rectifier, to be nested."""

    def __init__(self, c: int, k: int, **given: object) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(c, k, (3, 2), **given), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def nested() -> nn.Sequential:
    """Names with dots, groups, a stride, and a layer without bias."""
    torch.manual_seed(5)
    return nn.Sequential(Block(2, 6, stride=(2, 1)), Block(6, 4, groups=2, bias=False, dilation=(1, 2), padding=(1, 3)),
                         nn.Conv2d(4, 3, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [nested, three_layers])
def test_torch_round_trip(make: type[nn.Sequential], dtype: torch.dtype) -> None:
    """Every weight survives torch -> Fortran -> torch bit for bit, under its name."""
    module = make().to(dtype)
    net = bridge.Network.from_torch(module)
    state = module.state_dict()
    assert list(net.parameters) == list(state) == list(net.gradients)
    back = net.to_torch()
    for name, value in state.items():
        assert net.parameters[name].tobytes() == value.numpy().tobytes()
        assert torch.equal(back.state_dict()[name], value)
    x = torch.from_numpy(batch((2, net.model.layers[0].in_channels, 9, 8), net.dtype, 1))
    assert torch.equal(back(x), module(x))


def test_nested_network_against_torch() -> None:
    """A step of the nested network lies within rounding of torch float64."""
    net = bridge.Network.from_torch(nested(), reduction="sum")
    x = batch((3, 2, 11, 9), "float32", 1)
    target = batch(net.forward(x).shape, "float32", 2)
    judged = torch_step(net, x, target)
    value, bound = judged.pop("loss")
    assert abs(net.loss(target) - value) <= bound
    net.backward()
    check(network_step(net), judged, "float32")


def test_a_relu_in_two_places_is_two_layers() -> None:
    """A shared rectifier counts wherever it stands; a shared convolution is refused."""
    relu, conv = nn.ReLU(), nn.Conv2d(1, 1, 1)
    net = bridge.Network.from_torch(nn.Sequential(nn.Conv2d(1, 2, 1), relu, nn.Conv2d(2, 1, 1), relu))
    assert [(layer.name, type(layer)) for layer in net.model.layers] == [
        ("0", bridge.Conv2d), ("1", bridge.Relu), ("2", bridge.Conv2d), ("3", bridge.Relu)]
    with pytest.raises(bridge.ArgumentError, match="module: layer '0' is used twice"):
        bridge.Network.from_torch(nn.Sequential(conv, relu, conv))


@pytest.mark.parametrize(("module", "message"), [
    (nn.Sequential(nn.Conv2d(1, 1, 1), nn.Softsign()), "module: layer '1' is Softsign; supported are "),
    (nn.Sequential(nn.Conv2d(1, 1, 4, padding="same")), "layer '0': padding 'same' of a 4x4 kernel is not the same on"),
    (nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")), "'circular' found, 'zeros' is supported"),
    (nn.Conv2d(1, 1, 1), "the model is a single Conv2d without a name: put it into nn.Sequential"),
    (nn.Sequential(), "the model has no layers that exchange files know"),
    (nn.Sequential(nn.Conv2d(1, 1, 1)).bfloat16(), "dtype: 'bfloat16', expected 'float32'"),
    (nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(1, 1, 1)), "module: .*layer 1: input .* has 2 channels, expected 1"),
])
def test_torch_modules_that_are_refused(module: nn.Module, message: str) -> None:
    """What cannot be the same network is refused with its name."""
    with pytest.raises(bridge.common.errors.BridgeError, match=message):
        bridge.Network.from_torch(module)
    with pytest.raises(bridge.ArgumentError, match="reduction: 'none', expected 'mean' or 'sum'"):
        bridge.Network.from_torch(three_layers(), reduction="none")


def test_weights_load_from_a_file_without_an_optimiser(tmp_path: Path) -> None:
    network = bridge.Network.from_torch(three_layers())
    network.save(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        del file["optimizer"]
    again = bridge.Network.from_file(tmp_path / "a.h5")
    assert all(array.tobytes() == network.parameters[name].tobytes() for name, array in again.parameters.items())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_file_round_trip(tmp_path: Path, dtype: str) -> None:
    """h5py writes -> Fortran reads -> Fortran saves -> h5py reads: model, settings and all bits are the same."""
    rng, path, saved = np.random.default_rng(8), tmp_path / "fixture ü.h5", tmp_path / "saved.h5"
    layers = [{"name": "a.b-c_1", "type": "conv2d", "in_channels": 2, "out_channels": 6, "kernel_size": [4, 3],
               "groups": 2, "bias": True, "padding": [3, 1]}, {"name": "r", "type": "relu"}]
    weights = {"a.b-c_1/weight": rng.standard_normal((6, 1, 4, 3)), "a.b-c_1/bias": rng.standard_normal(6)}
    with h5py.File(path, "w") as file:
        file.attrs.update({"format": "cnn-exchange", "format_version": 1, "precision": dtype, "role": "reference"})
        file["model"] = json.dumps({"layers": layers, "loss": {"type": "mse", "reduction": "sum"}})
        file.create_group("optimizer").attrs.update({"type": "sgd", **dict.fromkeys(vars(bridge.Sgd(0)), 0.0)})
        for step in (0, 1):
            for name, value in weights.items():
                file[f"steps/{step}/weights/{name}"] = (value * (step + 1)).astype(dtype)
    net = bridge.Network.from_file(path, 1)
    assert (net.dtype, net.model.mean, net.model.layers[0].groups) == (dtype, False, 2)
    net.save(saved, bridge.Sgd(0.25, 0.5, 0.0, 0.125, True))
    with h5py.File(saved) as file:
        for name, value in weights.items():
            found = file[f"steps/0/weights/{name}"][()]
            assert found.dtype == dtype and found.tobytes() == (2 * value).astype(dtype).tobytes()
        attributes = file["optimizer"].attrs
        settings = {name: float(attributes[name]) for name in attributes if name != "type"}
    assert settings == {"lr": 0.25, "momentum": 0.5, "dampening": 0.0, "weight_decay": 0.125, "nesterov": 1.0}
    # Saved is an optimiser that remembers, and that this network has none of its memory
    again = bridge.Network.from_file(saved)
    assert again.model == net.model
    assert all(again.parameters[name].tobytes() == net.parameters[name].tobytes() for name in net.parameters)
    with pytest.raises(bridge.common.errors.BridgeError, match=re.escape(str(path))):
        bridge.Network.from_file(path, 2)


def test_parameters_and_gradients_are_views() -> None:
    """Writing through a view changes the network; addresses stay the same in all calls."""
    net = one_layer()
    views = {**net.parameters, **{f"d{name}": array for name, array in net.gradients.items()}}
    places = {name: array.ctypes.data for name, array in views.items()}
    net.parameters["a.weight"][...] = np.array([2, -3]).reshape(2, 1, 1, 1)
    net.parameters["a.bias"][1] = 5
    for size in ((1, 1, 2, 3), (4, 1, 5, 2)):
        x = batch(size, "float32", 1)
        y = net.forward(x)
        assert np.array_equal(y, np.maximum(np.concatenate([2 * x, np.float32(5) - 3 * x], 1), 0))
        net.step(x, y, lr=0.0, momentum=0.5)
    now = {**net.parameters, **{f"d{name}": array for name, array in net.gradients.items()}}
    assert places == {name: array.ctypes.data for name, array in now.items()}
    assert all(np.shares_memory(views[name], now[name]) and now[name].flags.writeable for name in views)
    spans = sorted((place, place + views[name].nbytes) for name, place in places.items())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_results_are_copies() -> None:
    """What forward, backward, output and output_gradient give does not change with the next step."""
    net = bridge.Network.from_torch(three_layers(1, 3))
    x, target = batch((2, 1, 5, 6), "float32", 1), batch((2, 1, 5, 6), "float32", 2)
    y = net.forward(x)
    net.loss(target)
    given = [y, net.backward(), net.output("conv2"), net.output_gradient("conv2")]
    before = [array.copy() for array in given]
    net.step(2 * x, target, lr=0.5)
    assert all(np.array_equal(a, b) for a, b in zip(before, given, strict=True))


def test_views_outlive_the_network() -> None:
    """A view alone keeps the memory; with the last view the place is given back and used again."""
    gc.collect()
    net = one_layer()
    handle, view = net._handle, net.parameters["a.weight"]
    view[...] = 7
    del net
    gc.collect()
    others = [one_layer() for _ in range(5)]
    assert handle not in [one._handle for one in others]
    assert np.all(view == 7) and np.array_equal(view[:1] * 2, np.full((1, 1, 1, 1), 14, np.float32))
    del view
    gc.collect()
    assert one_layer()._handle == handle


def test_nothing_leaks() -> None:
    """2000 networks with all their tensors leave the process as it was, and use one place."""
    model = bridge.Model((bridge.Conv2d("a", 1, 16, (3, 3)), bridge.Relu("r"), bridge.Conv2d("b", 16, 16, (3, 3))))
    x, target = batch((1, 1, 12, 14), "float32", 1), batch((1, 16, 8, 10), "float32", 2)

    def live(times: int) -> set[int]:
        handles = set()
        for _ in range(times):
            net = bridge.Network(model)
            net.step(x, target, lr=0.1, momentum=0.5)
            handles.add(net._handle)
            del net
        return handles

    live(200)
    gc.collect()
    before = resident_bytes()
    assert len(live(2000)) == 1
    gc.collect()
    # The smallest large tensor, one of weights, 2000 times
    leak = 2000 * 16 * 16 * 9 * 4
    assert resident_bytes() - before < leak / 4


def resident_bytes() -> int:
    """Memory of this process."""
    status = Path("/proc/self/status")
    if not status.is_file():
        pytest.skip("skipped, because the memory in use can only be read on Linux")
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status.read_text())[1])


def test_copies_are_refused() -> None:
    """A copied handle would be freed twice."""
    net = one_layer()
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(bridge.ArgumentTypeError, match="cannot be copied or pickled"):
            copier(net)
