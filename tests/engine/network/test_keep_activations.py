# SPDX-License-Identifier: MIT
"""Networks that keep only what training needs: the same numbers as those that keep everything."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import bridge
from bridge.common.errors import EngineError
from bridge.exchange.model import Model, Relu
from tests.helpers.network_pairs import (
    ALL_CHAINS,
    ALL_DEVICES,
    ALL_DTYPES,
    CHAINS,
    assert_same_gradients,
    batch,
    networks,
)

#: (n, 3, h, w) of three steps: the memory of a smaller batch is not that of a larger one
BATCHES = ((2, 3, 13, 19), (3, 3, 16, 11), (1, 3, 9, 37))


@ALL_CHAINS
@ALL_DTYPES
@ALL_DEVICES
def test_steps_are_those_of_a_plain_network(chain: str, dtype: str, device: str) -> None:
    model = Model(CHAINS[chain])
    plain, lean = networks(model, dtype, device)
    for seed, shape in enumerate(BATCHES):
        x, target = batch(model, shape, dtype, seed)
        for name, values in plain.parameters.items():
            lean.parameters[name][...] = values
        losses = [net.step(x, target, lr=2.0**-9, momentum=0.9, weight_decay=0.01) for net in (plain, lean)]
        assert losses[0] == losses[1]
        assert_same_gradients(plain, lean, x)
        for name, values in plain.parameters.items():
            assert np.allclose(values, lean.parameters[name], rtol=0, atol=4 * np.spacing(np.abs(values).max())), name


@ALL_CHAINS
@ALL_DEVICES
def test_forward_loss_and_backward_one_by_one(chain: str, device: str) -> None:
    """Outputs are those of a fused network; nothing comes back from backward, and a second batch is as good."""
    model = Model(CHAINS[chain])
    plain, lean = networks(model, "float64", device)
    for seed, shape in enumerate((*BATCHES, BATCHES[-1])):
        x, target = batch(model, shape, "float64", seed)
        given = x.copy(), target.copy()
        assert np.array_equal(plain.forward(x), lean.forward(x))
        layers = [layer.name for layer, after in zip(model.layers, (*model.layers[1:], None), strict=True)
                  if isinstance(layer, Relu) or not isinstance(after, Relu)]
        assert all(np.array_equal(plain.output(name), lean.output(name)) for name in layers)
        assert plain.loss(target) == lean.loss(target)
        assert plain.backward() is not None and lean.backward() is None
        assert_same_gradients(plain, lean, x)
        assert np.array_equal(plain.output(layers[-1]), lean.output(layers[-1]))
        assert np.array_equal(x, given[0]) and np.array_equal(target, given[1])


def test_inputs_may_be_read_only() -> None:
    """Neither input nor target is memory to work in."""
    for chain in CHAINS.values():
        model = Model(chain)
        x, target = batch(model, BATCHES[0], "float32", 1)
        x.flags.writeable = target.flags.writeable = False
        kept = x.tobytes(), target.tobytes()
        networks(model)[1].step(x, target, lr=0.1)
        assert (x.tobytes(), target.tobytes()) == kept


@pytest.fixture
def spent() -> bridge.Network:
    """A lean network after backward."""
    model = Model(CHAINS["three layers"])
    _, lean = networks(model)
    x, target = batch(model, BATCHES[0], "float32", 1)
    lean.forward(x)
    lean.loss(target)
    lean.backward()
    return lean


def test_what_was_used_up_is_refused(spent: bridge.Network) -> None:
    target = batch(spent.model, BATCHES[0], "float32", 1)[1]
    for layer in ("r", "s"):
        with pytest.raises(EngineError, match=f"'{layer}' was used up by backward, expected 'c'"):
            spent.output(layer)
    with pytest.raises(EngineError, match="'a' is computed together with its ReLU"):
        spent.output("a")
    for name in ("input", "a", "c"):
        with pytest.raises(EngineError, match="a lean network does not keep that of"):
            spent.output_gradient(name)
    with pytest.raises(EngineError, match="no loss yet, call forward and loss first"):
        spent.backward()
    with pytest.raises(EngineError, match="no output yet, call forward first"):
        spent.loss(target)
    assert spent.output("c").shape == target.shape


def test_a_refused_loss_brings_nothing_back(spent: bridge.Network) -> None:
    """After it the outputs of inner layers are as gone as before."""
    for refused in (spent.backward, lambda: spent.loss(batch(spent.model, BATCHES[0], "float32", 1)[1])):
        with pytest.raises(EngineError):
            refused()
        with pytest.raises(EngineError, match="used up"):
            spent.output("s")


def test_a_spent_network_goes_on(spent: bridge.Network) -> None:
    """With an update, and with the next batch."""
    before = spent.parameters["b.weight"].copy()
    spent.update(lr=0.1)
    assert not np.array_equal(before, spent.parameters["b.weight"])
    with pytest.raises(EngineError, match="no gradients yet"):
        spent.update(lr=0.1)
    x, target = batch(spent.model, BATCHES[1], "float32", 2)
    spent.forward(x)
    assert np.isfinite(spent.output("s")).all() and spent.loss(target) > 0


def test_a_lean_network_is_fused_and_says_so(small_fixture: str) -> None:
    model = Model(CHAINS["three layers"])
    net = bridge.Network(model, lean=True)
    assert net.lean and net.fuse and not bridge.Network(model).lean
    read = bridge.Network.from_file(small_fixture, lean=True)
    assert read.lean
    plain = bridge.Network.from_file(small_fixture)
    assert all(np.array_equal(values, read.parameters[name]) for name, values in plain.parameters.items())
    assert bridge.Network.from_torch(net.to_torch(), lean=True).lean
    with pytest.raises(bridge.common.errors.ArgumentTypeError, match="lean"):
        bridge.Network(model, lean=1)  # type: ignore[arg-type]


#: The growth of the process in bytes by two steps; VmHWM is the most that it ever had
PEAK = """
import sys, numpy as np, bridge
from bridge.exchange.model import Conv2d, Model, Relu
def most():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
layers = (Conv2d("a", 1, 16, (3, 3), padding=(1, 1)), Relu("r"), Conv2d("b", 16, 16, (3, 3), padding=(1, 1)), Relu("s"),
          Conv2d("c", 16, 1, (3, 3), padding=(1, 1)))
net = bridge.Network(Model(layers), lean=sys.argv[1] == "lean")
small = np.ones((1, 1, 8, 8), np.float32)
net.step(small, small, lr=0.1)
x = np.ones((2, 1, 512, 512), np.float32)
before = most()
for _ in range(2):
    net.step(x, x, lr=0.0)
print(most() - before)
"""


def test_the_peak_of_memory_is_less_than_half() -> None:
    """Outputs and their gradients in one place: 2 of 16 channels and one of 1, in place of 8 and 3."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the peak is read from /proc, which is Linux's")
    image = 2 * 512 * 512 * 4
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    plain, lean = (int(subprocess.run([sys.executable, "-c", PEAK, kind], capture_output=True, text=True, check=True,
                                      env=environment).stdout) for kind in ("plain", "lean"))
    assert 2 * 16 * image < lean < 40 * image
    assert lean < plain / 2
