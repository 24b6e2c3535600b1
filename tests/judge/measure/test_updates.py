# SPDX-License-Identifier: MIT
"""What the check of updates takes from the step that it judges."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import pytest

from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.updates import UpdateCheck
from bridge.judge.oracle.sgd import lost_of_direction
from reference.export import export
from reference.settings import ExportSettings


def test_what_flushing_takes_follows_from_the_rate_of_the_step(tmp_path: Path) -> None:
    """lr times a gradient is flushed sooner where lr is smaller."""
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(height=6, width=6, steps=2, lr=0.5, schedule="StepLR(step_size=1, gamma=0.125)"))
    shutil.copy(fixture, result)
    with h5py.File(result, "r+") as file:
        file.attrs["role"], file.attrs["subnormals"] = "candidate", "flushed"
    with open_pair(fixture, result) as pair:
        check = UpdateCheck(pair, Comparison(pair.model, "float32", pair.steps, pair.batch_shape))
        lost = []
        for k in range(2):
            check.run(k, {}, {})
            lost.append(lost_of_direction(check.settings, pair.arithmetic))
    assert lost[0] > 0 and lost[1] / lost[0] == pytest.approx(8)
