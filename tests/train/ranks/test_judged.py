# SPDX-License-Identifier: MIT
"""N ranks are one: a step that they share is judged as any other program's, and faults of adding up are bugs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.ranks.rank_step import FAULTS
from tests.helpers.ranks.ranks import launch
from tests.helpers.tiers import few_rows

#: Of batches that ranks divide, and do not
BATCHES = (4, 5)


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Ordinary ones, by their number of images, with Adam; and an exact probe."""
    folder = tmp_path_factory.mktemp("ranks")
    made = {name: folder / f"{name}.h5" for name in (*map(str, BATCHES), "probe")}
    for batch in BATCHES:
        export(made[str(batch)], ExportSettings(height=20, width=24, batch=batch, steps=1, optimizer="adam"))
    export(made["probe"], ExportSettings(height=16, width=32, batch=4, steps=1, probe=True))
    return made


def outcome(fixture: Path, result: Path, launcher: str, ranks: int, fault: str = "") -> tuple[Outcome, str]:
    done = launch(launcher, ranks, "tests.helpers.ranks.rank_step", fixture, result, *([fault] if fault else []))
    assert done.returncode == 0, done.stderr
    verdict = judge(fixture, result, diagnosing=False).verdict
    return verdict.outcome, verdict.words


@pytest.mark.parametrize(("launcher", "ranks", "batch"), few_rows(
    [("none", 1, "5"), ("mpi", 2, "4"), ("mpi", 2, "5"), ("mpi", 4, "4"), ("mpi", 4, "5"), ("torch", 2, "5"),
     ("torch", 4, "4")], lambda row: row == ("mpi", 2, "5")))
def test_a_step_of_ranks_is_right(fixtures: dict[str, Path], tmp_path: Path, launcher: str, ranks: int, batch: str
                                  ) -> None:
    """Real numbers, inside the bounds of one step; every tensor of it is judged."""
    fixture, result = fixtures[batch], tmp_path / "result.h5"
    found, words = outcome(fixture, result, launcher, ranks)
    assert found is Outcome.ROUNDING and words.startswith("RIGHT"), words
    assert not judge(fixture, result, diagnosing=False).comparison.not_judged


@pytest.mark.parametrize(("launcher", "ranks"), few_rows([("mpi", 2), ("mpi", 4), ("torch", 2), ("torch", 4)],
                                                         lambda row: False))
def test_a_step_of_integers_is_exact(fixtures: dict[str, Path], tmp_path: Path, launcher: str, ranks: int) -> None:
    found, words = outcome(fixtures["probe"], tmp_path / "result.h5", launcher, ranks)
    assert found is Outcome.ROUNDING and words.startswith("EXACT"), words


@pytest.mark.deep
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("batch", ["5", "probe"])
def test_faults_of_adding_up_are_bugs(fixtures: dict[str, Path], tmp_path: Path, fault: str, batch: str) -> None:
    """On two ranks; parts of the probe are equal, so that their plain mean is right there."""
    found, words = outcome(fixtures[batch], tmp_path / "result.h5", "mpi", 2, fault)
    harmless = fault == "unweighted" and batch == "probe"
    assert (found is Outcome.BUG) != harmless, words
