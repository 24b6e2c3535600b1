# SPDX-License-Identifier: MIT
"""A training that is written down, for the tests of its command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bridge import Network

CONFIG = """
model = "{folder}/net.h5"
output = "{folder}/run"
[data]
inputs = "{folder}/noisy.npy"
noise2noise = "consecutive"
batch = 2
crop = [16, 16]
normalization = "image"
[validation]
inputs = "{folder}/held.npy"
[training]
steps = 6
validate_every = 3
checkpoint_every = 4
[optimizer]
type = "sgd"
lr = 0.05
momentum = 0.9
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A network, two stacks, and what is to be trained."""
    from torch import nn

    rng = np.random.default_rng(0)
    for name, count in (("noisy", 8), ("held", 4)):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((count, 20, 24)).astype(np.float32))
    Network.from_torch(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))).save(
        tmp_path / "net.h5")
    path = tmp_path / "train.toml"
    path.write_text(CONFIG.format(folder=tmp_path), encoding="utf-8")
    return path
