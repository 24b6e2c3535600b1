# SPDX-License-Identifier: MIT
"""torch's optimisers and schedules, as fixtures have them."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest
import torch

from reference.errors import InputError
from reference.export import export
from reference.optimizer import rates_of
from reference.settings import ExportSettings


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_weights_are_those_of_torchs_class(tmp_path: Path, optimizer: str) -> None:
    path = tmp_path / "fixture.h5"
    export(path, ExportSettings(height=8, width=8, steps=3, optimizer=optimizer, weight_decay=0.1, betas=(0.8, 0.95),
                                eps=1e-6, lr=0.01, schedule="StepLR(step_size=2, gamma=0.1)"))
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer]
    with h5py.File(path) as file:
        weights = [torch.from_numpy(file[f"steps/{k}/weights/conv1/weight"][()]) for k in range(4)]
        gradients = [torch.from_numpy(file[f"steps/{k}/grads/conv1/weight"][()]) for k in range(3)]
        assert [file[f"steps/{k}"].attrs["lr"] for k in range(3)] == [0.01, 0.01, 0.001]
        assert file["optimizer"].attrs["type"] == optimizer and file.attrs["format_version"] == 2
    parameter = torch.nn.Parameter(weights[0].clone())
    taken = kind([parameter], 0.01, (0.8, 0.95), 1e-6, 0.1, foreach=False)
    schedule = torch.optim.lr_scheduler.StepLR(taken, 2, 0.1)
    for k in range(3):
        parameter.grad = gradients[k]
        taken.step()
        schedule.step()
        assert torch.equal(parameter.detach(), weights[k + 1])


def test_rates_are_those_of_torchs_schedules() -> None:
    assert rates_of(None, 0.5, 2) == (0.5, 0.5)
    assert rates_of("ExponentialLR(0.5)", 1.0, 3) == (1.0, 0.5, 0.25)
    assert rates_of("MultiStepLR(milestones=[1, 3], gamma=0.5)", 1.0, 4) == (1.0, 0.5, 0.5, 0.25)


@pytest.mark.parametrize(("schedule", "said"), [
    ("StepLR", "expected a class of torch.optim.lr_scheduler"),
    ("Steps(2)", "Steps is no schedule of steps"),
    ("ReduceLROnPlateau()", "is no schedule of steps"),
    ("StepLR(step_size=print())", "expected a class"),
    ("StepLR(gamma=2)", "step_size"),
    ("ExponentialLR(-1.0)", "expected finite numbers from 0 on"),
    ("OneCycleLR(max_lr=1.0, total_steps=4)", "it changes the momentum"),
    ("__import__('os')", "is no schedule of steps"),
])
def test_other_schedules_are_refused(schedule: str, said: str) -> None:
    with pytest.raises(InputError, match="schedule") as refused:
        rates_of(schedule, 1.0, 2)
    assert said in str(refused.value)


@pytest.mark.parametrize("settings", [
    {"optimizer": "lion"}, {"optimizer": "adam", "momentum": 0.9}, {"optimizer": "adam", "betas": (0.9, 1.0)},
    {"optimizer": "adamw", "eps": -1.0}, {"optimizer": "adam", "probe": True},
], ids=str)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InputError):
        ExportSettings(**settings)  # type: ignore[arg-type]
