# SPDX-License-Identifier: MIT
"""How good a network is, where that can be said beforehand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bridge import Network
from bridge.data import Batch, Batches, Consecutive
from bridge.exchange.model import Conv2d, Model
from bridge.train.quality import quality


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    """Two pairs of one wave each, with noise of their own."""
    rng, place = np.random.default_rng(0), np.arange(64)
    clean = np.sin(place / 5) * np.cos(place / 7)[:, None]
    np.save(tmp_path / "noisy.npy", (clean + 0.5 * rng.standard_normal((4, 64, 64))).astype(np.float32))
    return Batches(Consecutive(tmp_path / "noisy.npy"), 2, (64, 64), flips=False, rotations=False).at(0)


def network(size: int, weight: float) -> Network:
    """The mean over squares, or their middles."""
    net = Network(Model((Conv2d("a", 1, 1, (size, size), padding=(size // 2, size // 2)),)))
    net.parameters["a.weight"][...] = weight
    return net.eval()


def test_a_network_that_does_nothing_leaves_all_as_it_is(batch: Batch) -> None:
    found = quality(network(1, 1.0), batch, symmetric=True)
    assert found is not None and found.psnr is None
    assert np.array_equal(found.noisy, found.denoised) and np.array_equal(found.noisy, batch.input[0, 0])
    assert np.array_equal(found.before.correlation, found.after.correlation)


def test_halves_are_compared_or_the_output_with_the_target(batch: Batch) -> None:
    """A mean removes noise alike from both halves: between them the correlation stays what it was in each ring."""
    net = network(5, 1 / 25)
    halves, clean = quality(net, batch, symmetric=True), quality(net, batch, symmetric=False)
    assert halves is not None and clean is not None and clean.psnr is not None
    assert np.allclose(halves.after.correlation[:8], halves.before.correlation[:8], atol=0.05)
    assert np.array_equal(clean.before.correlation, halves.before.correlation)
    assert not np.allclose(clean.after.correlation[8:], halves.after.correlation[8:], atol=0.05)
    assert clean.psnr[1] > clean.psnr[0] + 1
    same = quality(network(1, 1.0), replace(batch, target=batch.input), symmetric=False)
    assert same is not None and same.psnr == (math.inf, math.inf)


def test_outputs_that_are_no_such_images(batch: Batch) -> None:
    net = Network(Model((Conv2d("a", 1, 1, (3, 3)),)))
    net.parameters["a.weight"][...] = 1
    assert quality(net, batch, symmetric=False) is None
    assert quality(network(1, float("inf")), batch, symmetric=False) is None
