# SPDX-License-Identifier: MIT
"""For the CI of a program of yours: its training step is judged with every change. `pytest test_step.py`."""

import subprocess
from pathlib import Path

from bridge.testing import assert_step_matches
from reference.export import export
from reference.settings import ExportSettings

#: What reads a fixture and writes a result; here the project's own program stands in the place of yours
PROGRAM = "cnn_step"


def test_the_step_is_right(tmp_path: Path) -> None:
    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(height=48, width=64, batch=2, steps=2))
    assert_step_matches(
        fixture, run=lambda fixture, result: subprocess.run([PROGRAM, fixture, result], check=True),
        report=tmp_path / "report.html")
