# SPDX-License-Identifier: MIT
"""Networks that are read, trained some steps beside their modules, and judged."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import nn

import bridge
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.library import extension
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from reference.network.layers import to_type

LR = 2.0**-7
CLOSE = {"float32": 2e-5, "float64": 1e-13}


def train_beside(module: nn.Module, shape: tuple[int, ...], device: str, dtype: str, steps: int = 3,
                 below: int = 0) -> nn.Module:
    """Train a network and its module on the same random numbers, or whole numbers below one; all outputs and parameters
    agree. Returns the former's module."""
    kind = getattr(torch, dtype)
    module = to_type(module, kind)
    net = bridge.Network.from_torch(copy.deepcopy(module), example=shape, device=device)
    optimizer = torch.optim.SGD(module.parameters(), LR)
    for _ in range(steps):
        x = torch.randint(below, shape) if below else torch.randn(shape, dtype=kind)
        target = torch.randn_like(module(x))
        optimizer.zero_grad()
        y = module(x)
        nn.functional.mse_loss(y, target).backward()
        optimizer.step()
        given = [to_device(one.to(kind).contiguous().numpy(), net.device) for one in (x, target)]
        np.testing.assert_allclose(to_host(net.forward(given[0])), y.detach().numpy(), 0, CLOSE[dtype])
        net.step(*given, lr=LR)
    trained = net.to_torch()
    for name, value in module.state_dict().items():
        if (value.is_floating_point() or value.is_complex()) and "running" not in name:
            torch.testing.assert_close(trained.state_dict()[name], value, rtol=0, atol=CLOSE[dtype])
    return trained


def assert_right(fixture: Path, result: Path, device: str) -> None:
    """The library's steps are judged right, all of them, by proven bounds."""
    extension.run_file(fixture, result, device)
    comparison, verdict = judge(fixture, result, diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING, verdict.words
    assert not comparison.not_judged and not comparison.estimated


def assert_caught(fixture: Path, result: Path, name: str, mistake: Callable[[np.ndarray], np.ndarray]) -> None:
    """A mistake in a tensor of the first step is a bug there."""
    extension.run_file(fixture, result, "cpu")
    with h5py.File(result, "r+") as file:
        one = file[f"steps/0/{name}"]
        one[...] = mistake(one[...])
    _, verdict = judge(fixture, result, diagnosing=False, adequacy=False)
    assert verdict.outcome is Outcome.BUG and name in verdict.words, verdict.words
