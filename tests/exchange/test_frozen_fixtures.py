# SPDX-License-Identifier: MIT
"""Fixtures of models with frozen parameters: PyTorch leaves them, cnn_step does, and who moves one is found out."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge import compare
from bridge.common.errors import FileError
from bridge.engine.library import extension
from bridge.exchange.file import ExchangeFile
from bridge.judge.judge import judge
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.outcome import Outcome
from bridge.validate.cross_check import differences
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.cases import three_layers

FROZEN = ("conv1/weight", "conv3/bias")
NAMES = tuple(f"conv{n}/{kind}" for n in (1, 2, 3) for kind in ("weight", "bias"))
SMALL = {"height": 12, "width": 14, "batch": 3}


def frozen_model() -> nn.Module:
    module = three_layers(1, 3, torch.get_default_dtype())
    for name in FROZEN:
        module.get_parameter(name.replace("/", ".")).requires_grad_(False)
    return module


@pytest.fixture(scope="module", params=[{}, {"momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1}],
                ids=["plain", "momentum"])
def fixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps."""
    path = tmp_path_factory.mktemp("frozen") / "fixture.h5"
    export(path, ExportSettings(**SMALL, model=frozen_model, steps=2, lr=0.1, **request.param))
    return path


def result_of(fixture: Path, device: str = "cpu") -> Path:
    path = fixture.with_name(f"{device}.h5")
    extension.run_file(fixture, path, device)
    return path


def test_torch_leaves_frozen_parameters(fixture: Path) -> None:
    """Not one bit changes, they are marked in every step, and their gradients are there."""
    with h5py.File(fixture) as file:
        for name in NAMES:
            weights = [file[f"steps/{k}/weights/{name}"] for k in (0, 1, 2)]
            assert [one.attrs.get("frozen", 0) for one in weights] == [int(name in FROZEN)] * 3
            assert np.array_equal(weights[0], weights[2]) == (name in FROZEN)
            assert np.any(file[f"steps/1/grads/{name}"][()]) and np.any(file[f"oracle/steps/0/grads/{name}"][()])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_cnn_step_is_right(cuda: str, fixture: Path, device: str) -> None:
    comparison, verdict = judge(fixture, result_of(fixture, device.replace("cuda", cuda)), diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING and not comparison.failures
    judged = {one.name for one in comparison.judged}
    assert {f"update/{name}" for name in NAMES} <= judged
    assert {name for name in NAMES if f"optimizer/{name}" not in judged} == set(FROZEN)
    assert {f"grads/{name}" for name in NAMES} <= judged


def test_program_and_extension_agree(fixture: Path) -> None:
    with open_pair(fixture, result_of(fixture)) as pair:
        compared, differing = differences(pair)
    assert compared > 2 * len(NAMES) and differing == []


def moved(result: Path, folder: Path, name: str, change: np.ndarray | float) -> Path:
    path = folder / "moved.h5"
    path.write_bytes(result.read_bytes())
    with h5py.File(path, "r+") as file:
        for k in (1, 2):
            weights = file[f"steps/{k}/weights/{name}"]
            weights[...] = weights[()] + change
    return path


@pytest.mark.parametrize("name", FROZEN)
def test_one_bit_more_is_a_bug(fixture: Path, tmp_path: Path, name: str) -> None:
    """However small: nothing is rounded where nothing is computed."""
    result = result_of(fixture)
    with h5py.File(result) as file:
        first = file[f"steps/0/weights/{name}"][()]
    change = np.zeros_like(first)
    change.flat[0] = np.spacing(first.flat[0])
    comparison, verdict = judge(fixture, moved(result, tmp_path, name, change), diagnosing=False)
    assert verdict.outcome is Outcome.BUG
    assert [(one.name, one.step) for one in comparison.failures] == [(f"update/{name}", 0)]


@pytest.mark.parametrize("name", FROZEN)
def test_a_layer_that_is_trained_all_the_same_is_named(fixture: Path, tmp_path: Path, name: str) -> None:
    """What happened before the mark was heeded: the update of all others, on a frozen parameter too."""
    other, path = tmp_path / "fixture.h5", tmp_path / "result.h5"
    other.write_bytes(fixture.read_bytes())
    with h5py.File(other, "r+") as file:
        del file[f"steps/0/weights/{name}"].attrs["frozen"]
    extension.run_file(other, path)
    _, verdict = judge(fixture, path, adequacy=False)
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    said = [one.detail for finding in verdict.diagnosis.findings for one in finding.explanations]
    assert said[:1] == ["updated, although it is frozen"], said


def test_a_damaged_mark_is_refused(fixture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fixture.h5"
    path.write_bytes(fixture.read_bytes())
    with h5py.File(path, "r+") as file:
        file["steps/0/weights/conv1/bias"].attrs["frozen"] = 3
    with ExchangeFile(path) as file, pytest.raises(FileError, match="frozen of steps/0/weights/conv1/bias is 3, exp"):
        file.is_frozen("conv1/bias")
    assert compare.main([str(path), str(result_of(fixture))]) == 2
    assert "attribute frozen of" in capsys.readouterr().err


def test_a_probe_with_frozen_parameters(tmp_path: Path) -> None:
    """Nothing is rounded, and a step that leaves them is right to the bit."""
    export(tmp_path / "probe.h5", ExportSettings(height=16, width=16, batch=2, steps=1, model=frozen_model, probe=True))
    extension.run_file(tmp_path / "probe.h5", tmp_path / "result.h5")
    comparison, verdict = judge(tmp_path / "probe.h5", tmp_path / "result.h5", diagnosing=False)
    assert verdict.outcome is Outcome.ROUNDING and not comparison.failures
    assert "update/conv1/weight" in {one.name for one in comparison.judged}
