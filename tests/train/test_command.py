# SPDX-License-Identifier: MIT
"""``python -m bridge.train``: from a TOML file to checkpoints and a log, and on from there."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from bridge import Network
from bridge.common.atomic_file import replacing
from bridge.common.errors import FileError
from bridge.data import Batch, Batches
from bridge.exchange import file_locks
from bridge.exchange.contents import seal
from bridge.train import tensorboard
from bridge.train.__main__ import main
from bridge.train.checkpoints import Checkpoints, load
from bridge.train.configuration import Configuration
from bridge.train.lock import locked
from bridge.train.log import StepLog
from bridge.train.trainer import StepRecord
from tests.helpers.networks.trained_folder import lines, weights

#: Where TensorBoard is installed
BOARD = {"tensorboard"} if find_spec("tensorboard") else set[str]()


def test_a_training_and_its_continuation(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last checkpoint and the log of two runs are those of one."""
    assert main([str(config)]) == 0
    said = capsys.readouterr()
    assert said.out == f"6 steps done; {tmp_path}/run/step-000000006.h5\n"
    assert "step 6/6: loss" in said.err and "validation" in said.err
    run, parts = tmp_path / "run", tmp_path / "parts"
    assert {one.name for one in run.iterdir()} == {"best.h5", "log.jsonl", "report.html", "step-000000004.h5",
                                                  "step-000000006.h5"} | BOARD
    other = ["--set", f"output={parts}"]
    assert main([str(config), *other, "--set", "training.steps=4"]) == 0
    with (parts / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 4, "loss": 7}\n{"st')
    assert main([str(config), *other, "--resume"]) == 0
    found, expected = lines(parts), lines(run)
    for line in (*found, *expected):
        assert line.pop("seconds") >= 0
    assert found == expected and [line["step"] for line in found] == list(range(6))
    once, twice = weights(run / "step-000000006.h5"), weights(parts / "step-000000006.h5")
    assert all(np.array_equal(once[name], twice[name]) for name in once)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_an_audit_of_what_is_remembered_of_a_dead_filter(optimizer: str, config: Path, tmp_path: Path,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    """It has decayed to a few times the smallest number; the training goes on from there."""
    if optimizer == "adam":
        config.write_text(config.read_text().partition("[optimizer]")[0] + '[optimizer]\ntype = "adam"\nlr = 1e-4\n')
    assert main([str(config), "--steps", "4"]) == 0
    with h5py.File(tmp_path / "run" / "step-000000004.h5", "r+") as file:
        (step,) = file["steps"].values()
        step["weights/0/bias"][0] = -100
        for parameter in step["optimizer/0"].values():
            for one in parameter.values():
                one[0] = 4 * np.float32(2.0**-149)
        seal(file, "training")
    capsys.readouterr()
    assert main([str(config), "--resume", "--audit", "1"]) == 0
    assert "2 steps audited: 2 rounding" in capsys.readouterr().out


def test_what_is_there_is_not_overwritten(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(config), "--resume"]) == 2
    assert "--resume: no checkpoint in" in capsys.readouterr().err
    assert main([str(config)]) == 0
    assert main([str(config)]) == 2
    assert "has step-000000006.h5 already, expected --resume" in capsys.readouterr().err


def test_a_divergence_is_no_bad_input(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(config), "--set", "optimizer.lr=1e30"]) == 1
    assert "the training diverges" in capsys.readouterr().err


@pytest.mark.parametrize(("changes", "said"), [
    (["training.step=1"], "training.step: unknown, expected one of steps, schedule"),
    (["data.seed=x"], "seed: 'x', expected 0 to"), (["data.crop=5"], "data.crop: 5, expected [height, width]"),
    (["data.noise2noise=odd"], "data.noise2noise: 'odd', expected one of even_odd, consecutive"),
    (["data.targets=x.npy"], "data: expected either targets or noise2noise"),
    (["optimizer.type=rmsprop"], "optimizer.type: 'rmsprop', expected one of sgd, adam, adamw"),
    (["optimizer.lr=fast"], "optimizer.lr: 'fast', expected a number"), (["training.clip=[]"], "training:"),
    (["training.schedule=linear"], "schedule: 'linear'"), (["model.name=1"], "model.name: model is no table"),
    (["model=none.h5"], "none.h5: no such file"), (["model=nowhere:net"], "expected package.module:factory"),
    (["device=gpu"], "gpu"), (["output=3"], "output: 3, expected a text"), (["x"], "--set x: expected KEY=VALUE"),
    (["data.inputs=none.npy"], "none.npy"),
])
def test_bad_configurations(config: Path, tmp_path: Path, changes: list[str], said: str,
                            capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names the key; nothing is made."""
    assert main([str(config), *(part for one in changes for part in ("--set", one))]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("factory", "said"), [
    ("nets:value", "model: 'nets:value' fails: ValueError: width must be odd (FILE, line 2: def value(): raise "),
    ("nets:attribute", "fails: AttributeError: 'int' object has no attribute 'width' (FILE, line 3: def attribute(): "),
    ("nets:torch", "(FILE, line 4: def torch(): return nn.Conv2d(1, 'a', 3))"),
    ("nets:nothing", "model: 'nets:nothing': nets has no function or class 'nothing', expected package.module:factory"),
    ("broken:net", "broken cannot be imported: SyntaxError: invalid syntax (FILE, line 1: def f(:)"),
    ("nets:double", "model: the parameters of 'nets:double' are float64, expected float32, which images are read as"),
    ("missing:net", "No module named 'nowhere' (FILE, line 1: import nowhere)"),
])
def test_an_error_of_the_users_own_code_is_shown_as_theirs(config: Path, factory: str, said: str,
                                                           monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(config.parent)
    texts = {"nets": "from torch import nn\ndef value(): raise ValueError('width must be odd')\n"
                     "def attribute(): return (3).width\ndef torch(): return nn.Conv2d(1, 'a', 3)\n"
                     "def double(): return nn.Sequential(nn.Conv2d(1, 1, 3, padding=1)).double()\n",
             "broken": "def f(:\n", "missing": "import nowhere\n"}
    for name, text in texts.items():
        (config.parent / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert main([str(config), "--set", f"model={factory}"]) == 2
    error = capsys.readouterr().err
    file = config.parent / f"{factory.partition(':')[0]}.py"
    assert said.replace("FILE", str(file)) in error and "a fault of ours" not in error and error.count("\n") == 1


def test_files_that_are_no_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, said in ((None, "No such file"), (b"a = ", "expected TOML"), (b"\xff", "expected TOML"),
                          (b"model = 'x.h5'", "data: missing"), (b"model = 'x.h5'\ndata = 1", "data: 1, expected")):
        path = tmp_path / "c.toml"
        if content is not None:
            path.write_bytes(content)
        assert main([str(path)]) == 2
        assert said in capsys.readouterr().err


def test_validation_is_as_the_data_where_nothing_is_said(config: Path) -> None:
    batches, validation = Configuration.of_file(config, {"data.swap": "true"}).batches()
    assert validation is not None
    assert (validation.batch, validation.crop, validation.swap, batches.swap) == (2, (16, 16), False, True)
    assert np.array_equal(validation.at(0).orientations, [0, 0])


def test_a_part_of_the_data_is_held_out(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = config.read_text(encoding="utf-8")
    begin = text.index("[validation]")
    config.write_text(text[:begin] + "[validation]\npart = 0.25\n" + text[text.index("[training]"):], encoding="utf-8")
    batches, validation = Configuration.of_file(config).batches()
    assert validation is not None and (len(batches.data), len(validation.data)) == (3, 1)
    assert main([str(config)]) == 0
    for change, said in (("validation.part=1", "validation.part: 1, expected a number"),
                         ("validation.part=2.0", "part: 2, expected more than 0"),
                         ("validation.inputs=x.npy", "validation.inputs: given together with part")):
        assert main([str(config), "--set", "output=none", "--set", change]) == 2
        assert said in capsys.readouterr().err


def test_audits_and_flags(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                          monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag's text is one, whatever it would be in TOML."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "10"
    assert main([str(config), "--audit", "2", "--steps", "5", "--output", "10", "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("5 steps done; ")
    assert "\n3 steps audited: 3 rounding; largest T = 0." in said.out
    audits = [line["audit"] for line in lines(folder)]
    assert [one and one["verdict"] for one in audits] == ["rounding", None, "rounding", None, "rounding"]  # type: ignore


def test_a_bug_ends_it(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                       monkeypatch: pytest.MonkeyPatch) -> None:
    """With exit code 1; fixture and result stay, and so do the checkpoint, the log and the report of before."""
    step = Network.step

    def wrong(net: Network, **options: object) -> float | None:
        number, loss = net.steps, step(net, **options)  # type: ignore[arg-type]
        if number >= 5:
            net.parameters["0.weight"][...] *= 1.01
        return loss

    monkeypatch.setattr(Network, "step", wrong)
    assert main([str(config), "--audit", "5"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    run = tmp_path / "run"
    evidence = run / "audits" / "step-000000005"
    assert f"{evidence}/result.h5: step 5 of the training: BUG: optimizer/0/weight" in said
    assert f"the last checkpoint is {run}/step-000000004.h5" in said
    assert {one.name for one in evidence.iterdir()} == {"fixture.h5", "result.h5"}
    assert [line["step"] for line in lines(run)] == list(range(6))
    audits = [line["audit"] for line in lines(run)]
    assert [one["verdict"] for one in audits if one] == ["rounding", "bug"] and audits[5]["t"] > 1  # type: ignore
    report = (run / "report.html").read_text()
    assert "<h1>BUG: step 5 is wrong, after 5 steps of training</h1>" in report and "are right" not in report
    assert "A step of the training is wrong: 1 of 2 audits has found a bug, at step 5." in report


def test_the_scale_of_a_whole_set_is_kept(config: Path, tmp_path: Path) -> None:
    """As two numbers, by which outputs are mapped back; a training that goes on finds the same."""
    changes = ["--set", "data.normalization=set", "--set", "training.validate_every=0"]
    assert main([str(config), *changes, "--steps", "2"]) == 0
    batches, _ = Configuration.of_file(config, {"data.normalization": "set"}).batches()
    last = Checkpoints(tmp_path / "run").last()
    assert last is not None and batches.scale is not None
    data = json.loads(load(last)[1].used.data)
    assert data["normalization"] == list(batches.scale) and batches.scale[1] > 0.5
    assert main([str(config), *changes, "--steps", "3", "--resume"]) == 0


def test_tensorboard_is_told_of_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is installed: of what is known, and of a step of before no more."""
    seen = list[object]()

    class Writer:
        def __init__(self, folder: str, purge_step: int | None) -> None:
            seen.append((folder, purge_step))

        def add_scalar(self, *values: object) -> None:
            seen.append(values)

        def close(self) -> None:
            seen.append("closed")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: name)
    with tensorboard.TensorBoard(tmp_path, 7) as board:
        board.write(StepRecord(7, 0.5, 0.25, resolution=0.125))
    assert seen == [(str(tmp_path / "tensorboard"), 7), ("loss", 0.5, 7), ("lr", 0.25, 7), ("resolution", 0.125, 7),
                    "closed"]
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with tensorboard.TensorBoard(tmp_path) as board:
        board.write(StepRecord(0, 0.5, 0.25))
    assert len(seen) == 5


def test_two_trainings_of_one_folder(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second is told of the first, and nothing of the first one's is touched; nothing of a lock is left."""
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"):
        assert main([str(config)]) == 2
    assert f"run: another training is at work in it, process {os.getpid()} on " in capsys.readouterr().err
    assert not list((tmp_path / "run").iterdir())


def test_a_checkpoint_that_cannot_be_written_is_told_before_the_first_step(
        config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Why, too, where the file system has no locks: HDF5 does not say."""
    def fail(net: Network, path: Path, optimizer: object = None) -> None:
        raise OSError(37, "No locks available")

    def none(handle: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(Network, "save", fail)
    monkeypatch.setattr(file_locks.fcntl, "flock", none)
    monkeypatch.delenv("HDF5_USE_FILE_LOCKING", raising=False)
    assert main([str(config)]) == 2
    assert "set the variable HDF5_USE_FILE_LOCKING=FALSE" in capsys.readouterr().err
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_what_is_left_out_is_said(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bad file, one that is too small and one with NaN: on the terminal, in the log and in the report."""
    folder, rng = tmp_path / "many", np.random.default_rng(0)
    folder.mkdir()
    for number in range(6):
        np.save(folder / f"{number}.npy", rng.standard_normal((2, 20, 20)).astype(np.float32))
    (folder / "1.npy").write_bytes(b"")
    np.save(folder / "2.npy", np.zeros((2, 20, 9), np.float32))
    np.save(folder / "3.npy", np.full((2, 20, 20), np.nan, np.float32))
    changes = ["--set", f"data.inputs={folder}", "--set", "data.noise2noise=even_odd"]
    validation = ["--set", f"validation.inputs={folder}/[045].npy", "--set", "validation.noise2noise=even_odd"]
    assert main([str(config), *changes, *validation]) == 2
    assert main([str(config), *changes, *validation, "--set", "data.on_bad=skip"]) == 0
    told, reasons = capsys.readouterr().err, [
        f"{folder}/1.npy: empty", f"images of {folder}/2.npy are 20 x 9, smaller than the crop",
        f"{folder}/3.npy, image 0: nan at channel 0"]
    for reason in reasons:
        assert told.count(f"bridge.train: left out: {reason}") == 1
        assert sum(reason in one for line in lines(tmp_path / "run") for one in line["left_out"]) == 1  # type: ignore
        assert reason in (tmp_path / "run" / "report.html").read_text()


def test_an_error_in_mid_run_leaves_a_checkpoint(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """From which it goes on to the same bits when the reason is gone."""
    assert main([str(config), "--output", f"{tmp_path}/whole"]) == 0
    at = Batches.at

    def broken(batches: Batches, step: int, rank: int = 0, ranks: int = 1) -> Batch:
        if step == 3 and len(batches.data) == 4:
            raise OSError(5, "Input/output error", "noisy.npy")
        return at(batches, step, rank, ranks)

    with monkeypatch.context() as patch:
        patch.setattr(Batches, "at", broken)
        assert main([str(config)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "bridge.train: noisy.npy: Input/output error"
    assert Checkpoints(tmp_path / "run").last() == tmp_path / "run" / "step-000000003.h5"
    assert main([str(config), "--resume"]) == 0
    once, twice = (weights(tmp_path / name / "step-000000006.h5") for name in ("run", "whole"))
    assert all(np.array_equal(once[name], twice[name]) for name in once)


@pytest.mark.parametrize("name", ["run_😀", "caf\udce9", "data[/2]", 'a"b\\c\x7f'])
def test_a_folder_of_any_name(name: str, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                              capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(config), "--steps", "1", "--output", name]) == 0
    assert (tmp_path / name / "report.html").exists()
    if name.isascii() and name.isprintable():
        assert name in capsys.readouterr().out


@pytest.mark.parametrize(("change", "said"), [
    ("data.seed=-1", "seed: -1, expected 0 to 2**64 - 1"), ("data.seed=1.5", "seed: 1.5, expected 0 to 2**64 - 1"),
    (f"data.seed={2**64}", f"seed: {2**64}, expected 0 to"), ("data.swap=2", "swap: 2, expected true or false"),
    ("data.flips=7", "flips: 7, expected true or false"), ("data.batch=2.0", "batch: 2.0, expected 1 to 2**64 - 1"),
    ("data.batch=1000000000000", "batch: 1000000000000 with crops of 16 x 16 needs")])
@pytest.mark.parametrize("part", [True, False], ids=["part", "files"])
def test_numbers_that_are_none(change: str, said: str, part: bool, config: Path,
                               capsys: pytest.CaptureFixture[str]) -> None:
    if part:
        text, begin = config.read_text(), config.read_text().index("[validation]")
        config.write_text(text[:begin] + "[validation]\npart = 0.25\n" + text[text.index("[training]"):])
    assert main([str(config), "--set", change]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_log_that_is_no_text_is_told_in_one_line(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
                                                   ) -> None:
    assert main([str(config), "--steps", "2"]) == 0
    (tmp_path / "run" / "log.jsonl").write_bytes(b"\xff\xfe\n")
    capsys.readouterr()
    assert main([str(config), "--resume"]) == 2
    assert "log.jsonl: line 1 is " in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    with StepLog(tmp_path) as log:
        log._file.close()
        log._file = open("/dev/full", "a", encoding="utf-8")  # noqa: SIM115
        with pytest.raises(FileError, match="/dev/full: No space left on device"):
            log.write(StepRecord(0, 1.0, 0.5), 0.1)
    with pytest.raises(OSError, match=r"No space left on device: '.*page\.html'"), \
            replacing(tmp_path / "page.html"), open("/dev/full", "w", buffering=1, encoding="utf-8") as file:
        file.write("page\n")
