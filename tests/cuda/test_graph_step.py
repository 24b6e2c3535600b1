# SPDX-License-Identifier: MIT
"""``cnn_step --device cuda`` on networks that are no chains, on the strict software device."""

from __future__ import annotations

import subprocess
from pathlib import Path

from torch import nn

from bridge.engine.library.programs import cnn_step
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.cuda.children import environment
from tests.helpers.torch_graphs import Denoiser


def rows() -> nn.Module:
    """All operations that the device has: the linear layer is over the columns of each row."""
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Linear(10, 5), nn.ReLU(),
                         nn.Linear(5, 3, bias=False))


def run(fixture: Path, result: Path) -> subprocess.CompletedProcess[str]:
    """It ends with 99 if anything leaks."""
    return subprocess.run([cnn_step(), fixture, result, "--device", "cuda"], capture_output=True, text=True,
                          timeout=120, check=False, env=environment(STRICT_AT_EXIT="2"))


def test_operations_of_every_device_are_right(tmp_path: Path) -> None:
    fixture, result = tmp_path / "f.h5", tmp_path / "r.h5"
    export(fixture, ExportSettings(model=rows, height=8, width=10, batch=3, steps=2, momentum=0.5))
    done = run(fixture, result)
    assert (done.returncode, done.stderr) == (0, "")
    comparison, verdict = judge(fixture, result)
    assert verdict.outcome is Outcome.ROUNDING and not comparison.failures, verdict.words


def test_what_the_device_does_not_have_is_refused_by_its_name(tmp_path: Path) -> None:
    fixture = tmp_path / "f.h5"
    export(fixture, ExportSettings(model=Denoiser, height=8, width=10, batch=3, steps=2))
    done = run(fixture, tmp_path / "r.h5")
    assert done.returncode == 2
    assert done.stderr.endswith("layer add (add): device cuda does not have this operation, expected device cpu\n")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "r.h5").exists()


def test_an_optimiser_that_the_device_does_not_have_is_refused(tmp_path: Path) -> None:
    fixture = tmp_path / "f.h5"
    export(fixture, ExportSettings(model=rows, height=8, width=10, batch=3, steps=2, optimizer="adamw"))
    done = run(fixture, tmp_path / "r.h5")
    assert done.returncode == 2
    assert done.stderr.endswith("adamw: device cuda does not have this optimizer, expected device cpu\n")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "r.h5").exists()
