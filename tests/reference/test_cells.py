# SPDX-License-Identifier: MIT
"""Recurrences that forward writes with cells, that begin with a state, or whose last state is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from torch import nn
from torch.nn import functional

from bridge import ArgumentError, Network, Sgd
from bridge.engine.library import extension
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.networks.exported_networks import Written
from tests.helpers.tiers import few

TIMES = 5


def with_cells(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Two cells, one above the other, and the state of the upper one where it has one."""
    h = g = None
    for time in range(TIMES):
        h = m.a(x[:, time], h)
        g = m.b(h if isinstance(h, torch.Tensor) else h[0], g)
    found: torch.Tensor = g if isinstance(g, torch.Tensor) else g[0] + g[1]  # type: ignore[index]
    return found


def with_states(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A first state for each layer and direction, made of the input; all outputs, and the last states."""
    h = torch.stack([m.f(x[:, 0]) * one for one in (1, -1, 0.5, 2)])
    y, last = m.a(x, (h, 2 * h) if isinstance(m.a, nn.LSTM) else h)
    states = last if isinstance(last, tuple) else (last,)
    found: torch.Tensor = y.sum(1) + sum(torch.cat([one[0], one[3]], 1) for one in states)
    return found


def decoder(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A sequence to a sequence: the last output and state of a layer are the first of a cell."""
    (h, c), y, found = (one[0] for one in m.a(x)[1]), x[:, -1], []
    for _ in range(3):
        h, c = m.c(y, (h, c))
        y = m.f(h)
        found.append(y)
    return torch.stack(found, 1)


def learned_state(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The first output is a parameter, repeated for each image; the first state is 0."""
    h = m.h[:, None].expand(1, x.shape[0], 4).contiguous()
    found: torch.Tensor = m.a(x, (h, torch.zeros_like(h)))[0]
    return found


def times_first(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The state of a layer whose first dimension are the times."""
    found: torch.Tensor = m.a(x.transpose(0, 1))[1][1].transpose(0, 1)
    return found


def states(kind: type[nn.RNNBase], **settings: Any) -> nn.Module:
    return Written(with_states, a=kind(3, 4, 2, batch_first=True, bidirectional=True, **settings), f=nn.Linear(3, 4))


def cells(kind: type[nn.RNNCellBase], **settings: Any) -> nn.Module:
    return Written(with_cells, a=kind(3, 4, **settings), b=kind(4, 4, **settings))


def learned() -> nn.Module:
    module = Written(learned_state, a=nn.LSTM(3, 4, batch_first=True))
    module.h = nn.Parameter(torch.rand(1, 4))
    return module


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "LSTM cells": lambda: cells(nn.LSTMCell), "GRU cells": lambda: cells(nn.GRUCell),
    "cells without biases": lambda: cells(nn.GRUCell, bias=False), "plain cells": lambda: cells(nn.RNNCell),
    "LSTM with states": lambda: states(nn.LSTM), "GRU with states": lambda: states(nn.GRU, bias=False),
    "rectified": lambda: states(nn.RNN, nonlinearity="relu"), "a learned state": learned,
    "the state, times first": lambda: Written(times_first, a=nn.LSTM(3, 4, 2)),
    "a decoder": lambda: Written(decoder, a=nn.LSTM(3, 4, batch_first=True), c=nn.LSTMCell(3, 4), f=nn.Linear(4, 3)),
}


def made(name: str) -> nn.Module:
    torch.manual_seed(3)
    return NETWORKS[name]()


@pytest.mark.parametrize("name", few(NETWORKS, {"LSTM cells", "rectified", "a decoder",
                                                "a learned state"}.__contains__))
def test_steps_are_torchs(name: str) -> None:
    """Of another number of images than the example's; and the module comes back, trained."""
    module, x = made(name), torch.randn(4, TIMES, 3)
    net = Network.from_torch(module, example=(2, TIMES, 3))
    target = torch.randn(module(x).shape)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(3):
        loss = functional.mse_loss(module(x), target)
        assert net.step(x.numpy(), target.numpy(), Sgd(0.1)) == pytest.approx(loss.item(), rel=1e-5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for one, other in zip(net.to_torch().parameters(), module.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["GRU cells", pytest.param("a decoder", marks=pytest.mark.deep)])
def test_they_are_judged(name: str, tmp_path: Path) -> None:
    """The library's step is right; a thousandth more in the gradient of a weight that all times take is a bug."""
    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        model=lambda: made(name), shape=(TIMES, 3), batch=3, steps=1, lr=0.1, threads=1)).path
    result = tmp_path / "result.h5"
    extension.run_file(fixture, result, "cpu")
    assert judge(fixture, result, diagnosing=False).verdict.outcome is Outcome.ROUNDING
    weight = "grads/c.weight_hh/weight" if name == "a decoder" else "grads/b.weight_hh/weight"
    with h5py.File(result, "r+") as file:
        file[f"steps/0/{weight}"][...] *= 1.001
    comparison, verdict = judge(fixture, result, diagnosing=False)
    assert verdict.outcome is Outcome.BUG and comparison.failures[0].name == weight


def test_states_of_some_images_alone_are_refused() -> None:
    """They are stored for as many images as the example has, and not all are the same."""
    torch.manual_seed(0)
    stored = torch.randn(1, 2, 4)
    module = Written(lambda m, x: m.a(x, stored)[0], a=nn.GRU(3, 4, batch_first=True))
    with pytest.raises(ArgumentError, match="output differs as it is"):
        Network.from_torch(module, example=(2, TIMES, 3))
