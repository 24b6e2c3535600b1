# SPDX-License-Identifier: MIT
"""Memory-efficient networks on a CUDA device: in place, and with channels last where tensor cores multiply.

Whole numbers that every type holds make results comparable to the bit, whatever is rounded on the way: a test says of
its own numbers that they are so.
"""

from __future__ import annotations

import ctypes
import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import bridge
from bridge.common.errors import EngineError
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.exchange.model import Model
from tests import ROOT
from tests.helpers.cases import Array
from tests.helpers.cuda import REAL_CUDA
from tests.helpers.cuda.arrays import live, runtime
from tests.helpers.cuda.children import environment
from tests.helpers.networks.network_pairs import ALL_NETWORKS, NETWORKS, batch
from tests.helpers.tiers import few

#: What each math mode stores between the convolutions of a network
STORED = {"tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
MATHS = pytest.mark.parametrize("math", ["fp32", *STORED])
#: The mask of a ReLU in the plan, which cuDNN compiles, and by a kernel after it
MASKS = pytest.mark.parametrize("masks", [True, False], ids=["mask in the plan", "mask after it"])


def exact(values: Array) -> bool:
    """Whether float16 and bfloat16 hold all of these."""
    t = torch.tensor(np.asarray(values))
    return all(torch.equal(t, t.to(kind).double()) for kind in (torch.float16, torch.bfloat16))


def whole_numbers(rng: np.random.Generator, shape: tuple[int, ...], density: float) -> Array:
    """-1, 0 and 1, most of them 0."""
    return rng.choice([-1.0, 0.0, 1.0], shape, p=[density/2, 1 - density, density/2])


@functools.cache
def exact_step(network: str, shape: tuple[int, int, int, int]) -> tuple[dict[str, Array], ...]:
    """Parameters, then input, target and output, then gradients of a step in which nothing has to be rounded."""
    net = bridge.Network(Model(NETWORKS[network], mean=False), "float64", "naive")
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        for values in net.parameters.values():
            values[...] = whole_numbers(rng, values.shape, 0.5)
        x = whole_numbers(rng, shape, 0.4)
        y = net.forward(x)
        target = y - whole_numbers(rng, y.shape, 0.2)/2
        net.loss(target)
        net.backward()
        names = [layer.name for layer in net.model.layers]
        between = [net.output(name) for name in names] + [net.output_gradient(name) for name in names]
        if all(map(exact, [*between, *net.gradients.values()])) and all(g.any() for g in net.gradients.values()):
            copies = [{name: values.copy() for name, values in views.items()}
                      for views in (net.parameters, net.gradients)]
            return copies[0], {"x": x, "target": target, "y": y}, copies[1]
    raise AssertionError(f"no exact numbers for {network}")


def efficient_network(network: str, device: str, parameters: dict[str, Array], dtype: str = "float32",
                 **given: bool) -> bridge.Network:
    """Memory-efficient unless `given` says something else."""
    net = bridge.Network(Model(NETWORKS[network], mean=False), dtype, device, **(given or {"keep_activations": False}))
    for name, values in parameters.items():
        net.parameters[name][...] = values.astype(dtype)
    return net


@pytest.mark.parametrize("network", few(NETWORKS, 3))
@MATHS
@MASKS
def test_a_step_without_rounding_is_exact(cuda: str, network: str, math: str, masks: bool) -> None:
    """In every mode each gradient is the naive loops', to the bit; two batches of other shapes, each twice."""
    if masks and REAL_CUDA and network != "three layers":
        pytest.skip("compiling takes cuDNN seconds for each shape: one network will do")
    device = f"{cuda},direct=no,math={math}" + (",compile=yes" if masks else "")
    net = None
    for shape in ((2, 3, 9, 8), (1, 3, 8, 11)) * 2:
        parameters, data, right = exact_step(network, shape)
        net = net or efficient_network(network, device, parameters)
        for name, values in parameters.items():
            net.parameters[name][...] = values.astype("f")
        x, target = (to_device(data[name].astype("f"), cuda) for name in ("x", "target"))
        assert np.array_equal(to_host(net.forward(x)), data["y"])
        assert net.loss(target) == np.sum((data["y"] - data["target"])**2)
        assert net.backward() is None
        for name, values in net.gradients.items():
            assert np.array_equal(to_host(values), right[name]), name


@ALL_NETWORKS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_in_place_gives_the_same_bits(cuda: str, network: str, dtype: str) -> None:
    """As a fused network: without tensor cores nothing but the memory is another."""
    nets = []
    for given in ({"keep_activations": "after_relu"}, {"keep_activations": False}):
        rng = np.random.default_rng(3)
        empty = bridge.Network(Model(NETWORKS[network])).parameters
        numbers = {name: rng.normal(size=values.shape)/3 for name, values in empty.items()}
        nets.append(efficient_network(network, cuda, numbers, dtype, **given))
    for seed, shape in enumerate(((2, 3, 13, 19), (3, 3, 16, 11))):
        x, target = (to_device(one, cuda) for one in batch(nets[0].model, shape, dtype, seed))
        losses = [net.step(x, target, lr=2.0**-9, momentum=0.9) for net in nets]
        assert losses[0] == losses[1]
        for views in ("gradients", "parameters"):
            plain, efficient = (getattr(net, views) for net in nets)
            assert all(np.array_equal(to_host(plain[name]), to_host(efficient[name])) for name in plain)


@pytest.mark.parametrize("math", STORED)
def test_only_the_device_can_read_what_lies_between(cuda: str, math: str) -> None:
    """Said by `plan`, and when somebody asks for it; the last output can be had."""
    parameters, data, _ = exact_step("three layers", (2, 3, 9, 8))
    device = f"{cuda},direct=no,math={math}"
    net = efficient_network("three layers", device, parameters)
    assert net.plan((2, 3, 9, 8)) == [
        f"a .. c: on device {device}, one after the other, channels last in {STORED[math]}"]
    y = net.forward(to_device(data["x"].astype("f"), cuda))
    for layer in ("r", "s"):
        with pytest.raises(EngineError, match=f"the device keeps that of '{layer}' in a form of its own, expected 'c'"
                           ", or a network with keep_activations=True"):
            net.output(layer)
    assert np.array_equal(to_host(net.output("c")), to_host(y))
    for name in ("one convolution", "no relu"):
        assert "channels last" not in "".join(efficient_network(name, device, {}).plan((2, 3, 9, 8)))
    assert "channels last" not in efficient_network("three layers", cuda, {}).plan((2, 3, 9, 8))[0]
    assert "channels last" not in efficient_network("three layers", device, {}, "float64").plan((2, 3, 9, 8))[0]


def test_ways_of_another_shape_change_nothing(cuda: str) -> None:
    """Between forward and backward."""
    shape = (2, 3, 9, 8)
    parameters, data, right = exact_step("three layers", shape)
    net = efficient_network("three layers", f"{cuda},direct=no,math=bf16", parameters)
    net.forward(to_device(data["x"].astype("f"), cuda))
    net.loss(to_device(data["target"].astype("f"), cuda))
    net.plan((1, 3, 20, 20))
    net.backward()
    assert all(np.array_equal(to_host(values), right[name]) for name, values in net.gradients.items())


def free_memory() -> int:
    """Of the device, in bytes."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert runtime().cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value


@pytest.mark.skipif(REAL_CUDA, reason="on a GPU others take memory, too, and in pieces")
def test_memory(cuda: str) -> None:
    """A memory-efficient network keeps less, and half of that in 16 bits; everything is given back."""
    kept, shape = {}, (2, 3, 64, 64)
    x, target = (to_device(one, cuda) for one in batch(Model(NETWORKS["three layers"]), shape, "float32", 1))
    start = live()
    # The device's own memory grows in the first round
    for _ in range(2):
        for name, math, keep in (("all", "fp32", True), ("none", "fp32", False), ("16 bits", "bf16", False)):
            before = free_memory()
            net = efficient_network("three layers", f"{cuda},direct=no,math={math}", {}, keep_activations=keep)
            net.step(x, target, lr=0.1)
            kept[name] = before - free_memory()
            del net
    image = 2*64*64*4
    # Outputs of 8 + 8 + 1 channels; plain: those before their ReLUs, too, and all gradients, and the input's 3
    assert kept["all"] - kept["none"] >= (8 + 8 + 8 + 8 + 8 + 8 + 3)*image
    assert 0.9*8*image < kept["none"] - kept["16 bits"] < 1.1*8*image
    assert live() <= start + 2


@pytest.mark.parametrize("math", ["fp32", *STORED])
def test_a_step_is_its_parts(cuda: str, math: str) -> None:
    """Momentum and all: `step` gives the bits of forward, loss, backward and update."""
    rng = np.random.default_rng(5)
    empty = bridge.Network(Model(NETWORKS["three layers"])).parameters
    given = {n: rng.normal(size=v.shape)/9 for n, v in empty.items()}
    one, parts = (efficient_network("three layers", f"{cuda},direct=no,math={math}", given) for _ in range(2))
    settings = {"lr": 1e-4, "momentum": 0.9, "weight_decay": 0.01}
    losses = []
    for seed in range(4):
        x, target = (to_device(a, cuda) for a in batch(one.model, (2, 3, 9, 8), "float32", seed % 2))
        losses.append(one.step(x, target, **settings))
        parts.forward(x)
        assert losses[-1] == parts.loss(target)
        parts.backward()
        parts.update(**settings)
    assert losses[2] < losses[0] and losses[3] < losses[1]
    for name, values in one.parameters.items():
        assert np.array_equal(to_host(values), to_host(parts.parameters[name]))
        assert np.abs(to_host(values) - given[name].astype("f")).max() > 0


@pytest.mark.parametrize("math", STORED)
def test_nan_goes_through(cuda: str, math: str) -> None:
    """Through the ReLUs, too; and it stays in its image."""
    parameters, data, _ = exact_step("three layers", (2, 3, 9, 8))
    net = efficient_network("three layers", f"{cuda},direct=no,math={math}", parameters)
    x = data["x"].astype("f")
    x[1, :, 3, 3] = np.nan
    y = to_host(net.forward(to_device(x, cuda)))
    assert np.isnan(y[1]).any() and np.array_equal(y[0], data["y"][0])
    net.loss(to_device(data["target"].astype("f"), cuda))
    net.backward()
    assert all(np.isnan(to_host(values)).any() for values in net.gradients.values())


PROGRAM = """
import sys, json
from tests.helpers.cuda.stream_checks import DeviceArray, Network, batch, strict
net = Network.from_file(sys.argv[1], device=sys.argv[2], keep_activations=False)
x, y = batch(1), batch(2)
losses = [net.step(DeviceArray.from_numpy(x), DeviceArray.from_numpy(y), lr=0.25) for _ in range(3)]
ran = [i for i in range(8) if strict.counter(f"graph engine {i}")]
print(json.dumps({"ways": net.plan(x.shape), "ran": ran, "losses": losses}))
"""


@pytest.mark.skipif(REAL_CUDA, reason="only the software device says which engines ran")
@pytest.mark.parametrize(("device", "settings", "ways", "ran"), [
    ("cuda,direct=no,math=tf32", {}, "channels last in float32", [0]),
    ("cuda,direct=no,math=tf32,compile=yes", {}, "channels last in float32", [0, 6]),
    ("cuda,direct=no,math=tf32,compile=yes", {"STRICT_COMPILED": "0"}, "channels last in float32", [0]),
    ("cuda,direct=no,math=tf32", {"STRICT_GRAPH_FUSION": "0"}, "", [0]),
    ("cuda,direct=no", {}, "", [5]),
    ("cuda", {}, "", []),
    ("cuda,math=tf32", {}, "", []),
])
def test_which_way_is_taken(fixture: Path, device: str, settings: dict[str, str], ways: str, ran: list[int]) -> None:
    """Channels last where all plans are there; the loss is that of the other ways."""
    found = []
    for which in (device, "cuda"):
        done = subprocess.run([sys.executable, "-c", PROGRAM, fixture, which], capture_output=True, text=True,
                              check=False, timeout=120, env=environment(**settings), cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        found.append(json.loads(done.stdout))
    assert found[0]["ways"][0].endswith(ways or "after the other")
    assert found[0]["ran"] == ran
    assert found[0]["losses"] == pytest.approx(found[1]["losses"], rel=2e-3)
