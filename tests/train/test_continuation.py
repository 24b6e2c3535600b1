# SPDX-License-Identifier: MIT
"""A training goes on only with what it began with, and begins the same whenever it is begun."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bridge.train.__main__ import main
from tests.helpers.networks.trained_folder import weights

NETS = """from torch import nn
def small(): return nn.Sequential(nn.Conv2d(1, 1, 3, padding=1))
def other(): return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
"""


@pytest.fixture
def with_factory(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, of a PyTorch module."""
    (tmp_path / "factories.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "factories", raising=False)
    config.write_text(config.read_text().replace(f'"{tmp_path}/net.h5"', '"factories:small"'))
    return config


@pytest.mark.parametrize(("changes", "said"), [
    (["data.batch=3"], "data.batch was 2, found 3"), (["loss=l1"], "loss was mse (mean), found l1 (mean)"),
    (["model=factories:other"], "model was 'factories:small', found 'factories:other'"),
    (["validation.batch=1"], "validation.batch was 'not given', found 1"),
    (["model=factories:none", "loss=none"], "found 'factories:none'")])
def test_a_continuation_of_another_training_is_refused(
        with_factory: Path, tmp_path: Path, changes: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By name; with --allow-changes it goes on with the checkpoint's model and loss, and the report has these."""
    assert main([str(with_factory), "--steps", "2"]) == 0
    resumed = [str(with_factory), "--resume", "--steps", "3",
               *(part for one in changes for part in ("--set", one))]
    capsys.readouterr()
    assert main(resumed) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "run" / "step-000000003.h5").exists()
    assert main([*resumed, "--allow-changes"]) == 0
    told = capsys.readouterr().err
    assert "bridge.train: changed: " in told and said in told
    report = (tmp_path / "run" / "report.html").read_text()
    assert "<dt>model</dt><dd>factories:small</dd>" in report and "<dt>loss</dt><dd>mse, mean</dd>" in report
    if "data.batch" in said:
        # From here on these are the data
        assert main([*resumed, "--steps", "4"]) == 0


def test_a_factory_that_makes_another_network_is_another_model(with_factory: Path, tmp_path: Path,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(with_factory), "--steps", "2"]) == 0
    del sys.modules["factories"]
    (tmp_path / "factories.py").write_text(NETS.replace("1, 1, 3", "1, 1, 5, dilation=1"). replace("=1))", "=2))", 1))
    assert main([str(with_factory), "--resume", "--steps", "3"]) == 2
    assert "layer 0 of the model was Conv2d(" in capsys.readouterr().err


def test_an_exchange_file_has_its_own_loss(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another one is no word that nobody reads."""
    assert main([str(config), "--set", "loss=l1"]) == 2
    assert "net.h5 is 'mse', expected the same" in capsys.readouterr().err
    assert main([str(config), "--set", "loss=mse"]) == 0


@pytest.mark.parametrize("change", ["is new", "is gone", "has another content", "order"])
def test_a_continuation_with_other_files_is_refused(change: str, config: Path, tmp_path: Path,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(3):
        np.save(folder / f"{number}.npy", np.full((2, 500, 500), number, np.float32))
    inputs = ["--set", f"data.inputs={folder}/*.npy"]
    assert main([str(config), *inputs, "--steps", "2"]) == 0
    assert main([str(config), *inputs, "--steps", "3", "--resume"]) == 0
    if change == "is new":
        np.save(folder / "00.npy", np.zeros((2, 500, 500), np.float32))
    elif change == "is gone":
        (folder / "1.npy").unlink()
    elif change == "order":
        (folder / "1.npy").rename(folder / "x")
        (folder / "2.npy").rename(folder / "1.npy")
        (folder / "x").rename(folder / "2.npy")
    else:
        # Other pixels of the same shape
        np.save(folder / "1.npy", np.full((2, 500, 500), 7, np.float32))
    capsys.readouterr()
    again = [str(config), *inputs, "--steps", "4", "--resume"]
    assert main(again) == 2
    assert ("have another content" if change == "order" else change) in capsys.readouterr().err
    assert main([*again, "--allow-changes"]) == 0


def test_fresh_trainings_are_the_same(with_factory: Path, tmp_path: Path) -> None:
    """Whatever this process has drawn before; another seed gives others."""
    import torch

    found = []
    for number, seed in enumerate((0, 0, 1)):
        torch.rand(number + 1)
        assert main([str(with_factory), "--steps", "1", "--output", f"r{number}", "--set", f"data.seed={seed}"]) == 0
        found.append(weights(tmp_path / f"r{number}" / "step-000000001.h5")["0.weight"])
    assert np.array_equal(found[0], found[1]) and not np.allclose(found[0], found[2])
