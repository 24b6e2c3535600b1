# SPDX-License-Identifier: MIT
"""Batches that are fed from the host while the device works, and losses that are read when they are wanted."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import bridge
from bridge.engine.arrays.transfer import to_device, to_host
from tests.helpers.cases import Array, batch, three_layers
from tests.helpers.cuda import REAL_CUDA
from tests.helpers.cuda.arrays import live

X, Y = (3, 1, 11, 13), (3, 1, 11, 13)
ALL_DEVICES = pytest.mark.parametrize("device", ["cpu", "naive", "cuda", "cuda,capture=no", "cuda,math=bf16"])
ALL_KINDS = pytest.mark.parametrize("given", [{}, {"keep_activations": "after_relu"}, {"keep_activations": False}],
                                    ids=["all", "after ReLU", "none"])
SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}


def batches(count: int, shape: tuple[int, ...] = X) -> list[tuple[Array, Array]]:
    return [(batch(shape, "float32", seed), batch(shape, "float32", seed + 50)) for seed in range(count)]


def two_networks(device: str, cuda: str, **given: Any) -> tuple[bridge.Network, bridge.Network]:
    """The same, twice."""
    name = device.replace("cuda", cuda)
    one, other = (bridge.Network.from_torch(three_layers(1, 5), device=name, **given) for _ in range(2))
    return one, other


def same_weights(one: bridge.Network, other: bridge.Network) -> bool:
    return all(np.array_equal(to_host(values), to_host(other.parameters[name]))
               for name, values in one.parameters.items())


@ALL_DEVICES
@ALL_KINDS
def test_fed_steps_are_steps(cuda: str, device: str, given: dict[str, bool]) -> None:
    """To the bit; the arrays may be written over as soon as feed returns; shapes may change."""
    fed, plain = two_networks(device, cuda, **given)
    for x, target in [*batches(4), *batches(3, (2, 1, 9, 8)), *batches(3)]:
        again = x.copy(), target.copy()
        fed.feed(*again)
        for array in again:
            array[...] = 7e30
        loss = fed.step(**SGD)
        assert loss == plain.step(to_device(x, fed.device), to_device(target, fed.device), **SGD)
        assert fed.read_loss() == loss and fed.captured == plain.captured
        assert np.array_equal(to_host(fed.output("conv3")), to_host(plain.output("conv3")))
    assert same_weights(fed, plain)


@ALL_DEVICES
def test_nobody_waits_for_a_loss(cuda: str, device: str) -> None:
    """Several steps, a batch ahead; the loss in the end is that of the last."""
    fed, plain = two_networks(device, cuda, keep_activations=False)
    given = batches(6)
    fed.feed(*given[0])
    for i, (x, target) in enumerate(given):
        assert fed.step(read_loss=False, **SGD) is None
        if i + 1 < len(given):
            fed.feed(*given[i + 1])
        loss = plain.step(to_device(x, fed.device), to_device(target, fed.device), **SGD)
    assert fed.read_loss() == loss and same_weights(fed, plain)


@ALL_DEVICES
def test_fed_and_given_batches_mix(cuda: str, device: str) -> None:
    """A batch that was fed waits until it is asked for; the last that was fed counts."""
    fed, plain = two_networks(device, cuda)
    (a, b), (c, d), (e, f) = batches(3)
    fed.feed(a, b)
    fed.feed(c, d)
    fed.step(to_device(e, fed.device), to_device(f, fed.device), **SGD)
    fed.step(**SGD)
    for x, target in ((e, f), (c, d)):
        plain.step(to_device(x, fed.device), to_device(target, fed.device), **SGD)
    assert same_weights(fed, plain)
    with pytest.raises(bridge.EngineError, match=r"^step: no batch yet, call feed first, or give input and target"):
        fed.step(**SGD)


@ALL_DEVICES
def test_what_is_refused(cuda: str, device: str) -> None:
    net, plain = two_networks(device, cuda)
    (x, target), = batches(1)
    with pytest.raises(bridge.EngineError, match=r"^loss: none yet, call loss or step first"):
        net.read_loss()
    for wrong, said in ((x.astype(np.float64), "float64, expected float32"), (x[0, 0], "expected 4 dimensions"),
                        ([1.0], "list, expected")):
        with pytest.raises(bridge.common.errors.BridgeError, match=rf"^input: .*{said}"):
            net.feed(wrong, target)
    bad = target.copy()
    bad[1, 0, 2, 3] = np.nan
    with pytest.raises(bridge.ArgumentError, match=r"^target: .*finite"):
        net.feed(x, bad)
    with pytest.raises(bridge.common.errors.BridgeError, match=r"^target: "):
        net.step(to_device(x, net.device), **SGD)
    with pytest.raises(bridge.ArgumentTypeError, match=r"^read_loss: 0, expected a bool"):
        net.step(to_device(x, net.device), to_device(target, net.device), read_loss=0, **SGD)
    net.feed(x, target[:2])
    with pytest.raises(bridge.EngineError, match=r"^target: float32 "):
        net.step(**SGD)
    with pytest.raises(bridge.EngineError, match="none yet"):
        net.read_loss()
    # And nothing has happened
    assert same_weights(net, plain)
    net.feed(x, target)
    assert net.step(**SGD) == plain.step(to_device(x, net.device), to_device(target, net.device), **SGD)


@ALL_DEVICES
def test_a_step_of_another_target_is_refused(cuda: str, device: str) -> None:
    """Also after steps that were captured; the next step is right."""
    net, plain = two_networks(device, cuda)
    (x, target), = batches(1)
    given = to_device(x, net.device), to_device(target, net.device)
    for _ in range(3):
        assert net.step(*given, **SGD) == plain.step(*given, **SGD)
    for wrong in (target[:2].copy(), np.concatenate([target, target])):
        with pytest.raises(bridge.EngineError, match=r"^target: float32 "):
            net.step(given[0], to_device(wrong, net.device), **SGD)
    assert net.step(*given, **SGD) == plain.step(*given, **SGD)


def test_a_loss_is_that_of_its_network(cuda: str) -> None:
    nets = two_networks("cuda", cuda)
    given = batches(2)
    for _ in range(4):
        right = [net.step(*(to_device(a, cuda) for a in one), lr=0.0) for net, one in zip(nets, given, strict=True)]
        for net, one in zip(nets, given, strict=True):
            net.step(*(to_device(a, cuda) for a in one), lr=0.0, read_loss=False)
        assert [net.read_loss() for net in nets] == right and right[0] != right[1]


@pytest.mark.deep
@pytest.mark.skipif(REAL_CUDA, reason="counts what only the software device counts")
def test_everything_goes_back(cuda: str) -> None:
    """Also when a batch is under way."""
    (x, target), = batches(1)
    start = live()
    for steps in range(4):
        net, other = two_networks("cuda", cuda)
        for _ in range(steps):
            net.feed(x, target)
            net.step(lr=0.1, read_loss=False)
        net.feed(x, target)
        del net, other
        gc.collect()
        assert live() == start
