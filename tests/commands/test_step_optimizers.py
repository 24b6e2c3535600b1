# SPDX-License-Identifier: MIT
"""``cnn_step`` with Adam, AdamW and schedules: right results, and one clear line for what it cannot use."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import h5py
import pytest

from bridge.common.errors import FileError
from bridge.engine.library.programs import cnn_step
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.torch_graphs import Denoiser

CASES = [
    {"optimizer": "adam"},
    {"optimizer": "adam", "weight_decay": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "precision": "float64"},
    {"optimizer": "adamw", "schedule": "StepLR(step_size=1, gamma=0.5)", "model": Denoiser},
    {"momentum": 0.9, "nesterov": True, "schedule": "CosineAnnealingLR(T_max=4)"},
]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([cnn_step(), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_the_steps_are_right(tmp_path: Path, settings: dict[str, object]) -> None:
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(height=12, width=10, steps=4, **settings))  # type: ignore[arg-type]
    assert run(fixture, result).returncode == 0
    judgement = judge(fixture, result, adequacy=False)
    assert judgement.verdict.outcome is Outcome.ROUNDING, judgement.verdict.words
    names = {(one.name, one.step) for one in judgement.comparison.judged}
    assert len([name for name, _ in names if name.startswith("optimizer/")]) >= 16


def copy_of(fixture: Path, folder: Path) -> Path:
    result = folder / "candidate.h5"
    shutil.copy(fixture, result)
    with h5py.File(result, "r+") as file:
        file.attrs["role"], file.attrs["producer"] = "candidate", "another program"
    return result


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("optimizers") / "fixture.h5"
    return export(path, ExportSettings(height=8, width=8, steps=2, optimizer="adam", schedule="StepLR(1)")).path


@pytest.mark.parametrize(("name", "value", "said"), [
    ("type", "rmsprop", "optimizer type is rmsprop, expected sgd, adam or adamw"),
    ("beta1", 1.0, "adam: beta1 is 1"),
    ("beta2", -0.5, "adam: beta2 is -0.5"),
    ("eps", float("nan"), "adam: eps is"),
    ("eps", None, "eps"),
])
def test_unusable_settings_are_one_line(fixture: Path, tmp_path: Path, name: str, value: object, said: str) -> None:
    damaged = tmp_path / "damaged.h5"
    shutil.copy(fixture, damaged)
    with h5py.File(damaged, "r+") as file:
        del file["optimizer"].attrs[name]
        if value is not None:
            file["optimizer"].attrs[name] = value
    done = run(damaged, tmp_path / "result.h5")
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "result.h5").exists()


def test_a_rate_that_is_no_number_is_refused(fixture: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.h5"
    shutil.copy(fixture, damaged)
    with h5py.File(damaged, "r+") as file:
        file["steps/1"].attrs["lr"] = -1.0
    done = run(damaged, tmp_path / "result.h5")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"{damaged}: /steps/1: adam: lr is -1" in done.stderr
    with pytest.raises(FileError, match=r"attribute lr of steps/1 is -1\.0, expected a finite number"):
        judge(damaged, copy_of(fixture, tmp_path), adequacy=False)


@pytest.mark.parametrize(("name", "value"), [("beta1", 1.0), ("beta2", -0.5), ("eps", float("nan")),
                                             ("type", "rmsprop")])
def test_the_judge_refuses_them_too(fixture: Path, tmp_path: Path, name: str, value: object) -> None:
    damaged = tmp_path / "damaged.h5"
    shutil.copy(fixture, damaged)
    with h5py.File(damaged, "r+") as file:
        file["optimizer"].attrs[name] = value
    with pytest.raises(FileError, match=f"attribute {name} of /optimizer"):
        judge(damaged, copy_of(fixture, tmp_path), adequacy=False)
