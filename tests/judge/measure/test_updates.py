# SPDX-License-Identifier: MIT
"""What the check of updates takes from the step that it judges."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bridge.exchange.optimizers import Sgd
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.updates import UpdateCheck
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.optimizers.sgd import lost_of_direction
from bridge.judge.oracle.update import taken
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.operations import Operations
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.tiers import deep


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


class SingleRate(Operations):
    """Keeps its learning rate in float32, and computes that of the next step itself."""

    def update(self, name: str, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        k = int(self.buffers.get(f"k {name}", torch.zeros(1)))
        self.buffers[f"k {name}"] = torch.ones(1) * (k + 1)
        one = np.float32(1)
        if self.cosine:
            angle = np.float32(np.pi) * np.float32(k) / np.float32(30)
            rate = np.float32(0.5) * np.float32(0.1) * (one + np.cos(angle))
        else:
            rate = np.float32(0.1)
            for _ in range(k):
                rate = rate * np.float32(self.gamma)
        return w - float(rate) * g

    cosine, gamma = False, 0.9


class Cosine(SingleRate):
    """By a cosine."""

    cosine = True


class OtherGamma(SingleRate):
    """By another factor, in its fifth digit."""

    gamma = 0.90001


@pytest.mark.parametrize(("kind", "schedule"), [deep(SingleRate, "ExponentialLR(gamma=0.9)"),
                                                (Cosine, "CosineAnnealingLR(T_max=30)")])
def test_a_schedule_may_be_computed_in_float32(kind: type[Operations], schedule: str, tmp_path: Path) -> None:
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(height=8, width=8, steps=28, lr=0.1, schedule=schedule))
    train(fixture, result, kind)
    with open_pair(fixture, result) as pair:
        worst = max(one.t for one in compare(pair).judged if one.name.startswith("optimizer/"))
        assert pair.rate_error_at(27) > pair.rate_error_at(1) > 0
    assert worst <= 1
    if kind is SingleRate:
        train(fixture, result, OtherGamma)
        with open_pair(fixture, result) as pair:
            assert max(one.t for one in compare(pair).judged if one.name.startswith("optimizer/")) > 10


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
