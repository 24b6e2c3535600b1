# SPDX-License-Identifier: MIT
"""Comparison, decision and diagnosis together: what `bridge.judge.judge.judge` and ``bridge.compare`` make of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge.common.errors import FileError
from bridge.engine.library.programs import cnn_step
from bridge.exchange.file import ExchangeFile
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.judge import judge
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.outcome import Outcome
from tests.helpers.candidates import ask, keep, plant
from tests.helpers.judged.opened import runs_of

GRADIENT = "steps/0/grads/conv2/weight"


def test_a_fixture_in_disguise_is_refused(small_fixture: Path, tmp_path: Path) -> None:
    """Every number is right, and nothing was computed; one number that differs makes it a candidate."""
    copy = Path(shutil.copy(small_fixture, tmp_path / "copy.h5"))
    with h5py.File(copy, "r+") as file:
        file.attrs["role"] = "candidate"
    with pytest.raises(FileError, match=r"copy\.h5: it was written by 'reference\.export.*a copy of"):
        judge(small_fixture, copy)
    with h5py.File(copy, "r+") as file:
        file["steps/2/loss"][...] *= 1 + 2.0**-22
    assert judge(small_fixture, copy, diagnosing=False)[1].outcome is Outcome.ROUNDING


def test_a_named_fault_is_a_bug_where_the_size_of_the_error_is_in_doubt(
    small_fixture: Path, small_result: Path, tmp_path: Path
) -> None:
    """A gradient times 1.01 is no further off than operands of a lower precision may take it; but no rounding is
    proportional."""
    off = plant(small_result, tmp_path / "off.h5", {GRADIENT: lambda g: g * np.float32(1.01)})
    # The new weights would betray it at once
    wrong = keep(off, tmp_path / "wrong.h5", lambda name: name.startswith("steps/0/") and "weights" not in name)
    assert judge(small_fixture, wrong, diagnosing=False)[1].outcome is Outcome.CANNOT_TELL
    _, verdict = judge(small_fixture, wrong, adequacy=False)
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    (finding,) = verdict.diagnosis.findings
    assert finding.name == "grads/conv2/weight" and finding.explanations[0].kinds[0].key == "scale"
    assert finding.explanations[0].t < 1


def test_diagnosis_and_adequacy_come_with_the_verdict(small_fixture: Path, small_result: Path) -> None:
    _, verdict = judge(small_fixture, small_result)
    assert verdict.outcome is Outcome.ROUNDING and verdict.diagnosis is None
    assert verdict.adequacy is not None and len(verdict.adequacy.sights) > 500
    assert judge(small_fixture, small_result, diagnosing=False)[1].adequacy is None


def test_a_second_run(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    """Equal, different by rounding, different by more; each run alone is right."""
    same = Path(shutil.copy(small_result, tmp_path / "same.h5"))
    answer = ask(small_fixture, small_result, "--again", str(same))
    assert answer.code == 0 and "REPEATABLE: two runs agree to the bit" in answer.words
    last_bit = plant(small_result, tmp_path / "bit.h5", {GRADIENT: lambda g: np.nextafter(g, np.float32(1))})
    answer = ask(small_fixture, small_result, "--again", str(last_bit))
    assert answer.code == 0 and "NOT REPEATABLE, within rounding" in answer.words
    torn = plant(
        small_result, tmp_path / "torn.h5", {GRADIENT: lambda g: g * (np.arange(g.size).reshape(g.shape) != 7)}
    )
    answer = ask(small_fixture, small_result, "--again", str(torn))
    assert answer.code == 1 and answer.words.startswith(
        "BUG: two runs of the same program differ in grads/conv2/weight"
    )
    assert ask(small_fixture, small_result, "--again", str(small_result)).code == 2


@pytest.mark.parametrize("name", ["grads/conv1/weight", "grads/input"])
def test_two_runs_with_equal_inputs_are_compared_by_the_bound_of_the_operation(
    small_fixture: Path, small_result: Path, tmp_path: Path, name: str
) -> None:
    """Far inside what errors of all layers could do together, and more than two sums of the same numbers may differ."""
    with ExchangeFile(small_fixture) as reference, ExchangeFile(small_result) as candidate:
        pair = FilePair(reference, candidate)
        graph = StepGraph(pair, 0, {key: w.astype(np.float64) for key, w in pair.start.items()})
        error = graph.operation(name).full(graph.arithmetic).error
    assert error is not None
    moved = plant(
        small_result, tmp_path / "moved.h5", {f"steps/0/{name}": lambda g: g + (4 * error).astype(np.float32)}
    )
    runs = runs_of(small_fixture, small_result, moved)
    (changed,) = runs.changed
    # At the border fewer products are summed, and the bound there is smaller
    assert changed.name == name and 1.5 < changed.statistic.t < 8 and runs.outcome is Outcome.BUG


@pytest.mark.deep
def test_the_loss_is_judged_by_the_candidates_own_output(
    small_fixture: Path, small_result: Path, tmp_path: Path
) -> None:
    """N - 1 in place of N: 7e-4 of the loss, which errors of the output propagated over all layers could hide."""
    wrong = plant(small_result, tmp_path / "wrong.h5", {"steps/0/loss": lambda x: x * (1440 / 1439)})
    _, verdict = judge(small_fixture, wrong, adequacy=False)
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    assert verdict.diagnosis.findings[0].explanations[0].kinds[0].key == "count"


@pytest.mark.parametrize("name", ["layout", "order", "flip"])
def test_fortran_refuses_weights_in_a_foreign_order(small_fixture: Path, tmp_path: Path, name: str) -> None:
    """Only the comparison reads them; a network would be loaded scrambled."""
    foreign = Path(shutil.copy(small_fixture, tmp_path / "foreign.h5"))
    with h5py.File(foreign, "r+") as file:
        file["steps/0/weights/conv2/weight"].attrs[name] = "F"
    done = subprocess.run([cnn_step(), foreign, tmp_path / "out.h5"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and not (tmp_path / "out.h5").exists()
    assert done.stderr.count("\n") == 1 and f"has the attribute {name}, expected a tensor in the usual" in done.stderr
