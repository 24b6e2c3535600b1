# SPDX-License-Identifier: MIT
"""A training that is saved and goes on: to the bit as if nothing had been, momenta and numbers of steps included."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import bridge
from bridge.engine.arrays.transfer import to_device, to_host
from tests.helpers.cases import batch, three_layers
from tests.helpers.tiers import few

SHAPE = (2, 1, 6, 7)
DEVICES = pytest.mark.parametrize("device", ["cpu", "naive", "cuda"])
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
MOMENTUM = {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}
SETTINGS = ({"lr": 0.1}, MOMENTUM, {"lr": 0.1, "momentum": 0.9, "nesterov": True},
            {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.05})
NAMES = tuple(f"conv{n}.{kind}" for n in (1, 2, 3) for kind in ("weight", "bias"))


def network(device: str, cuda: str, dtype: str = "float32", **given: bool) -> bridge.Network:
    return bridge.Network.from_torch(three_layers(1, 3), dtype=dtype, device=device.replace("cuda", cuda), **given)


def train(net: bridge.Network, steps: range, sgd: dict[str, Any]) -> list[float]:
    """The losses of some steps, each on a batch of its own."""
    found = []
    for seed in steps:
        x, target = batch(SHAPE, net.dtype, seed), batch(SHAPE, net.dtype, seed + 50)
        found.append(net.step(to_device(x, net.device), to_device(target, net.device), **sgd))
    return found


def state(net: bridge.Network) -> dict[str, bytes]:
    """Every bit of weights and momenta."""
    views = {"weight of": net.parameters, "momentum of": net.momenta}
    return {f"{what} {name}": to_host(array).tobytes() for what, some in views.items() for name, array in some.items()}


def saved(net: bridge.Network, folder: Path, sgd: dict[str, Any] = MOMENTUM) -> Path:
    net.save(folder / "net.h5", bridge.Sgd(**sgd))
    return folder / "net.h5"


@DEVICES
@DTYPES
@pytest.mark.parametrize("keep", [True, False], ids=["all kept", "memory-efficient"])
@pytest.mark.parametrize("sgd", few(SETTINGS, 2), ids=str)
def test_five_and_five_are_ten(cuda: str, tmp_path: Path, device: str, dtype: str, keep: bool,
                               sgd: dict[str, Any]) -> None:
    whole, first = (network(device, cuda, dtype, keep_activations=keep) for _ in range(2))
    losses = train(whole, range(10), sgd)
    assert train(first, range(5), sgd) == losses[:5]
    second = bridge.Network.from_file(saved(first, tmp_path, sgd), device=first.device, keep_activations=keep)
    assert second.steps == 5 and state(second) == state(first)
    assert train(second, range(5, 10), sgd) == losses[5:]
    assert state(second) == state(whole) and second.steps == whole.steps == 10


@pytest.mark.parametrize("before", [0, 1, 2])
def test_whether_there_is_a_momentum_is_kept(tmp_path: Path, before: int) -> None:
    """The first step with momentum takes the gradient without dampening: before a file, and after it."""
    def half(net: bridge.Network, steps: range) -> list[float]:
        return train(net, steps, {"lr": 0.1}) if steps.stop <= 2 else train(net, steps, MOMENTUM)

    whole, first = network("cpu", ""), network("cpu", "")
    losses = half(whole, range(2)) + half(whole, range(2, 5))
    half(first, range(before))
    second = bridge.Network.from_file(saved(first, tmp_path))
    assert not second.momenta and second.steps == before
    assert half(second, range(before, 2)) + half(second, range(2, 5)) == losses[before:]
    assert state(second) == state(whole)


@DEVICES
def test_some_have_a_momentum(cuda: str, tmp_path: Path, device: str) -> None:
    """What was frozen has none, in the file neither, and starts its own when it is trained."""
    whole = network(device, cuda)
    whole.frozen = NAMES[1:3]
    train(whole, range(2), MOMENTUM)
    assert tuple(whole.momenta) == tuple(name for name in NAMES if name not in whole.frozen)
    with h5py.File(saved(whole, tmp_path)) as file:
        assert {name: name.replace(".", "/") in file["steps/0/optimizer"] for name in NAMES} == {
            name: name in whole.momenta for name in NAMES}
    second = bridge.Network.from_file(tmp_path / "net.h5", device=whole.device)
    assert (second.frozen, tuple(second.momenta)) == (whole.frozen, tuple(whole.momenta))
    second.frozen = whole.frozen = ()
    assert train(second, range(2, 4), MOMENTUM) == train(whole, range(2, 4), MOMENTUM)
    assert state(second) == state(whole) and tuple(second.momenta) == NAMES


@pytest.mark.parametrize(("one", "other"), [("cpu", "cuda"), ("cuda", "cpu"), ("cpu", "naive")])
def test_from_one_device_to_another(cuda: str, tmp_path: Path, one: str, other: str) -> None:
    net = network(one, cuda)
    train(net, range(3), MOMENTUM)
    again = bridge.Network.from_file(saved(net, tmp_path), device=other.replace("cuda", cuda))
    assert state(again) == state(net)


@DEVICES
@DTYPES
def test_momenta_can_be_read_and_set(cuda: str, device: str, dtype: str) -> None:
    """As with torch's state: what is taken out and put into another network goes on to the bit."""
    net, other = network(device, cuda, dtype), network(device, cuda, dtype)
    assert dict(net.momenta) == {} and len(net.momenta) == 0 and "conv1.bias" not in net.momenta
    with pytest.raises(KeyError):
        net.momenta["conv1.bias"]
    train(net, range(3), MOMENTUM)
    assert tuple(net.momenta) == NAMES
    for name in NAMES:
        assert net.momenta[name].shape == net.parameters[name].shape
        other.parameters[name][...] = to_host(net.parameters[name])
    other.momenta.update({name: to_host(array) for name, array in net.momenta.items()})
    assert state(other) == state(net)
    assert train(other, range(3, 6), MOMENTUM) == train(net, range(3, 6), MOMENTUM) and state(other) == state(net)
    # A view, of memory that stays
    view = net.momenta["conv2.weight"]
    view[...] = to_host(view) * 2
    other.momenta["conv2.weight"] = to_host(view)
    assert train(other, range(6, 8), MOMENTUM) == train(net, range(6, 8), MOMENTUM)
    assert to_host(view).tobytes() == to_host(net.momenta["conv2.weight"]).tobytes() and state(other) == state(net)


@DEVICES
def test_a_forgotten_momentum_begins_anew(cuda: str, device: str) -> None:
    """Its next step is that of a parameter that has never moved."""
    net, other = network(device, cuda), network(device, cuda)
    train(net, range(3), MOMENTUM)
    for name in NAMES:
        other.parameters[name][...] = to_host(net.parameters[name])
    del net.momenta["conv1.bias"]
    with pytest.raises(KeyError):
        del net.momenta["conv1.bias"]
    assert "conv1.bias" not in net.momenta and len(net.momenta) == 5
    net.momenta.clear()
    assert train(net, range(3, 6), MOMENTUM) == train(other, range(3, 6), MOMENTUM) and state(net) == state(other)


@DEVICES
def test_what_momenta_refuse(cuda: str, device: str) -> None:
    """No momentum is left behind by a value that does not fit."""
    net = network(device, cuda)
    with pytest.raises(bridge.ArgumentError, match=r"^momenta: 'conv4\.bias', expected a parameter of conv1\.weight, "):
        net.momenta["conv4.bias"] = np.zeros(3, np.float32)
    for wrong in (np.zeros(7, np.float32), "no"):
        with pytest.raises((ValueError, TypeError)):
            net.momenta["conv2.bias"] = wrong
    assert not net.momenta
    train(net, range(2), MOMENTUM)
    before = state(net)
    with pytest.raises((ValueError, TypeError)):
        net.momenta["conv2.bias"] = np.zeros(7, np.float32)
    assert state(net) == before


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_momenta_outlive_the_network(cuda: str, device: str) -> None:
    net = network(device, cuda)
    train(net, range(1), MOMENTUM)
    momenta, bits = net.momenta, to_host(net.momenta["conv1.weight"]).tobytes()
    del net
    gc.collect()
    assert to_host(momenta["conv1.weight"]).tobytes() == bits


def test_an_old_file_begins_without(tmp_path: Path) -> None:
    """Weights alone: as a new network with them, which is what torch does without the optimiser's state."""
    net = network("cpu", "")
    train(net, range(3), MOMENTUM)
    path = saved(net, tmp_path)
    with h5py.File(path, "r+") as file:
        del file["steps/0/optimizer"], file.attrs["first_step"]
    with pytest.warns(UserWarning, match=r"net\.h5: the momenta before step 0 are not in the file: momentum beg"):
        old = bridge.Network.from_file(path)
    new = bridge.Network(net.model)
    for name, array in net.parameters.items():
        new.parameters[name][...] = array
    assert old.steps == 0 and not old.momenta
    assert train(old, range(3), MOMENTUM) == train(new, range(3), MOMENTUM) and state(old) == state(new)


def test_steps_of_a_result_are_counted(small_fixture: Path, small_result: Path) -> None:
    """Its later steps have no momenta, which is said; its first has had none."""
    for path in (small_fixture, small_result):
        assert bridge.Network.from_file(path).steps == 0
        with pytest.warns(UserWarning, match=r"the momenta before step 2 are not in the file"):
            assert bridge.Network.from_file(path, 2).steps == 2


def test_who_never_had_momenta_misses_none(tmp_path: Path) -> None:
    """No warning: where nothing was trained, and where it was without momentum."""
    net = network("cpu", "")
    for steps in (0, 2):
        train(net, range(steps), {"lr": 0.1})
        assert not bridge.Network.from_file(saved(net, tmp_path, {"lr": 0.1})).momenta


@pytest.mark.parametrize("optimizer", [bridge.Sgd(0.1, momentum=0.9), bridge.AdamW(0.01)],
                         ids=lambda one: type(one).__name__)
def test_what_is_lost_is_told_by_name(tmp_path: Path, optimizer: bridge.Sgd | bridge.Adam) -> None:
    """All of it, one layer, one moment, the number of updates; but not what a frozen parameter never had."""
    net, path = network("cpu", ""), tmp_path / "net.h5"
    net.frozen = NAMES[1:3]
    for seed in range(2):
        net.step(batch(SHAPE, net.dtype, seed), batch(SHAPE, net.dtype, seed + 50), optimizer)
    last, adam = optimizer.memory[-1], isinstance(optimizer, bridge.Adam)
    lose = {"": "the momenta before step 0", "/conv1": f"steps/0/optimizer/conv1/weight/{optimizer.memory[0]}",
            f"/conv1/weight/{last}": f"steps/0/optimizer/conv1/weight/{last}"}
    for part, said in lose.items():
        net.save(path)
        assert bridge.Network.from_file(path).steps == 2
        with h5py.File(path, "r+") as file:
            del file[f"steps/0/optimizer{part}"]
        # The library itself refuses half of Adam's memory
        broken = pytest.raises(bridge.BridgeError, match=last) if last in part and adam else nullcontext()
        with broken, pytest.warns(UserWarning, match=said) if not (last in part and adam) else nullcontext():
            bridge.Network.from_file(path)
    net.save(path)
    with h5py.File(path, "r+") as file:
        del file["steps/0/optimizer/conv1/weight"].attrs["updates"]
    with pytest.warns(UserWarning, match="attribute updates of .*conv1/weight") if adam else nullcontext():
        bridge.Network.from_file(path)


@pytest.mark.parametrize("optimizer", [bridge.Sgd(0.1, momentum=0.9), bridge.AdamW(0.01)],
                         ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(("before", "frozen"), [
    (bridge.Sgd(0.1), ()), (bridge.Sgd(0.1, momentum=0.5), ()), (bridge.Adam(0.01), ()),
    (bridge.AdamW(0.01), NAMES[1:3])])
def test_who_changes_the_optimiser_misses_nothing(tmp_path: Path, before: bridge.Sgd | bridge.Adam,
                                                  frozen: tuple[str, ...], optimizer: bridge.Sgd | bridge.Adam) -> None:
    """Of a parameter that it has not updated yet it remembers nothing: the file says so, and goes on to the bit."""
    net, path = network("cpu", ""), tmp_path / "net.h5"
    steps = [(batch(SHAPE, net.dtype, seed), batch(SHAPE, net.dtype, seed + 50)) for seed in range(4)]
    net.frozen = frozen
    for x, t in steps[:2]:
        net.step(x, t, before)
    net.frozen = ()
    net.save(path, optimizer)
    again = bridge.Network.from_file(path)
    assert again.steps == 2
    for x, t in steps[2:]:
        assert net.step(x, t, optimizer) == again.step(x, t, optimizer)
    assert state(net) == state(again)
    net.save(path, optimizer)
    with h5py.File(path, "r+") as file:
        file["steps/0/optimizer/conv1/weight"].attrs["updates"] = 0
    with pytest.raises(bridge.FileError, match=r"updates of .*conv1/weight is 0, expected a whole number from 1 on"):
        bridge.Network.from_file(path)


def test_a_network_that_is_read_and_saved_keeps_what_its_optimiser_remembers(tmp_path: Path) -> None:
    """Without a step in between: the file says of whom the memory is."""
    net, path = network("cpu", ""), tmp_path / "net.h5"
    steps = [(batch(SHAPE, net.dtype, seed), batch(SHAPE, net.dtype, seed + 50)) for seed in range(4)]
    for x, t in steps[:2]:
        net.step(x, t, bridge.AdamW(0.01))
    net.save(path)
    bridge.Network.from_file(path).save(path)
    again = bridge.Network.from_file(path)
    for x, t in steps[2:]:
        assert net.step(x, t, bridge.AdamW(0.01)) == again.step(x, t, bridge.AdamW(0.01))
    assert state(net) == state(again)


def test_the_number_of_a_diverging_step_goes_on(tmp_path: Path) -> None:
    net = network("cpu", "")
    train(net, range(4), MOMENTUM)
    again = bridge.Network.from_file(saved(net, tmp_path))
    train(again, range(1), MOMENTUM)
    again.parameters["conv1.bias"][...] = np.inf
    with pytest.raises(bridge.DivergenceError, match=r"^step 5: "):
        train(again, range(1), MOMENTUM)
    assert again.steps == 5


@DEVICES
def test_momenta_of_nan_are_not_saved(cuda: str, tmp_path: Path, device: str) -> None:
    net = network(device, cuda)
    train(net, range(1), MOMENTUM)
    good = saved(net, tmp_path).read_bytes()
    net.momenta["conv3.bias"] = np.full(1, np.nan, np.float32)
    with pytest.raises(bridge.EngineError, match=r"not written, as /steps/0/optimizer/conv3/bias/momentum holds NaN"):
        saved(net, tmp_path)
    assert (tmp_path / "net.h5").read_bytes() == good


@pytest.mark.parametrize("bad", [{"lr": np.nan}, {"lr": -1.0}, {"lr": 0.1, "momentum": np.inf},
                                 {"lr": 0.1, "nesterov": True}], ids=str)
def test_settings_that_no_reader_takes_are_not_saved(tmp_path: Path, bad: dict[str, Any]) -> None:
    net = network("cpu", "")
    good = saved(net, tmp_path).read_bytes()
    with pytest.raises(bridge.EngineError, match=r"^sgd: "):
        net.save(tmp_path / "net.h5", bridge.Sgd(**bad))
    assert (tmp_path / "net.h5").read_bytes() == good and len(list(tmp_path.iterdir())) == 1


MEMORY = "steps/0/optimizer/conv1/bias/momentum"


def damage(file: h5py.File, name: str, value: object) -> None:
    if name in file.attrs:
        file.attrs[name] = value
    else:
        del file[name]
        file[name] = value


@pytest.mark.parametrize(("name", "value", "said"), [
    ("first_step", -1, r"first_step of / is -1\.0, expected a whole"), ("first_step", 1.5, "first_step of / is 1.5"),
    ("first_step", np.nan, "first_step of / is NaN"), ("first_step", 1e300, "first_step of / is 1.0"),
    ("first_step", "x", "attribute first_step of / is not one number"),
    (MEMORY, np.zeros(4), "optimizer/conv1/bias/momentum has the shape"),
    (MEMORY, np.full(3, np.inf), "optimizer/conv1/bias/momentum holds NaN or infinity"),
    (MEMORY, np.zeros(3, int), "optimizer/conv1/bias/momentum does not hold float")], ids=str)
def test_damaged_files(tmp_path: Path, name: str, value: object, said: str) -> None:
    net = network("cpu", "")
    train(net, range(1), MOMENTUM)
    with h5py.File(saved(net, tmp_path), "r+") as file:
        damage(file, name, value)
    with pytest.raises(bridge.EngineError, match=said):
        bridge.Network.from_file(tmp_path / "net.h5")
