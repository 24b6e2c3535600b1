# SPDX-License-Identifier: MIT
"""Fixtures of what is no image: vectors, sequences, volumes, several inputs, of whose shape numbers are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.engine.library import extension
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.validate.__main__ import main as validate
from reference.cli import main
from reference.errors import InputError
from reference.export import export
from reference.inputs import Inputs
from reference.settings import ExportSettings


class Timed(nn.Module):
    """An image, and one number for it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.of_time = nn.Conv2d(1, 2, 3, padding=1), nn.Linear(1, 2)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.conv(x) * self.of_time(t[:, None])[:, :, None, None]


def vectors() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 5))


def sequences() -> nn.Module:
    return nn.Sequential(nn.Conv1d(3, 8, 5, padding=2), nn.GELU(), nn.Conv1d(8, 2, 3))


def volumes() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 1, 3, padding=1))


@pytest.mark.parametrize(("model", "shape", "of_input"), [
    (vectors, "12", (2, 12)), (sequences, "3,40", (2, 3, 40)), (volumes, "1,6,8,7", (2, 1, 6, 8, 7)),
    (Timed, "x=1,6,8 t=", (2, 49)), (Timed, "t= x=1,6,8", (2, 49))], ids=lambda one: getattr(one, "__name__", None))
def test_a_step_is_right(model: type[nn.Module], shape: str, of_input: tuple[int, ...], tmp_path: Path) -> None:
    fixture, result = tmp_path / "f.h5", tmp_path / "r.h5"
    assert main([str(fixture), "--model", f"{__name__}:{model.__name__}", "--shape", shape, "--steps", "2"]) == 0
    with h5py.File(fixture) as file:
        given = [file[f"batches/{k}/input"][()] for k in range(2)]
        assert given[0].shape == of_input and not (given[0] == given[1]).any()
        assert abs(np.concatenate(given, None).mean()) < 1 and 0.5 < np.concatenate(given, None).std() < 1.5
        assert file["model"].attrs.get("inputs") == (shape if "=" in shape else None)
        assert file.attrs["data"] == "normal numbers, seed 0"
    extension.run_file(fixture, result)
    assert judge(fixture, result, diagnosing=False).verdict.outcome is Outcome.ROUNDING


def test_a_list_is_a_shape(tmp_path: Path) -> None:
    """Of an image as of anything else."""
    made: dict[str, tuple[Any, Any]] = {"image": (lambda: nn.Sequential(nn.Conv2d(1, 1, 3)), [1, 6, 8]),
                                        "vector": (vectors, [12])}
    for name, (model, shape) in made.items():
        export(tmp_path / name, ExportSettings(model=model, shape=shape, steps=1))
        with h5py.File(tmp_path / name) as file:
            assert file.attrs["data"].startswith("normal numbers" if name == "vector" else "synthetic")


def test_classes_are_drawn_for_a_loss_of_classes(tmp_path: Path) -> None:
    export(tmp_path / "f.h5", ExportSettings(model=vectors, shape=(12,), batch=8, steps=1, loss="cross_entropy"))
    with h5py.File(tmp_path / "f.h5") as file:
        target = file["batches/0/target"][()]
    assert target.shape == (8, 5) and (target.sum(1) == 1).all() and set(np.unique(target)) == {0, 1}
    assert len(np.unique(target.argmax(1))) > 1


def test_another_seed_gives_other_numbers(tmp_path: Path) -> None:
    found = []
    for number, seed in enumerate((1, 1, 2)):
        export(tmp_path / f"{number}.h5", ExportSettings(model=vectors, shape=(12,), steps=1, seed=seed))
        with h5py.File(tmp_path / f"{number}.h5") as file:
            found.append(np.append(file["batches/0/input"][()], file["batches/0/target"][()]))
    assert np.array_equal(found[0], found[1]) and not (found[0] == found[2]).any()


@pytest.mark.parametrize(("given", "why"), [
    ({"shape": (12,), "probe": True}, r"shape is \(12,\), and a probe's are of \(channels, height, width\)"),
    ({"shape": Inputs(("x", "t"), ((1, 6, 8), ())), "image": "a.mrc"}, "shape is x=1,6,8 t=, and images are of"),
    ({}, r"fails on images of 1024x1024 pixels: .*--shape of commands, says the shape of what is no image"),
    ({"model": Timed}, r"a second input, 't'.*of commands --shape \"x=1,64,64 t=\""),
    ({"shape": (12, 0)}, "shape must be >= 1, found 0"), ({"shape": 12}, "shape: 12, expected numbers"),
    ({"shape": (7,)}, r"an input of the shape \(2, 7\)"),
    ({"shape": Inputs(("x", "y"), ((1, 6, 8), ())), "model": Timed}, r"2 inputs \(x, y\), expected those that forward "
     "takes: x, t")])
def test_what_does_not_fit_is_refused(given: dict[str, object], why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=why):
        export(tmp_path / "f.h5", ExportSettings(**{"model": vectors, **given}))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_validate_takes_the_shapes_of_two_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(["--model", f"{__name__}:Timed", "--shape", "x=1,6,8 t=", "--steps", "2", "--no-diagnosis"]) == 0
    out = capsys.readouterr().out
    assert "RIGHT" in out and "cnn_step and the Python extension agree to the bit" in out
