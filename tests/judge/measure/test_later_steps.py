# SPDX-License-Identifier: MIT
"""A fixture may be a step of a training that runs, judged by what its optimiser remembers before the step and after."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge import Adam, AdamW, Network, Sgd
from bridge.common.errors import FileError
from bridge.engine.library import extension
from bridge.exchange.model import Conv2d, Model, Relu
from bridge.exchange.optimizers import Optimizer
from bridge.judge.judge import Judgement, judge
from bridge.judge.measure.outcome import Outcome

MODEL = Model((Conv2d("a", 1, 3, (3, 3), padding=(1, 1)), Relu("r"), Conv2d("b", 3, 1, (3, 3), padding=(1, 1))))
OPTIMIZERS = [Sgd(0.05, momentum=0.9), Sgd(0.05, 0.9, dampening=0.5, weight_decay=0.1), Sgd(0.05, 0.8, nesterov=True),
              Adam(1e-2), AdamW(1e-2)]


def fixture_of(optimizer: Optimizer, folder: Path, steps: int = 4) -> Path:
    """The step behind so many others."""
    rng, net, path = np.random.default_rng(0), Network(MODEL), folder / "fixture.h5"
    for array in net.parameters.values():
        array[...] = 0.3 * rng.standard_normal(array.shape)
    x, target = rng.standard_normal((2, 2, 1, 12, 10)).astype(np.float32)
    for _ in range(steps):
        net.step(x, target, optimizer)
    net.save(path, optimizer)
    with h5py.File(path, "r+") as file:
        file.attrs["role"] = "reference"
        file["batches/0/input"], file["batches/0/target"] = x, target
    return path


def result_of(fixture: Path, change: Callable[[h5py.File], object] | None = None) -> Path:
    """What `cnn_step` makes of the fixture, or of one that was changed."""
    source, result = fixture.with_name("changed.h5"), fixture.with_name("result.h5")
    shutil.copy(fixture, source)
    with h5py.File(source, "r+") as file:
        if change is not None:
            change(file)
    extension.run_file(source, result)
    return result


def first_finding(found: Judgement) -> str:
    assert found.verdict.outcome is Outcome.BUG and found.verdict.diagnosis is not None
    return "; ".join(f"{one.name}: {one.explanations[0].detail if one.explanations else ''}"
                     for one in found.verdict.diagnosis.findings)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_behind_others_is_right(optimizer: Optimizer, tmp_path: Path) -> None:
    fixture = fixture_of(optimizer, tmp_path)
    comparison, verdict = judge(fixture, result_of(fixture), adequacy=False)
    assert verdict.outcome is Outcome.ROUNDING
    assert {one.name for one in comparison.judged} > {"optimizer/a/weight", "update/b/bias"}


def forget(file: h5py.File) -> None:
    del file["steps/0/optimizer"]


def forget_the_number(file: h5py.File) -> None:
    for layer in file["steps/0/optimizer"].values():
        for parameter in layer.values():
            parameter.attrs["updates"] = 1


@pytest.mark.parametrize(("optimizer", "change", "said"), [
    (OPTIMIZERS[0], forget, "the buffer is empty before this step"),
    (OPTIMIZERS[3], forget, "averages are forgotten before each step"),
    (OPTIMIZERS[4], forget_the_number, "the number of the step in the bias correction is 3 behind"),
])
def test_what_is_not_remembered_is_named(optimizer: Optimizer, change: Callable[[h5py.File], object], said: str,
                                         tmp_path: Path) -> None:
    fixture = fixture_of(optimizer, tmp_path)
    assert said in first_finding(judge(fixture, result_of(fixture, change), adequacy=False))


def test_a_step_by_the_buffer_of_before_is_named(tmp_path: Path) -> None:
    """Used, and updated then."""
    fixture = fixture_of(OPTIMIZERS[0], tmp_path)
    result = result_of(fixture)
    with h5py.File(result, "r+") as file, h5py.File(fixture) as before:
        w, v = (before[f"steps/0/{name}"][()] for name in ("weights/b/weight", "optimizer/b/weight/momentum"))
        file["steps/1/weights/b/weight"][...] = w - np.float32(0.05) * v
    said = first_finding(judge(fixture, result, adequacy=False))
    assert "the buffer is that of the step before: used, then updated" in said


@pytest.mark.parametrize("optimizer", [OPTIMIZERS[0], OPTIMIZERS[3]])
def test_what_is_remembered_after_the_step_is_judged(optimizer: Optimizer, tmp_path: Path) -> None:
    fixture = fixture_of(optimizer, tmp_path)
    (tmp_path / "later").mkdir()
    after = fixture_of(optimizer, tmp_path / "later", 5)
    result, group = result_of(fixture), "steps/1/optimizer"
    with h5py.File(result, "r+") as file, h5py.File(after) as later:
        later.copy("steps/0/optimizer", file, group)
    comparison, verdict = judge(fixture, result, adequacy=False)
    names = {one.name for one in comparison.judged if one.name.startswith("memory/")}
    assert verdict.outcome is Outcome.ROUNDING and len(names) == 4 * len(optimizer.memory)
    kind = optimizer.memory[-1]
    with h5py.File(result, "r+") as file:
        file[f"{group}/b/weight/{kind}"][...] *= np.float32(1.001)
    assert first_finding(judge(fixture, result, adequacy=False)) == (
        f"memory/b/weight/{kind}: times 1.001 (no product of the dimensions)")
    with h5py.File(result, "r+") as file, h5py.File(fixture) as before:
        file[f"{group}/b/weight/{kind}"][...] = before[f"steps/0/optimizer/b/weight/{kind}"][()]
    said = first_finding(judge(fixture, result, adequacy=False))
    assert said.endswith("after the step it is what it was before: not updated")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_memory_of_a_dead_filter_is_right(optimizer: Optimizer, tmp_path: Path) -> None:
    """It has decayed to a few times the smallest number, where it stays: 3.6 of these are rounded to 4."""
    fixture = fixture_of(optimizer, tmp_path)
    with h5py.File(fixture, "r+") as file:
        file["steps/0/weights/a/bias"][0] = -100
        for parameter in file["steps/0/optimizer/a"].values():
            for one in parameter.values():
                one[0] = 4 * np.float32(2.0**-149)
        x, target = file["batches/0/input"][()], file["batches/0/target"][()]
    result, net = result_of(fixture), Network.from_file(fixture)
    net.step(x, target, optimizer)
    net.save(tmp_path / "later.h5", optimizer)
    with h5py.File(result, "r+") as file, h5py.File(tmp_path / "later.h5") as later:
        later.copy("steps/0/optimizer", file, "steps/1/optimizer")
    comparison, verdict = judge(fixture, result, adequacy=False)
    assert verdict.outcome is Outcome.ROUNDING
    assert all(one.t <= 1 for one in comparison.judged if one.name.startswith(("memory/", "optimizer/", "update/")))


def test_the_gradient_that_was_given_to_the_optimizer(tmp_path: Path) -> None:
    """One that was clipped: new weights are judged by it, and the gradient of the step as any other."""
    fixture = fixture_of(Sgd(0.05), tmp_path)
    result = result_of(fixture)
    with h5py.File(result, "r+") as file:
        for layer in "ab":
            for name in ("weight", "bias"):
                clipped = 0.25 * file[f"steps/0/grads/{layer}/{name}"][()]
                file[f"steps/0/applied/{layer}/{name}"] = clipped
                w = file[f"steps/0/weights/{layer}/{name}"][()]
                file[f"steps/1/weights/{layer}/{name}"][...] = w - np.float32(0.05) * clipped
    comparison, verdict = judge(fixture, result, adequacy=False)
    assert verdict.outcome is Outcome.ROUNDING
    assert {one.name for one in comparison.not_judged} == {f"update/{one}/{two}" for one in "ab"
                                                           for two in ("weight", "bias")}
    with h5py.File(result, "r+") as file:
        file["steps/0/applied/a/weight"][...] *= np.float32(1.01)
    assert first_finding(judge(fixture, result, adequacy=False)).startswith("optimizer/a/weight: ")


@pytest.mark.parametrize(("change", "said"), [
    (lambda file: file["steps/0/optimizer/a/weight"].pop("exp_avg_sq"), "exp_avg_sq is missing, expected beside the"),
    (lambda file: file["steps/0/optimizer/a/weight/exp_avg"].write_direct(np.full((3, 1, 3, 3), np.nan, np.float32)),
     "exp_avg holds NaN or infinity"),
    (lambda file: file["steps/0/optimizer/a/weight"].attrs.modify("updates", 0), "updates of steps/0/optimizer/a"),
    (lambda file: file["steps/0/optimizer/a/weight"].attrs.modify("updates", 1.5), "is 1.5, expected a whole number"),
])
def test_bad_memories_are_refused(change: Callable[[h5py.File], object], said: str, tmp_path: Path) -> None:
    fixture = fixture_of(Adam(1e-2), tmp_path)
    result = result_of(fixture)
    with h5py.File(fixture, "r+") as file:
        change(file)
    with pytest.raises(FileError, match=said):
        judge(fixture, result, adequacy=False)
