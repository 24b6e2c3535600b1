# SPDX-License-Identifier: MIT
"""Results without some of their tensors, as fused programs write them: what follows is computed from those before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.engine.library.programs import run_cnn_step
from bridge.judge.judge import Judgement, judge
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.per_step import WIDE
from bridge.judge.verdict import Outcome
from reference.export import ExportSettings, export

Files = tuple[Path, Path]


class Denoiser(nn.Module):
    """Normalisations, activations, a skip and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)
        self.norm, self.middle, self.group = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.gelu, self.silu = nn.GELU(), nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gelu(self.norm(self.first(x)))
        return self.last(0.1 * self.silu(self.group(self.middle(y))) + y)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("lacking")
    fixture, result = folder / "fixture.h5", folder / "result.h5"
    export(fixture, ExportSettings(height=12, width=16, batch=2, steps=1, model=Denoiser, threads=1, oracle_steps=1))
    run_cnn_step(fixture, result)
    return fixture, result


def judged(files: Files, folder: Path, lacks: Callable[[str], bool],
           change: Callable[[h5py.File], None] = lambda file: None) -> Judgement:
    """Of a copy that is changed and lacks tensors under /steps/0."""
    result = folder / "other.h5"
    shutil.copy(files[1], result)
    with h5py.File(result, "r+") as file:
        change(file)
        names = list[str]()
        file["steps/0"].visit(lambda name: names.append(name) if isinstance(file[f"steps/0/{name}"], h5py.Dataset)
                              else None)
        for name in filter(lacks, names):
            del file[f"steps/0/{name}"]
    return judge(files[0], result, diagnosing=False)


def between(name: str) -> bool:
    """All that a program has between its operations."""
    return name.startswith("forward/") or name.endswith("/output")


def one(found: Comparison, name: str) -> Judged:
    return next(each for each in found.judged if each.name == name)


def number(name: str) -> int:
    return sum(name.encode())


@pytest.mark.parametrize("lacks", [
    between, lambda name: between(name) and name not in ("forward/gelu", "forward/last"),
    lambda name: between(name) and number(name) % 2 == 0, lambda name: between(name) and number(name) % 3 > 0,
    lambda name: name.startswith("grads/") and name != "grads/first/bias"],
    ids=["all", "all but two", "half", "two thirds", "gradients"])
def test_a_right_program_may_keep_them_to_itself(lacks: Callable[[str], bool], right: Files, tmp_path: Path) -> None:
    comparison, verdict = judged(right, tmp_path, lacks)
    assert verdict.outcome is Outcome.ROUNDING
    assert all(each.t <= 1 for each in comparison.judged) and not any(each.hidden for each in comparison.not_judged)


def test_what_follows_is_computed_from_what_is_before(right: Files, tmp_path: Path) -> None:
    """A small mistake, far inside the bound of the whole step."""
    def change(file: h5py.File) -> None:
        file["steps/0/forward/last"][0, 0, 3] *= 1 + 1e-4

    inside, _ = judged(right, tmp_path, lambda name: between(name) and name != "forward/last", change)
    assert one(inside, "forward/last").t <= 1
    found, verdict = judged(right, tmp_path, lambda name: name in ("forward/mul", "forward/add"), change)
    assert one(found, "forward/last").t > 10 and verdict.outcome is Outcome.BUG
    assert one(found, "forward/last").note.endswith(
        "tensors before it, across forward/add and 1 more, which its file lacks")
    assert not one(found, "forward/last").by_itself and one(found, "grads/last/weight").t <= 1


def test_nothing_is_computed_across_what_is_not_finite(right: Files, tmp_path: Path) -> None:
    """It is in the file, and what follows from it is its consequence."""
    def change(file: h5py.File) -> None:
        file["steps/0/forward/group"][...] = np.nan

    found, verdict = judged(right, tmp_path, lambda name: name == "forward/silu", change)
    assert verdict.outcome is Outcome.BUG
    assert [each.name for each in found.failures] == ["forward/group"]


def test_agreement_inside_a_wide_bound_proves_nothing(right: Files, tmp_path: Path) -> None:
    """Where it is no closer than a share of the bound that is more than `WIDE` of the tensor."""
    found, _ = judged(right, tmp_path, between)
    before = one(found, "grads/first/weight").statistic
    # How wide the whole tensor's bound is; that of its worst element depends on the processor
    assert before.t * before.bound / abs(before.expected) < WIDE and not any(each.hidden for each in found.not_judged)

    def change(file: h5py.File) -> None:
        gradient = file["steps/0/grads/first/weight"]
        gradient[before.at] = before.expected + 0.9 * before.bound
        del file["steps/1"]

    found, verdict = judged(right, tmp_path, between, change)
    assert verdict.outcome is Outcome.CANNOT_TELL and not found.failures
    assert [each.name for each in found.not_judged if each.hidden] == ["grads/first/weight"]


class Resized(nn.Module):
    """An interpolation: the oracle multiplies matrices there, and no program with TF32 operands does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gelu, self.middle = nn.Conv2d(1, 4, 3, padding=1), nn.GELU(), nn.Conv2d(4, 4, 3, padding=1)
        self.up, self.last = nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.up(self.middle(self.gelu(self.first(x)))))
        return found


def test_what_multiplies_no_matrices_is_no_lower_precision(tmp_path: Path) -> None:
    """Small errors spread over a product whose input is not there may be TF32; those of an interpolation are not."""
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(height=12, width=16, batch=2, steps=1, model=Resized, threads=1, oracle_steps=1))
    run_cnn_step(fixture, result)

    def noisy(*names: str) -> Callable[[h5py.File], None]:
        def change(file: h5py.File) -> None:
            for name in names:
                a = file[f"steps/0/{name}"][()]
                noise = np.random.default_rng(0).uniform(-1, 1, a.shape)
                file[f"steps/0/{name}"][...] = a + 4e-5 * np.abs(a).mean() * noise
            del file["steps/1"]
        return change

    lacks = {"forward/gelu", "forward/up", "forward/last", "grads/middle/output"}
    alone, verdict = judged((fixture, result), tmp_path, lambda name: name in lacks, noisy("forward/middle"))
    assert alone.failures[0].name == "forward/middle" and verdict.outcome is Outcome.CANNOT_TELL
    found, verdict = judged((fixture, result), tmp_path, lambda name: name in lacks - {"grads/middle/output"},
                            noisy("forward/middle", "grads/middle/output"))
    assert found.failures[0].name == "forward/middle"
    assert one(found, "grads/middle/output").by_itself and one(found, "grads/middle/output").t > 10
    assert verdict.outcome is Outcome.BUG
