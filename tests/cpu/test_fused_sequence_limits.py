# SPDX-License-Identifier: MIT
"""What depth first is not for, and what it may take of memory."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import bridge
from bridge.exchange.model import Model
from tests import ROOT
from tests.helpers.cpu.fused_sequences import WIDE, conv, sequence
from tests.helpers.networks.network_pairs import assert_same_gradients, batch, networks

#: A large batch of small images: more chunks than sums are kept of
BATCH = (100, 64, 4, 4)


@pytest.fixture(autouse=True)
def pixels_in_the_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else filter gradients of many channels go layer after layer."""
    monkeypatch.setenv("CNN_CPU_LANES", "pixels")


def _way(*convolutions: bridge.exchange.model.Conv2d, shape: tuple[int, int, int, int]) -> str:
    way, = bridge.Network(Model(sequence(*convolutions)), keep_activations=False).plan(shape)
    return way


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_several_images_share_a_sum(dtype: str) -> None:
    model = Model(WIDE)
    plain, efficient = networks(model, dtype)
    assert "gradients depth first" in efficient.plan(BATCH)[0]
    x, target = batch(model, BATCH, dtype, 1)
    for net in (plain, efficient):
        net.forward(x)
        net.loss(target)
        net.backward()
    assert_same_gradients(plain, efficient, x)


#: The growth of the process in bytes by `backward`
GROWTH = """
import sys, numpy as np, bridge
sys.path.insert(0, sys.argv[1])
from bridge.exchange.model import Model
from tests.helpers.cpu.fused_sequences import WIDE
def most():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
net = bridge.Network(Model(WIDE), keep_activations=False)
x = np.ones((600, 64, 4, 4), np.float32)
net.forward(x)
net.loss(x)
before = most()
net.backward()
print(most() - before)
"""


@pytest.mark.deep
def test_partial_gradients_of_a_large_batch_are_few() -> None:
    """One of 64 x 64 x 3 x 3 elements in float64 for each of 600 images and three layers would be 530 MB."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the peak is read from /proc, which is Linux's")
    grown = subprocess.run([sys.executable, "-c", GROWTH, str(ROOT)], capture_output=True, text=True,
                           check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}).stdout
    assert int(grown) < 120e6


def test_gradients_of_large_filters_go_one_after_the_other() -> None:
    """In the few places that there is room for, too few threads could add them up."""
    same = [conv(name, 512, 512, padding=(1, 1)) for name in "ab"]
    assert "outputs" in _way(*same, shape=(32, 512, 8, 8)) and "gradients" not in _way(*same, shape=(32, 512, 8, 8))


def test_a_wide_input_counts_for_the_window() -> None:
    few = [conv("a", 256, 4, padding=(1, 1)), conv("b", 4, 4, padding=(1, 1))]
    rows = 393216 // (256 * 64 * 4)
    assert _way(*few, shape=(1, 256, 64, 64)).count(f"in windows of {rows} rows") == 2


def test_padding_alone_does_not_fill_the_memory() -> None:
    """A window of many short rows, each with a padding of thousands of pixels."""
    far = [conv("a", 1, 2, (1, 2), padding=(0, 15000), dilation=(1, 30000)), conv("b", 2, 2, (1, 1))]
    assert _way(*far, shape=(1, 1, 60000, 1)) == "a .. b: on device cpu, one after the other"


def test_one_filter_over_one_channel_goes_one_after_the_other() -> None:
    """It is added up row by row, which depends on the rows of a band: outputs would not be those of a plain network."""
    model = Model(sequence(conv("a", 1, 1, padding=(1, 1)), conv("b", 1, 1, padding=(1, 1))))
    plain, efficient = networks(model)
    assert efficient.plan((1, 1, 64, 50)) == ["a .. b: on device cpu, one after the other"]
    x = np.random.default_rng(1).normal(size=(1, 1, 64, 50)).astype(np.float32)
    assert np.array_equal(plain.forward(x), efficient.forward(x))


def test_long_sequences_do_not_compute_rows_again_and_again() -> None:
    """Fewer chunks where that is enough; else one convolution after the other."""
    deep = [conv(f"c{i}", 8, 8, padding=(1, 1)) for i in range(20)]
    assert "depth first" in _way(*deep, shape=(1, 8, 256, 64))
    assert "depth first" in _way(*deep, shape=(1, 8, 1024, 64))
    assert "one after the other" in _way(*deep, shape=(1, 8, 64, 64))
