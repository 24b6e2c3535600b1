# SPDX-License-Identifier: MIT
"""A training that diverges: which step it was is said, weights stay, and no file is replaced by one of NaN."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import bridge
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.library import extension
from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Conv2d, Model
from tests.helpers.cases import Array, batch, three_layers

SHAPE = (2, 1, 6, 7)
DEVICES = pytest.mark.parametrize("device", ["cpu", "naive", "cuda", "cuda,capture=no"])
KINDS = pytest.mark.parametrize("keep", [True, False], ids=["all kept", "memory-efficient"])
TOO_FAST = {"lr": 1e6, "momentum": 0.5}


def network(device: str, cuda: str, dtype: str = "float32", **given: bool) -> bridge.Network:
    return bridge.Network.from_torch(three_layers(1, 3), dtype=dtype, device=device.replace("cuda", cuda), **given)


def given(net: bridge.Network, seed: int = 1) -> tuple[object, object]:
    x, target = batch(SHAPE, net.dtype, seed), batch(SHAPE, net.dtype, seed + 50)
    return to_device(x, net.device), to_device(target, net.device)


def weights(net: bridge.Network) -> dict[str, Array]:
    return {name: to_host(array).copy() for name, array in net.parameters.items()}


def same(one: dict[str, Array], other: dict[str, Array]) -> bool:
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


@DEVICES
@KINDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_step_says_when_the_training_diverges(cuda: str, device: str, keep: bool, dtype: str) -> None:
    """The step is the first with a loss that is not finite, and it changes nothing: not the weights, not the number."""
    net = network(device, cuda, dtype, keep_activations=keep)
    x, target = given(net)
    number = 0
    while True:
        before = weights(net)
        try:
            assert math.isfinite(net.step(x, target, **TOO_FAST))
            number += 1
        except bridge.DivergenceError as error:
            said = str(error)
            break
    # Its gradients are not finite before it is; nobody looks at them on a device
    what = "the loss is" if device.startswith("cuda") else "(the loss is|the gradient of)"
    assert re.match(f"step {number}: {what} ", said) and ", lr = 1.00000E+06:" in said
    assert number > 0 and same(before, weights(net))
    with pytest.raises(bridge.DivergenceError, match=f"^step {number}: {what}"):
        net.step(x, target, lr=0.5)
    with pytest.raises(bridge.EngineError, match="no gradients yet"):
        net.update(lr=0.5)
    # What it is worth: from sane weights it goes on
    for name, array in weights(network(device, cuda, dtype)).items():
        net.parameters[name][...] = array
    assert math.isfinite(net.step(x, target, lr=0.01)) and not same(before, weights(net))


@pytest.mark.parametrize("optimizer", [bridge.Sgd(0.1, momentum=0.5), bridge.Adam(0.1)])
def test_gradients_that_are_not_finite(optimizer: bridge.Sgd | bridge.Adam) -> None:
    """Of a finite loss: parameters and memory stay as they were, bit by bit. Of a frozen one they do not matter."""
    net = bridge.Network(Model((Conv2d("a", 1, 2, (3, 3)), Conv2d("b", 2, 1, (1, 1)))))
    for value in net.parameters.values():
        value[...] = 0.5
    x, target = np.ones((1, 1, 8, 8), np.float32), np.zeros((1, 1, 6, 6), np.float32)
    net.step(x, target, optimizer)
    before, momenta = weights(net), {name: value.copy() for name, value in net.momenta.items()}
    with pytest.raises(bridge.DivergenceError, match=r"^step 1: the gradient of a\.weight holds .*, lr = 0\.1: "):
        net.step(1e30 * x, target, optimizer)
    assert net.steps == 1 and same(before, weights(net)) and same(momenta, dict(net.momenta))
    assert math.isfinite(net.step(x, target, optimizer))
    net.frozen = ("a.weight", "a.bias", "b.weight", "b.bias")
    net.step(1e30 * x, target, optimizer)


@DEVICES
def test_a_diverging_step_releases_outputs(cuda: str, device: str) -> None:
    """As a step that goes well does: the backward pass has been there."""
    net = network(device, cuda, keep_activations=False)
    net.parameters["conv3.bias"][...] = np.full(1, np.inf, np.float32)
    with pytest.raises(bridge.DivergenceError, match=r"^step 0: the loss is Infinity"):
        net.step(*given(net), lr=0.5)
    with pytest.raises(bridge.EngineError, match="'relu1' was released by backward"):
        net.output("relu1")


@DEVICES
def test_a_diverging_batch_that_was_fed(cuda: str, device: str) -> None:
    """An infinite weight makes the loss infinite or NaN; the next good step is as if nothing had been."""
    net = network(device, cuda)
    sane = weights(net)
    for _ in range(3):
        net.feed(batch(SHAPE, "float32", 1), batch(SHAPE, "float32", 51))
        net.step(lr=0.0)
    net.parameters["conv2.bias"][...] = np.full(3, np.inf, np.float32)
    net.feed(batch(SHAPE, "float32", 1), batch(SHAPE, "float32", 51))
    with pytest.raises(bridge.DivergenceError, match=r"^step 3: the loss is (NaN|Infinity), lr = 0\.25: "):
        net.step(lr=0.25)
    assert same({"conv1.weight": sane["conv1.weight"]}, weights(net))
    net.parameters["conv2.bias"][...] = sane["conv2.bias"]
    net.feed(batch(SHAPE, "float32", 1), batch(SHAPE, "float32", 51))
    assert math.isfinite(net.step(lr=0.25))


@DEVICES
def test_a_step_that_nobody_looks_at(cuda: str, device: str) -> None:
    """Where looking waits, `read_loss` says it, and that the weights have changed; elsewhere the step does."""
    net = network(device, cuda)
    x, target = given(net)
    net.step(x, target, lr=0.01, read_loss=False)
    net.parameters["conv2.bias"][...] = np.full(3, np.nan, np.float32)
    before = weights(net)
    if device.startswith("cuda"):
        assert net.step(x, target, lr=0.01, read_loss=False) is None
        for _ in range(2):
            with pytest.raises(bridge.DivergenceError, match=r"^step 1: the loss is NaN: .*has changed the weights"):
                net.read_loss()
        assert not same(before, weights(net))
    else:
        with pytest.raises(bridge.DivergenceError, match=r"^step 1: the loss is NaN, lr = 0\.01: "):
            net.step(x, target, lr=0.01, read_loss=False)
        assert same(before, weights(net))


@DEVICES
def test_a_loss_of_its_own_is_a_number(cuda: str, device: str) -> None:
    """Who calls forward, loss, backward, update sees the loss, and decides."""
    net = network(device, cuda)
    net.parameters["conv2.bias"][...] = np.full(3, np.nan, np.float32)
    x, target = given(net)
    net.forward(x)
    assert math.isnan(net.loss(target)) and math.isnan(net.read_loss())


@DEVICES
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["conv1.weight", "conv3.bias"])
def test_no_good_file_is_replaced_by_one_of_nan(cuda: str, tmp_path: Path, device: str, value: float,
                                                name: str) -> None:
    """Saving is refused with the dataset's name; the file that was there stays to the bit, and nothing beside it."""
    net, path = network(device, cuda), tmp_path / "net.h5"
    net.save(path)
    good = path.read_bytes()
    bad = to_host(net.parameters[name]).copy()
    bad.flat[-1] = value
    net.parameters[name][...] = bad
    with pytest.raises(bridge.EngineError, match=rf"net\.h5: not written, .*{name.replace('.', '/')} holds NaN or inf"):
        net.save(path)
    assert path.read_bytes() == good and list(tmp_path.iterdir()) == [path]
    bridge.Network.from_file(path)


def test_a_diverging_fixture_still_runs(small_fixture: Path, tmp_path: Path) -> None:
    """What `cnn_step` writes is to be judged, NaN or not."""
    wild, result = tmp_path / "wild.h5", tmp_path / "result.h5"
    shutil.copy(small_fixture, wild)
    with h5py.File(wild, "r+") as file:
        file["optimizer"].attrs["lr"] = 1e30
    extension.run_file(wild, result)
    with ExchangeFile(result) as file:
        assert not np.isfinite(file.read("steps/2/loss", ()))
