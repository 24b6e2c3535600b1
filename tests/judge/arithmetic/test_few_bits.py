# SPDX-License-Identifier: MIT
"""A loss that was stored in 16 bits is named by the bits that it lacks; data of few bits are no evidence."""

from __future__ import annotations

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from torch import Tensor

from bridge.exchange.model import Conv2d
from bridge.judge.arithmetic.few_bits import significant_bits
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.reduced_precision import round_fraction, to_fp16
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.models import pointwise
from bridge.validate.self_test.operations import Operations
from reference.export import export
from reference.settings import ExportSettings


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A fixture of three steps, whose losses a float16 changes by less than their bounds, and a right result."""
    folder = tmp_path_factory.mktemp("few_bits")
    fixture, result = folder / "fixture.h5", folder / "right.h5"
    size = {"height": 512, "width": 1024, "batch": 2}
    export(fixture, ExportSettings(**size, steps=3, oracle_steps=1, threads=1, model=pointwise))
    train(fixture, result)
    return fixture, result


def with_losses(result: Path, path: Path, change: object, steps: int = 3) -> Path:
    path.write_bytes(result.read_bytes())
    with h5py.File(path, "r+") as file:
        for k in range(steps):
            file[f"steps/{k}/loss"][...] = np.float32(change(file[f"steps/{k}/loss"][()]))  # type: ignore[operator]
    return path


def test_losses_of_16_bits_are_named(right: tuple[Path, Path], tmp_path: Path) -> None:
    fixture, result = right
    assert judge(fixture, result, diagnosing=False).verdict.outcome is Outcome.ROUNDING
    half = with_losses(result, tmp_path / "half.h5", lambda x: to_fp16(np.atleast_1d(x))[0])
    comparison, verdict = judge(fixture, half, diagnosing=False)
    assert not comparison.failures
    assert verdict.outcome is Outcome.PRECISION
    assert "loss is stored in fp16 or TF32" in verdict.words
    # How many zeros end three losses differs by one or two between processors, whose sums round differently
    chance = re.search(r"2\^(\d+)", verdict.words)
    assert chance and 33 <= int(chance[1]) <= 39, verdict.words


def test_a_loss_that_16_bits_take_out_of_its_bound(
    small_fixture: Path, small_result: Path, tmp_path: Path
) -> None:
    """Of few pixels: outside by no more than the rounding it is a lower precision, and by more a bug."""
    half = with_losses(small_result, tmp_path / "half.h5", lambda x: to_fp16(np.atleast_1d(x))[0])
    comparison, verdict = judge(small_fixture, half, adequacy=False)
    assert {one.name for one in comparison.failures} == {"loss"}
    assert verdict.outcome is Outcome.PRECISION and "everything else is inside" in verdict.words
    double = with_losses(small_result, tmp_path / "double.h5", lambda x: to_fp16(np.atleast_1d(1.01 * x))[0])
    assert judge(small_fixture, double, diagnosing=False).verdict.outcome is Outcome.BUG


def test_gradients_of_16_bits_are_named(right: tuple[Path, Path], tmp_path: Path) -> None:
    """Sums over a million pixels, of which the update follows."""

    class Half(Operations):
        def filter_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
            return super().filter_gradient(layer, dz, x, w).half().float()

        def bias_gradient(self, layer: Conv2d, dz: Tensor) -> Tensor:
            return super().bias_gradient(layer, dz).half().float()

    comparison, verdict = judge(right[0], train(right[0], tmp_path / "half.h5", Half), diagnosing=False)
    assert not comparison.failures
    assert verdict.outcome is Outcome.PRECISION and "is stored in fp16 or TF32" in verdict.words, verdict.words


def test_more_bits_or_fewer_steps_are_no_evidence(right: tuple[Path, Path], tmp_path: Path) -> None:
    fixture, result = right
    for name, change, steps in (
        ("13 bits", lambda x: round_fraction(np.atleast_1d(x), 12)[0], 3),
        ("two steps", lambda x: to_fp16(np.atleast_1d(x))[0], 2),
    ):
        other = with_losses(result, tmp_path / f"{name}.h5", change, steps)
        assert judge(fixture, other, diagnosing=False).verdict.outcome is Outcome.ROUNDING, name


@pytest.mark.deep
def test_exact_losses_are_no_evidence(tmp_path: Path) -> None:
    """Small integers in images, targets and weights, and lr = 0: every loss is a small integer."""
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(height=16, width=16, batch=2, steps=3, threads=1, probe=True))
    with h5py.File(fixture, "r+") as file:
        del file.attrs["probe"]
    train(fixture, result)
    with h5py.File(result) as file:
        assert all(significant_bits(file[f"steps/{k}/loss"][()]) <= 11 for k in range(3))
    assert judge(fixture, result, diagnosing=False).verdict.outcome is Outcome.ROUNDING
