# SPDX-License-Identifier: MIT
"""Fixtures of batches that are the user's own, of any shape, and programs of others that compute them."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from bridge.compare import main as compare
from bridge.engine.library import extension
from reference.cli import main
from reference.errors import InputError
from reference.export import export
from reference.settings import ExportSettings
from tests import ROOT

RNG = np.random.default_rng(5)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))


def rows() -> nn.Module:
    """Of samples (4, 6), which are no images."""
    return nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 5), nn.Tanh())


def images() -> nn.Module:
    """No convolution says how many channels it takes first."""
    return nn.Sequential(nn.GroupNorm(2, 4), nn.Conv2d(4, 3, 3, padding=1))


@pytest.mark.parametrize(("model", "given", "wanted", "loss"), [
    (mlp, (7, 12), (7, 3), "mse"), (rows, (3, 4, 6), (3, 4, 5), "huber delta=0.5"),
    (images, (2, 4, 6, 5), (2, 3, 6, 5), "l1"), (mlp, (7, 12), (7,), "cross_entropy")])
@pytest.mark.parametrize("count", [1, 2])
def test_arrays_in_memory(model: Any, given: tuple[int, ...], wanted: tuple[int, ...], loss: str, count: int,
                          tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The batches of the fixture are they, and a step of ours on them is right, by a whole report."""
    inputs = [RNG.standard_normal(given) for _ in range(count)]
    targets = [RNG.integers(0, 3, wanted) if len(wanted) == 1 else RNG.standard_normal(wanted) for _ in range(count)]
    whole = {1: (inputs[0], targets[0]), 2: (inputs, targets)}[count]
    fixture, result = str(tmp_path / "f.h5"), str(tmp_path / "r.h5")
    export(fixture, ExportSettings(input=whole[0], target=whole[1], model=model, loss=loss, optimizer="adam"))
    with h5py.File(fixture) as file:
        assert len(file["batches"]) == count and file.attrs["data"] == "input of the user's own"
        for k in range(count):
            assert np.array_equal(file[f"batches/{k}/input"][()], inputs[k].astype(np.float32))
            found = file[f"batches/{k}/target"][()]
            assert np.array_equal(found.argmax(1) if loss == "cross_entropy" else found, targets[k].astype(found.dtype))
    extension.run_file(fixture, result, "cpu", "")
    assert compare([fixture, result, "--report", str(tmp_path / "report.html")]) == 0
    said = capsys.readouterr()
    assert "MISSING" not in said.out and f"batch {' x '.join(map(str, given))}, " in said.out
    assert "fault of ours" not in (tmp_path / "report.html").read_text("utf-8") + said.err


def test_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A file is the batch of every step; the files of a folder are those of the steps, 2 before 10."""
    monkeypatch.chdir(tmp_path)
    Path("inputs").mkdir()
    for number in (10, 2):
        np.save(f"inputs/{number}.npy", np.full((2, 1, 6, 5), number, np.float32))
    np.save("target.npy", np.ones((2, 1, 6, 5), np.float32))
    options = ["--input", "inputs", "--target", "target.npy"]
    assert main(["f.h5", *options]) == 0
    with h5py.File("f.h5") as file:
        assert [file[f"batches/{k}/input"][0, 0, 0, 0] for k in range(2)] == [2, 10]
        assert file.attrs["data"] == "input of the user's own, inputs/2.npy"
    assert main(["f.h5", "--input", "target.npy", "--target", "target.npy", "--steps", "4"]) == 0
    with h5py.File("f.h5") as file:
        assert len(file["batches"]) == 4
    for more, said in ((["--size", "8"], "--size is given, and --input"), (["--batch", "3"], "--batch is given, and"),
                       (["--steps", "3"], "input: 2 batches found, expected one, or one for each of 3 steps"),
                       (["--probe"], "input is given, and probe"), (["--image", "target.npy"], "and image")):
        assert main(["g.h5", *options, *more]) == 2
        assert said in capsys.readouterr().err
    assert main(["g.h5", "--input", "inputs"]) == 2
    assert "input is given without target, expected both" in capsys.readouterr().err
    assert main(["target.npy", *options]) == 2
    assert np.load("target.npy").shape == (2, 1, 6, 5) and not Path("g.h5").exists()


@pytest.mark.parametrize(("given", "target", "said"), [
    (np.zeros((2, 12)), np.zeros((2, 4)), r"target: shape \(2, 4\), expected that of the model's output, \(2, 3\)"),
    (np.zeros((2, 11)), np.zeros((2, 3)), "the model fails|shape"),
    (np.full((2, 12), np.nan), np.zeros((2, 3)), "input: holds NaN or infinity"),
    (np.zeros((2, 12), "U1"), np.zeros((2, 3)), "input: <U1 of shape"), ([], np.zeros((2, 3)), "input: no batch found"),
    ([np.zeros((2, 12)), np.zeros((3, 12))], np.zeros((2, 3)), r"input 1: shape \(3, 12\), expected \(2, 12\)"),
    ("none.npy", "none.npy", "none.npy: No such file"),
    (np.full((2, 12), 1e39), np.zeros((2, 3)), r"input: numbers up to 1e\+39, too large for float32"),
    (np.zeros((2, 12)), np.full((2, 3), -1e39), r"target: numbers up to 1e\+39, too large for float32"),
])
def test_what_is_no_batch_is_named(given: Any, target: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        export(tmp_path / "f.h5", ExportSettings(input=given, target=target, model=mlp))
    assert not list(tmp_path.iterdir())


def test_classes_that_there_are_none_of(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="target: classes 0 to 3, expected 0 to 2"):
        export(tmp_path / "f.h5", ExportSettings(input=np.zeros((2, 12)), target=np.array([0, 3]), model=mlp,
                                                 loss="cross_entropy"))


@pytest.mark.parametrize("program", ["train_numpy", "train_jax"])
def test_programs_of_others_are_right(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    """As the examples have it: with Adam, and of the numpy program every tensor is judged."""
    if program == "train_jax" and importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed: pip install .[bench]")
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples/3_judge"))
    _, batch, exported, *_ = (ROOT / "examples/3_judge/train_numpy.py").read_text("utf-8").split("\npython ")
    subprocess.run([sys.executable, ROOT / "examples/3_judge" / batch], check=True)
    assert main(shlex.split(exported.removeprefix("-m reference.export"))) == 0
    source = ROOT / f"examples/3_judge/{program}.py"
    subprocess.run([sys.executable, source], check=True)
    assert compare(["fixture.h5", "result.h5"]) == 0
    wrong = source.read_text("utf-8").replace("1 - beta2", "1 - beta1")
    Path("wrong.py").write_text(wrong.replace('adam["beta2"] ** t', 'adam["beta1"] ** t'), "utf-8")
    subprocess.run([sys.executable, "wrong.py"], check=True)
    capsys.readouterr()
    assert compare(["fixture.h5", "result.h5", "--report", "report.html"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("BUG: optimizer/0/weight of step 1 ")
    assert "MISSING" not in said.out and "fault of ours" not in said.err
