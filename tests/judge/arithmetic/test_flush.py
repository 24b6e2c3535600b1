# SPDX-License-Identifier: MIT
"""Arithmetic that flushes subnormal numbers to zero is right; a bug among tiny numbers is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.common.errors import FileError
from bridge.judge.judge import judge
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.operations import Operations
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import plant, result_of

Tensor = torch.Tensor
undiagnosed = partial(judge, diagnosing=False)
TINY = 2.0**-126


def small_net() -> nn.Module:
    """Its gradients fall by 2^-20 a layer, the last of them below the smallest normal number."""
    made = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 1, 3, padding=1))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(2.0**-60)
    return made


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flush") / "fixture.h5"
    export(path, ExportSettings(height=12, width=10, batch=2, steps=2, model=small_net, threads=1, oracle_steps=1,
                                lr=1.0))
    return path


def flushed(x: Tensor) -> Tensor:
    return torch.where(x.abs() < TINY, 0.0, x)


class Flushing(Operations):
    """Each result and each product of the convolutions' operands below the smallest normal number is 0."""


def _flushing(name: str) -> Callable[..., Tensor]:
    def one(self: Operations, *given: object) -> Tensor:
        operands = [flushed(g) if isinstance(g, Tensor) else g for g in given]
        return flushed(getattr(Operations, name)(self, *operands))

    return one


for _name in ("conv", "data_gradient", "filter_gradient", "bias_gradient", "loss", "loss_gradient", "update"):
    setattr(Flushing, _name, _flushing(_name))


def test_it_is_rounding_and_a_note_says_so(fixture: Path, tmp_path: Path) -> None:
    kept, gone = (train(fixture, tmp_path / f"{kind.__name__}.h5", kind) for kind in (Operations, Flushing))
    assert undiagnosed(fixture, kept).verdict.exit_code == 0
    found = undiagnosed(fixture, gone)
    assert found.verdict.exit_code == 0, found.verdict.words
    (note,) = found.verdict.hints
    assert note.startswith("Numbers below 1.2e-38 became 0 (flush to zero): ") and "would be outside" in note
    # The same errors beside one subnormal number are no flushing
    one = plant(gone, tmp_path / "one.h5", {"steps/1/grads/input": lambda g: np.where(g == g.flat[0], g.dtype.type(
        TINY / 2), g)})
    assert undiagnosed(fixture, one).verdict.exit_code != 0


def test_it_can_be_declared(fixture: Path, tmp_path: Path) -> None:
    result = train(fixture, tmp_path / "result.h5", Flushing)
    for declared in ("flushed", "kept"):
        with h5py.File(result, "r+") as file:
            file.attrs["subnormals"] = declared
        found = undiagnosed(fixture, result).verdict
        assert found.exit_code == 0 and bool(found.hints) is (declared == "kept")
    with h5py.File(result, "r+") as file:
        file.attrs["subnormals"] = "rounded"
    with pytest.raises(FileError, match="subnormals: 'rounded' found, expected kept or flushed"):
        undiagnosed(fixture, result)


class Spread(nn.Module):
    """Logits so far apart that some probabilities are subnormal numbers, beside others that round as numbers do."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.line = nn.Flatten(), nn.Linear(16, 8)
        with torch.no_grad():
            self.line.bias.copy_(torch.linspace(0, -92, 8))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.line(self.flat(x))
        return logits


def test_large_numbers_beside_those_that_are_flushed_may_round(tmp_path: Path) -> None:
    path = tmp_path / "fixture.h5"
    export(path, ExportSettings(height=4, width=4, batch=6, steps=1, loss="cross_entropy", model=Spread, threads=1))
    changed = []

    def flush(file: h5py.File) -> None:
        def one(name: str, node: object) -> None:
            if isinstance(node, h5py.Dataset) and node.dtype == np.float32:
                tiny = (node[()] != 0) & (np.abs(node[()]) < TINY)
                node[...] = np.where(tiny, np.float32(0), node[()])
                changed.append(tiny.any())

        file.visititems(one)

    result = result_of(path, flush)
    found = undiagnosed(path, result)
    assert any(changed) and found.verdict.exit_code == 0, found.verdict.words
    assert found.verdict.hints[0].startswith("Numbers below 1.2e-38 became 0 (flush to zero): 1 tensor would be")
    # An ordinary number that is 0 beside them is none of them
    wrong = plant(result, tmp_path / "wrong.h5", {"steps/0/grads/line/output": lambda g: g * (np.abs(g) > 1e-20)})
    assert undiagnosed(path, wrong).verdict.exit_code == 1


def test_a_bug_among_tiny_numbers_is_a_bug(fixture: Path, tmp_path: Path) -> None:
    """A gradient of 2^-60 that is missing in one channel, and one that is half."""
    right = train(fixture, tmp_path / "right.h5", Flushing)
    channel = np.array([0, 1, 1], np.float32)[:, None, None]
    for name, edit in (("weight", lambda g: g * channel), ("bias", lambda g: g / 2)):
        wrong = plant(right, tmp_path / "wrong.h5", {f"steps/0/grads/2/{name}": edit})
        found = undiagnosed(fixture, wrong).verdict
        assert found.exit_code == 1 and f"grads/2/{name}" in found.words, found.words
        wrong.unlink()
