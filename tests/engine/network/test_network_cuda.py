# SPDX-License-Identifier: MIT
"""Networks on a CUDA device, from Python: right numbers, views, lifetimes, streams, and the programs around them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bridge
from bridge import DeviceArray
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.library import extension
from bridge.engine.network.passes import loss_pass
from bridge.gradcheck.operations import CHECKS
from bridge.gradcheck.results import Verdict
from bridge.gradcheck.settings import Settings
from bridge.identities.self_checks import self_checks
from bridge.operations.losses import loss_from
from bridge.validate import __main__ as validate
from bridge.validate.cross_check import differences
from tests.helpers.arrays.foreign_doubles import Capsules, CupyArray, TorchTensor, put_cupy, put_torch
from tests.helpers.cases import Array, Judged, batch, check, three_layers, torch_step
from tests.helpers.cuda.arrays import live, new_stream, recorded
from tests.helpers.judged.opened import with_pair
from tests.helpers.tiers import few

X, Y = (3, 1, 11, 13), (3, 1, 11, 13)


def networks(cuda: str, dtype: str = "float32", **given: Any) -> tuple[bridge.Network, bridge.Network]:
    """The same network on the GPU and on the CPU."""
    module = three_layers(1, 5, getattr(torch, dtype))
    return bridge.Network.from_torch(module, device=cuda, **given), bridge.Network.from_torch(module)


def step_of(net: bridge.Network, x: Any, target: Any) -> tuple[float, dict[str, Array]]:
    """Loss and every tensor of a forward and a backward pass, by the names of `torch_step`."""
    net.forward(x)
    loss = net.loss(target)
    net.backward()
    names = [layer.name for layer in net.model.layers]
    kept = [name for name in names if not (net.keep_activations is not True and name in ("conv1", "conv2"))]
    found = {f"output/{name}": net.output(name) for name in kept}
    found |= {f"gradient/{name}": net.output_gradient(name) for name in (*names, "input")}
    return loss, {name: to_host(array).copy() for name, array in (found | dict(net.gradients)).items()}


def judged_step(host: bridge.Network, x: Array, target: Array) -> Judged:
    """What torch says of a step."""
    return torch_step(host, x, target)


def test_one_sample_without_a_batch(cuda: str) -> None:
    net, _ = networks(cuda)
    x, target = (to_device(batch((1, 11, 13), "float32", seed), cuda) for seed in (1, 2))
    lone = step_of(net, x, target)
    whole = step_of(net, *(to_device(to_host(one)[None], cuda) for one in (x, target)))
    assert lone[0] == whole[0]
    for name, value in lone[1].items():
        expected = whole[1][name] if name in net.gradients else whole[1][name][0]
        np.testing.assert_array_equal(value, expected, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("keep", [True, "after_relu"])
def test_a_step_against_torch(cuda: str, dtype: str, keep: bool | str) -> None:
    """Every tensor lies within rounding of torch in float64, twice, with and without ReLUs in the convolutions."""
    net, host = networks(cuda, dtype, keep_activations=keep)
    for seed in (1, 2):
        x, target = batch(X, dtype, seed), batch(Y, dtype, seed + 10)
        loss, found = step_of(net, to_device(x, cuda), to_device(target, cuda))
        judged = judged_step(host, x, target)
        value, bound = judged.pop("loss")
        assert abs(loss - value) <= bound
        check(found, {name: one for name, one in judged.items() if name in found}, dtype)
        assert set(judged) - set(found) == ({"output/conv1", "output/conv2"} if keep is not True else set())


def test_training_against_the_cpu(cuda: str) -> None:
    """Some steps with everything that SGD has; the weights stay together."""
    net, host = networks(cuda, "float64")
    settings = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}
    for seed in range(4):
        x, target = batch(X, "float64", seed), batch(Y, "float64", seed + 10)
        loss = net.step(to_device(x, cuda), to_device(target, cuda), **settings)
        assert abs(loss - host.step(x, target, **settings)) < 1e-12
    for name, array in host.parameters.items():
        assert np.allclose(net.parameters[name].numpy(), array, rtol=1e-11, atol=1e-13), name
    x, target = batch(X, "float64", 9), batch(Y, "float64", 19)
    for one, where in ((net, cuda), (host, "cpu")):
        one.forward(to_device(x, where))
        one.loss(to_device(target, where))
        one.backward()
        one.update(lr=0.1)
    for name, array in host.parameters.items():
        assert np.allclose(net.parameters[name].numpy(), array, rtol=1e-11, atol=1e-13), name


def test_fused_outputs_do_not_exist(cuda: str) -> None:
    for device in (cuda, "cpu", "naive"):
        net = bridge.Network.from_torch(three_layers(1, 5), device=device, keep_activations="after_relu")
        net.forward(to_device(batch(X, "float32", 1), device))
        with pytest.raises(bridge.EngineError, match=r"^output: 'conv1' is computed together with its ReLU .*'relu1'"):
            net.output("conv1")
        assert to_host(net.output("relu1")).min() == 0 and to_host(net.output("conv3")).shape == Y


def test_views_of_device_memory(cuda: str) -> None:
    """Zero at first; what is written there is computed with; addresses stay; a view keeps the network alive."""
    start = live()
    net = bridge.Network(bridge.Model((bridge.Conv2d("a", 1, 2, (1, 1)), bridge.Relu("r"))), device=cuda)
    assert net.device == cuda and repr(net.parameters["a.weight"]).startswith("DeviceArray(shape=(2, 1, 1, 1)")
    assert all(not array.numpy().any() for views in (net.parameters, net.gradients) for array in views.values())
    places = {name: array.operand.address for name, array in net.parameters.items()}
    net.parameters["a.weight"][...] = np.array([2, -3]).reshape(2, 1, 1, 1)
    net.parameters["a.bias"][...] = DeviceArray.from_numpy(np.array([0, 5], np.float32), cuda)
    for size in ((1, 1, 2, 3), (4, 1, 5, 2)):
        # Whole numbers: exact, in whichever order a device multiplies and adds
        x = np.round(8 * batch(size, "float32", 1))
        y = net.forward(to_device(x, cuda))
        assert np.array_equal(y.numpy(), np.maximum(np.concatenate([2 * x, 5 - 3 * x], 1), 0))
        net.step(to_device(x, cuda), y, lr=0.0, momentum=0.5)
    assert places == {name: array.operand.address for name, array in net.parameters.items()}
    view = net.parameters["a.bias"]
    del net, y
    gc.collect()
    assert np.array_equal(view.numpy(), np.array([0, 5], np.float32)) and live() > start
    del view
    assert live() == start


def test_files_and_torch(cuda: str, tmp_path: Path) -> None:
    """Bit for bit: torch -> GPU -> file -> GPU -> torch."""
    module = three_layers(3, 4)
    net = bridge.Network.from_torch(module, device=cuda + ",math=fp32")
    assert net.device == cuda + ",math=fp32"
    net.save(tmp_path / "saved.h5", bridge.Sgd(0.5))
    for device in (cuda, "cpu"):
        again = bridge.Network.from_file(tmp_path / "saved.h5", device=device)
        assert [one.tobytes() for one in map(to_host, again.parameters.values())] == [
            value.numpy().tobytes() for value in module.state_dict().values()]
        for name, value in again.to_torch().state_dict().items():
            assert torch.equal(value, module.state_dict()[name])


def test_results_are_of_the_inputs_library(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that comes back is an array of the library of the last input, on its current stream."""
    mine = new_stream()
    streams, _ = put_torch(monkeypatch, mine), put_cupy(monkeypatch, mine)
    model = bridge.Model((bridge.Conv2d("a", 1, 2, (2, 3)), bridge.Relu("r")))
    net, x = bridge.Network(model, device=cuda), DeviceArray.from_numpy(batch((2, 1, 5, 6), "float32", 1), cuda)
    for array in net.parameters.values():
        array[...] = 0.5
    right = None
    for kind, result in ((TorchTensor, TorchTensor), (CupyArray, CupyArray), (Capsules, DeviceArray)):
        y = net.forward(kind(x))
        target = kind(DeviceArray.from_numpy(np.ones((2, 2, 4, 4), np.float32), cuda))
        net.loss(target)
        found = [y, net.backward(), net.output("a"), net.output_gradient("input")]
        assert [type(one) for one in found] == [result] * 4
        values = [one.memory.numpy() if result is not DeviceArray else one.numpy() for one in found]
        assert right is None or all(map(np.array_equal, values, right))
        right = values
    seen = recorded(monkeypatch)
    net.forward(TorchTensor(x))
    other = streams.number = new_stream()
    net.loss(TorchTensor(DeviceArray.from_numpy(np.ones((2, 2, 4, 4), np.float32), cuda)))
    net.backward()
    streams_of = {name: next(one for one in reversed(seen[:seen.index(name)]) if isinstance(one, int))
                  for name in ("network_forward", "network_loss", "network_backward")}
    assert streams_of == {"network_forward": mine, "network_loss": other, "network_backward": other}
    assert "wait" not in seen


def test_where_arrays_must_be(cuda: str) -> None:
    net, host = networks(cuda)
    x = batch(X, "float32", 1)
    with pytest.raises(bridge.ArgumentTypeError, match=r"^input: numpy.ndarray, expected an array on cuda:0"):
        net.forward(x)
    with pytest.raises(bridge.ArgumentTypeError, match=r"^input: bridge.DeviceArray on cuda:0, expected numpy.ndarray"):
        host.forward(to_device(x, cuda))
    net.forward(to_device(x, cuda))
    with pytest.raises(bridge.ArgumentTypeError, match=r"^target: numpy.ndarray, expected an array on cuda:0"):
        net.loss(x)
    with pytest.raises(bridge.ArgumentTypeError, match=r"^target: float64, expected float32"):
        net.step(to_device(x, cuda), to_device(x.astype(np.float64), cuda), lr=0.1)
    with pytest.raises(bridge.ArgumentTypeError, match=r"^input: float16, expected float32"):
        net.forward(to_device(x.astype(np.float16), cuda))
    with pytest.raises(bridge.EngineError, match="does not exist yet"):
        bridge.Network(net.model, device=cuda).output("conv1")


@pytest.mark.parametrize("keep", [True, "after_relu"])
def test_nan_goes_through(cuda: str, keep: bool | str) -> None:
    """It is not looked for on the device, and not hidden either."""
    net, _ = networks(cuda, keep_activations=keep)
    x = batch(X, "float32", 1)
    x[1, 0, 5, 5] = np.nan
    y = net.forward(to_device(x, cuda)).numpy()
    assert np.isnan(y[1]).any() and not np.isnan(y[[0, 2]]).any()
    assert np.isnan(net.loss(to_device(batch(Y, "float32", 2), cuda)))


def test_the_input_stays_alive(cuda: str) -> None:
    """Until the next call; then it is freed, as is all that the network has."""
    start = live()
    net, host = networks(cuda)
    x, target = batch(X, "float32", 1), batch(Y, "float32", 2)
    net.forward(to_device(x, cuda))
    net.loss(to_device(target, cuda))
    with_one = live()
    for _ in range(3):
        net.forward(to_device(x, cuda))
        net.loss(to_device(target, cuda))
        dx = net.backward()
    del dx
    assert live() <= with_one + 1
    host.forward(x)
    host.loss(target)
    expected = host.backward()
    assert np.allclose(net.backward().numpy(), expected, atol=1e-5)
    del net
    assert live() == start


def test_single_losses_leave_nothing_on_the_device(cuda: str) -> None:
    x, target = batch(X, "float32", 1), batch(X, "float32", 2)
    loss_pass(loss_from("huber"), x, target, cuda)
    start = live()
    for text in ("mse", "huber", "cross_entropy"):
        loss_pass(loss_from(text), x, target, cuda)
    assert live() == start


@pytest.mark.parametrize("name", few(("bridge.conv2d", "network"), 1))
def test_gradients_are_right(cuda: str, name: str) -> None:
    """By finite differences; operations and losses are tried in tests/operations/test_registry.py."""
    for report in CHECKS[name].run(Settings("float64", cuda, 1, points=6, directions=1)):
        assert report.verdict is Verdict.RIGHT, str(report)


@pytest.mark.deep
def test_identities_hold(cuda: str) -> None:
    found = list(self_checks(cuda))
    assert len(found) > 10
    assert not [check.name for check in found if not check.passed]
    for option in ("deterministic=no", "algorithm=measured"):
        with pytest.raises(bridge.ArgumentError, match=f"^device cuda,{option}: these identities hold to the bit"):
            list(self_checks(f"cuda,{option}"))


@pytest.mark.parametrize(("math", "expected"), [("fp32", 0), ("tf32", 3)])
def test_validate(cuda: str, math: str, expected: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole program; TF32 is seen for what it is, where the device does use it."""
    code = validate.main(["--device", f"{cuda},direct=no,math={math}", "--size", "20x24", "--steps", "1",
                          "--no-diagnosis"])
    said = " ".join(capsys.readouterr().out.split())
    assert code == expected or (os.environ.get("CNN_TEST_CUDA") == "real" and code == 0), said
    assert "cnn_step and the Python extension agree to the bit in 30 of 30 tensors" in said


def test_program_and_extension_agree(cuda: str, small_fixture: Path, tmp_path: Path) -> None:
    """The steps of a file through Fortran alone and through Python, on the device: to the bit."""
    for precision in ("float32", "float64"):
        result = tmp_path / f"{precision}.h5"
        extension.run_file(small_fixture, result, cuda, precision)
        compared, differing = with_pair(small_fixture, result, lambda pair: differences(pair, cuda))
        assert compared > 50 and not differing


PROGRAM = """
import sys, gc, numpy as np, bridge
from bridge import DeviceArray
net = bridge.Network(bridge.Model((bridge.Conv2d("a", 1, 2, (1, 1)),)), device="cuda")
x = DeviceArray.from_numpy(np.ones((1, 1, 2, 3), np.float32))
y = net.forward(x)
net.step(x, y, lr=0.1)
capsule = x.__dlpack__()
keep = net.parameters["a.weight"]
{}
print("done")
"""
FORK = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
sys.stdout.flush()
child = os.fork()
if child == 0:
    for attempt in (lambda: net.forward(x), lambda: x.numpy(), lambda: bridge.conv2d(x, keep),
                    lambda: DeviceArray.empty((2,))):
        try:
            attempt()
            os._exit(1)
        except bridge.EngineError as error:
            assert "does not survive" in str(error) or "forked" in str(error), error
    del net, x, y, capsule, keep
    gc.collect()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert np.array_equal(x.numpy(), np.ones((1, 1, 2, 3), np.float32))
"""
CLOSE = """
from bridge.engine.library import extension, finalizers
finalizers.release_all()
extension.close_devices()
assert extension.call("devices_live") == 0
"""


@pytest.mark.parametrize("more", ["", FORK, CLOSE],
                         ids=["exit", "fork", "close"])
def test_everything_is_given_back_at_the_end(cuda: str, more: str) -> None:
    """Arrays, networks and capsules that are still in use at the end; a forked child gives nothing back."""
    if "fork" in more and not hasattr(os, "fork"):
        pytest.skip("skipped, because there is no fork here")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    if "fork" not in more:
        # Leaks end the process with an error; to a child its parent's memory would be one
        environment["STRICT_AT_EXIT"] = "2"
    done = subprocess.run([sys.executable, "-c", PROGRAM.replace("{}", more)], capture_output=True, text=True,
                          env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_run_of_a_file_gives_everything_back(cuda: str, small_fixture: Path, tmp_path: Path) -> None:
    """Where no array and no network has been."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), STRICT_AT_EXIT="2")
    command = [sys.executable, "-m", "bridge.step", small_fixture, tmp_path / "r.h5", "--device", cuda]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
