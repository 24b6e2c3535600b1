# SPDX-License-Identifier: MIT
"""What a comparison says of the reference itself: T of PyTorch's own tensors, and of their float64 twins."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import pytest

from bridge.judge.judge import judge
from bridge.judge.measure.error_statistics import Statistic
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.findings import Comparison
from tests.helpers.candidates import keep


def compared(fixture: Path, result: Path) -> Comparison:
    return judge(fixture, result, diagnosing=False)[0]


def alone(fixture: Path, result: Path, name: str, folder: Path) -> Statistic:
    """One tensor of step 0, judged without those that it was computed from: only the oracle's bound is left."""
    path = keep(result, folder / "alone.h5", f"steps/0/{name}".__eq__)
    with h5py.File(path, "r+") as file:
        file.attrs.update(role="candidate", producer="a program with these numbers")
    return next(one.statistic for one in compared(fixture, path).judged if one.name == name)


def test_t_of_pytorch_is_that_of_a_candidate_with_the_same_tensors(
    small_fixture: Path, small_result: Path, tmp_path: Path
) -> None:
    with open_pair(small_fixture, small_result) as pair:
        found = [alone(small_fixture, small_fixture, name, tmp_path).t for name in pair.shapes]
    assert compared(small_fixture, small_result).reference_t == max(found) > 0


def test_t_of_the_reference_follows_its_numbers(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    """A number is moved by a part of its bound: of an image, of a sum over the batch, of a float64 twin."""
    moves = [("steps/0", "forward/conv1", 0.8, "reference_t"), ("steps/0", "loss", 0.8, "reference_t"),
             ("oracle/steps/0", "forward/conv1", 4e-4, "twin_t")]
    for group, name, part, which in moves:
        statistic = alone(small_fixture, small_result, name, tmp_path)
        moved = Path(shutil.copy(small_fixture, tmp_path / "moved.h5"))
        with h5py.File(moved, "r+") as file:
            tensor = file[f"{group}/{name}"]
            at = statistic.at if tensor.shape else ()
            tensor[at] = statistic.expected + part * statistic.bound
            # What the file's precision made of it
            t = abs(float(tensor[at]) - statistic.expected) / statistic.bound
        assert t > part / 2
        assert getattr(compared(moved, small_result), which) == pytest.approx(t, rel=1e-6), (group, name)
