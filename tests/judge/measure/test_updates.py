# SPDX-License-Identifier: MIT
"""What the check of updates takes from the step that it judges."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge.exchange.optimizers import Sgd
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.updates import UpdateCheck
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.sgd import lost_of_direction
from bridge.judge.oracle.update import taken
from bridge.validate.self_test.candidate import train
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


def test_weights_may_be_in_use_before_they_are_rounded_for_the_file(tmp_path: Path) -> None:
    """Float64 weights, written in float32: from the second step on both ends of a step are rounded."""
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(height=12, width=12, steps=2, lr=2.0**-12))
    train(fixture, result, dtype="float64", written="float32")
    with open_pair(fixture, result) as pair:
        found = {(one.name, one.step): one.t for one in compare(pair).judged if one.name.startswith("update/")}
    assert max(found.values()) <= 1
    # The first weights are the fixture's, which nobody rounds
    settings, w, u = Sgd(2.0**-12), np.ones(1, np.float32), Arithmetic(2.0**-24)
    first, later = (taken(settings, w, w, (w, np.zeros(1)), u, given=given).bound[0] for given in (True, False))
    assert later - first == 2.0**-24 / 2.0**-12
