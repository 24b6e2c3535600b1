# SPDX-License-Identifier: MIT
"""The face for test suites of others."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bridge.common.errors import ArgumentError, FileError
from bridge.engine.library import extension
from bridge.judge.oracle.reduced_precision import round_fraction
from bridge.testing import assert_step_matches
from bridge.validate.self_test.fast_algorithms import PROGRAMS
from tests.helpers.candidates import Operations, plant, train


class Tf32(Operations):
    """Forward products of operands with 10 bits of fraction."""

    def conv(self, layer, x, w, b):
        low = [torch.from_numpy(round_fraction(v.numpy(), 10)) for v in (x, w)]
        return super().conv(layer, *low, b)


def test_a_right_result_passes(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    found = assert_step_matches(small_fixture, small_result, report=tmp_path / "out.html")
    assert not found.failures and found.steps == 3
    assert "Right: rounding" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_a_result_is_made_on_the_way(small_fixture: Path) -> None:
    """In a folder that is gone afterwards."""
    made: list[Path] = []

    def run(fixture: Path, result: Path) -> None:
        made.append(result)
        extension.run_file(fixture, result)

    assert_step_matches(str(small_fixture), run=run)
    assert len(made) == 1 and not made[0].parent.exists()


def test_a_bug_fails_with_the_verdict(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    path = plant(small_result, tmp_path / "bad.h5", {"steps/1/grads/conv2/weight": lambda g: g[:, :, ::-1]})
    # A lower precision may be allowed: a bug is none
    with pytest.raises(AssertionError) as caught:
        assert_step_matches(small_fixture, path, allow_lower_precision=True, report=tmp_path / "out.html")
    said = str(caught.value)
    assert said.startswith("BUG: grads/conv2/weight of step 1 is wrong, T = ")
    assert "Look at the filter gradient of conv2." in said
    assert "\n  grads/conv2/weight [step 1]: bug, T = " in said and "right is" in said
    assert "BUG: grads/conv2/weight" in (tmp_path / "out.html").read_text(encoding="utf-8")


@pytest.mark.deep
def test_an_algorithm_is_right_where_it_is_allowed(small_fixture: Path, tmp_path: Path) -> None:
    path = train(small_fixture, tmp_path / "result.h5", PROGRAMS["Winograd F(6x6,3x3)"])
    with pytest.raises(AssertionError, match="OTHER ALGORITHM"):
        assert_step_matches(small_fixture, path)
    assert not assert_step_matches(small_fixture, path, allow={"winograd"}).failures
    with pytest.raises(ArgumentError, match="'winegrad' found"):
        assert_step_matches(small_fixture, path, allow={"winegrad"})


def test_a_wrong_program_fails(small_fixture: Path) -> None:
    def run(fixture: Path, result: Path) -> None:
        extension.run_file(fixture, result)
        with h5py.File(result, "r+") as file:
            file["steps/0/loss"][...] *= 1.5

    with pytest.raises(AssertionError, match=r"^BUG: loss of step 0"):
        assert_step_matches(small_fixture, run=run)


@pytest.mark.deep
def test_a_message_is_short(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    names = [f"steps/{k}/forward/conv{i}" for k in range(3) for i in (1, 2, 3)]
    path = plant(small_result, tmp_path / "bad.h5", {name: lambda z: z * np.float32(1.5) for name in names})
    with pytest.raises(AssertionError, match=r"and \d+ more outside their bounds") as caught:
        assert_step_matches(small_fixture, path)
    assert len(str(caught.value).splitlines()) < 40


@pytest.mark.deep
def test_lower_precision_is_a_choice(small_fixture: Path, tmp_path: Path) -> None:
    path = train(small_fixture, tmp_path / "low.h5", Tf32)
    with pytest.raises(AssertionError, match=r"^LOWER PRECISION than declared"):
        assert_step_matches(small_fixture, path)
    found = assert_step_matches(small_fixture, path, allow_lower_precision=True)
    assert found.failures


@pytest.mark.deep
def test_what_nobody_can_tell_is_no_pass(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    gone = {f"steps/{k}/weights/conv1/bias": lambda w: None for k in (1, 2)}
    path = plant(small_result, tmp_path / "part.h5", gone)
    for allow in (False, True):
        with pytest.raises(AssertionError, match=r"^CANNOT TELL"):
            assert_step_matches(small_fixture, path, allow_lower_precision=allow)


def test_wrong_use(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="neither of result and run"):
        assert_step_matches(small_fixture)
    with pytest.raises(ArgumentError, match="both of result and run"):
        assert_step_matches(small_fixture, small_result, run=extension.run_file)
    with pytest.raises(FileError, match="no such file"):
        assert_step_matches(small_fixture, tmp_path / "none.h5")
    with pytest.raises(FileError, match="no such file"):
        assert_step_matches(small_fixture, run=lambda fixture, result: None)
