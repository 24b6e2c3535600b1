# SPDX-License-Identifier: MIT
"""Layers that are called several times, and weights that are computed: trained beside torch, and judged."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.engine.library import extension
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.networks.beside_torch import assert_caught, assert_right, train_beside
from tests.helpers.networks.exported_networks import NETWORKS
from tests.helpers.networks.tied_networks import TIED, Recursive


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", TIED)
def test_three_steps_are_torchs(name: str, device: str, dtype: str) -> None:
    torch.manual_seed(0)
    make, shape = TIED[name]
    assert isinstance(train_beside(make(), shape, device, dtype), make)


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tied") / "fixture.h5"
    export(path, ExportSettings(model=Recursive, height=6, width=5, batch=2, steps=2))
    return path


def test_it_is_right(fixture: Path, device: str, tmp_path: Path) -> None:
    assert_right(fixture, tmp_path / "result.h5", device)


@pytest.mark.parametrize("name", ["autoencoder", "standardised", "deep", "causal"])
def test_others_are_right_with_proven_bounds(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, shape = {**TIED, "causal": NETWORKS["causal"]}[name]
    module = make()
    x = torch.randn(shape)
    with torch.no_grad():
        target = torch.randn_like(copy.deepcopy(module)(x))
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(model=lambda: module, input=x.numpy(), target=target.numpy(), steps=1))
    extension.run_file(fixture, result, "cpu")
    comparison, verdict = judge(fixture, result, diagnosing=False, adequacy=False)
    assert verdict.outcome is Outcome.ROUNDING and not comparison.estimated, verdict.words


class Cached(nn.Module):
    """Keeps what evaluation has computed of a parameter, computes a part in float32 by its own word, has a buffer that
    nothing takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.line, self.table, self.cache = nn.Linear(4, 4), nn.Parameter(torch.randn(3, 4)), {}
        self.places, self.unused = nn.Buffer(torch.tensor([0, 2])), nn.Buffer(torch.ones(2))

    def bias(self) -> torch.Tensor:
        if self.training:
            return self.table[self.places]
        if not self.cache:
            self.cache["it"] = self.table[self.places]
        return self.cache["it"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.line(x).float() + self.bias()).square().float().mean(1)


def test_what_a_module_keeps_and_makes_float32_of_is_no_obstacle() -> None:
    torch.manual_seed(0)
    module = Cached()
    net = bridge.Network.from_torch(module, example=(3, 2, 4))
    x = torch.randn(3, 2, 4)
    with torch.no_grad():
        np.testing.assert_allclose(net.forward(x.numpy()), module(x), 0, 1e-6)
    with pytest.raises(bridge.ArgumentError, match=r"it computes in torch\.float32 and torch\.float64"):
        bridge.Network.from_torch(Cached().double(), example=(3, 2, 4))


class Counting(nn.Module):
    """Its calls, in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.gain, self.calls = nn.Linear(4, 4), nn.Parameter(torch.ones(4)), [1.0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls[0] = self.calls[0] + 1
        return self.line(x) * self.gain * self.calls[0]


class Remembering(Counting):
    """What the call before gave, in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.line(x) * self.gain
        if "y" in self.before and self.before["y"].shape == y.shape:
            y = y + self.before["y"].detach()
        self.before["y"] = y
        return y


@pytest.mark.parametrize("make", [Counting, Remembering])
def test_a_module_that_is_another_one_in_its_next_call_is_refused(make: type[nn.Module]) -> None:
    with pytest.raises(bridge.ArgumentError, match="something else when it is called again"):
        bridge.Network.from_torch(make(), example=(2, 4))


#: Of tensors of a step, and what is wrong with them
MISTAKES: dict[str, tuple[str, Any]] = {
    "the gradient of two calls of three": ("grads/block/weight", lambda a: a * (2 / 3)),
    "of a bias the first call alone": ("grads/block.bias/weight", lambda a: a / 3),
    "groups exchanged": ("grads/block/weight", lambda a: np.roll(a, 2, 0)),
    "the kernel backwards": ("grads/last/weight", lambda a: a[..., ::-1]),
    "the norm's weight of one call": ("grads/norm/weight", lambda a: a * 0.5),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_caught_where_it_is(fixture: Path, what: str, tmp_path: Path) -> None:
    assert_caught(fixture, tmp_path / "result.h5", *MISTAKES[what])
