# SPDX-License-Identifier: MIT
"""Convolutions that are computed depth first, window by window of rows: the same numbers as one after the other."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import bridge
from bridge.common.errors import EngineError
from bridge.engine.arrays.operand import extent_of
from bridge.engine.library import extension
from bridge.exchange.model import Model, Relu
from tests import ROOT
from tests.helpers.cpu.fused_sequences import SEQUENCES, conv, sequence
from tests.helpers.instruction_sets import EACH_LEVEL, choose
from tests.helpers.networks.network_pairs import batch, networks, order_bounds

#: Images smaller than a window, of one chunk and of several, with rows of whole vectors and others, of many windows
SHAPES = ((2, 3, 13, 19), (1, 3, 40, 17), (3, 3, 70, 33), (1, 3, 300, 50), (2, 3, 96, 256), (20, 3, 24, 24),
          (1, 3, 60, 1501))


def _depth_first(net: bridge.Network, shape: tuple[int, int, int, int]) -> bool:
    ways = net.plan(shape)
    return len(ways) == 1 and "outputs depth first" in ways[0] and "gradients depth first" in ways[0]


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numbers_are_those_of_one_after_the_other(name: str, dtype: str, shape: tuple[int, int, int, int]) -> None:
    """Outputs to the bit; gradients, whose sums over pixels have another order, to its bound."""
    model = Model(SEQUENCES[name])
    plain, efficient = networks(model, dtype)
    assert _depth_first(efficient, shape)
    x, target = batch(model, shape, dtype, 3)
    assert np.array_equal(plain.forward(x), efficient.forward(x))
    for layer in model.layers:
        if isinstance(layer, Relu):
            assert np.array_equal(plain.output(layer.name), efficient.output(layer.name)), layer.name
    assert plain.loss(target) == efficient.loss(target)
    plain.backward()
    efficient.backward()
    bounds = order_bounds(plain, x)
    for which, values in plain.gradients.items():
        differences = np.abs(values.astype(np.float64) - efficient.gradients[which])
        assert np.all(differences <= bounds[which]), which
        assert values.any(), which


@pytest.mark.parametrize("level", EACH_LEVEL)
def test_every_instruction_set(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact integers, so that the order of sums has no say: equal to the plain loops."""
    choose(level, monkeypatch)
    model = Model(SEQUENCES["same"])
    nets = [bridge.Network(model, "float64", device, keep_activations=False) for device in ("naive", "cpu")]
    rng = np.random.default_rng(1)
    x = rng.integers(-2, 3, (2, 3, 75, 37)).astype(np.float64)
    target = rng.integers(-2, 3, (2, 1, 75, 37)).astype(np.float64)
    found = []
    for net in nets:
        weights = np.random.default_rng(2)
        for values in net.parameters.values():
            values[...] = weights.integers(-1, 2, values.shape)
        net.forward(x)
        net.loss(target)
        net.backward()
        found.append({name: values.copy() for name, values in net.gradients.items()})
    scale = x[:, :1].size
    for name, values in found[0].items():
        assert np.array_equal(np.rint(values * scale), np.rint(found[1][name] * scale)), name
        assert values.any(), name


def test_a_device_goes_depth_first_only_where_it_can() -> None:
    """Strides, groups, padding larger than the filter and rows too long for the cache go one after the other."""
    same = conv("b", 4, 4, padding=(1, 1))
    others = (conv("a", 4, 4, stride=(1, 2)), conv("a", 4, 4, groups=2))
    for other in others:
        assert bridge.Network(Model(sequence(other, same)), keep_activations=False).plan((1, 4, 64, 64)) == [
            "a .. b: on device cpu, one after the other"]
    wide = bridge.Network(Model(sequence(conv("a", 4, 4), conv("c", 4, 4, padding=(3, 0)), conv("d", 4, 4))),
                          keep_activations=False)
    assert "outputs" in wide.plan((1, 4, 64, 64))[0] and "gradients" not in wide.plan((1, 4, 64, 64))[0]
    efficient = bridge.Network(Model(SEQUENCES["same"]), keep_activations=False)
    assert _depth_first(efficient, (1, 3, 8, 2048)) and not _depth_first(efficient, (1, 3, 8, 65536))
    plain = bridge.Network(Model(SEQUENCES["same"]))
    assert plain.plan((1, 3, 64, 64)) == [f"{name}: on device cpu" for name in "abc"]
    with pytest.raises(EngineError, match=r"layer a \(conv2d\): conv2d: input .* has 2 channels"):
        efficient.plan((1, 2, 64, 64))


def test_a_nan_reaches_what_depends_on_it_and_nothing_else() -> None:
    """Through three 3 x 3 convolutions: 7 x 7 pixels, also where chunks and windows meet."""
    model = Model(SEQUENCES["same"])
    _, efficient = networks(model)
    for row in (0, 24, 31, 32, 33, 99):
        x, _ = batch(model, (1, 3, 100, 40), "float32", 1)
        efficient.forward(x)
        x[0, 1, row, 20] = np.nan
        # Past the check that refuses such an input
        extension.call("network_forward", efficient._handle, x.ctypes.data, extent_of(x.shape), 4)
        reached = np.zeros((100, 40), bool)
        reached[max(0, row - 3):row + 4, 17:24] = True
        assert np.array_equal(np.isnan(efficient.output("c")[0, 0]), reached)


#: Gradients of a memory-efficient network as bytes, for a number of threads
BITS = """
import sys, hashlib, numpy as np, bridge
sys.path.insert(0, sys.argv[1])
from tests.helpers.cpu.fused_sequences import SEQUENCES
from tests.helpers.networks.network_pairs import batch, networks
from bridge.exchange.model import Model
for name, layers in SEQUENCES.items():
    for dtype in ("float32", "float64"):
        model = Model(layers)
        _, net = networks(model, dtype)
        x, target = batch(model, (3, 3, 70, 33), dtype, 1)
        net.step(x, target, lr=0.0)
        print(name, dtype, hashlib.sha256(b"".join(g.tobytes() for g in net.gradients.values())).hexdigest())
"""


@pytest.mark.deep
def test_results_do_not_depend_on_threads() -> None:
    here = str(ROOT)
    found = [subprocess.run([sys.executable, "-c", BITS, here], capture_output=True, text=True, check=True,
                            env=os.environ | {"OMP_NUM_THREADS": threads}).stdout for threads in ("1", "2", "3")]
    assert found[0].count("\n") == 2 * len(SEQUENCES)
    assert found[0] == found[1] == found[2]
