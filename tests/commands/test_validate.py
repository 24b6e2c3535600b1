# SPDX-License-Identifier: MIT
"""``python -m bridge.validate`` from end to end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from bridge.engine.library import programs
from bridge.validate import __main__ as validate
from bridge.validate.__main__ import parser
from bridge.validate.options import Options
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import Operations, ask, train
from tests.helpers.tiers import few, few_rows


def run(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "bridge.validate", *map(str, arguments)], cwd=cwd, text=True,
                          capture_output=True, check=False, env=os.environ | environment)


def test_our_step_is_right_from_an_installed_package(tmp_path: Path) -> None:
    """From another folder, where only what is installed can be found."""
    done = run("--size", "20x24", "--batch", "3", "--json", tmp_path / "v.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "RIGHT: every difference is rounding" in " ".join(done.stdout.split())
    assert "agree to the bit in 78 of 78 tensors" in done.stdout
    document = json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))
    assert (document["verdict"], document["exit_code"]) == ("rounding", 0)
    assert document["bitwise"] == {"compared": 78, "differing": 0}
    assert len(document["tensors"]) == 96
    assert all(tensor["T"] <= 1 for tensor in document["tensors"])
    assert {"name", "step", "T"} <= set(document["tensors"][0])
    assert [p.name for p in tmp_path.iterdir()] == ["v.json"]


@pytest.mark.deep
@pytest.mark.parametrize("given, spins", [
    ({}, "2000"),
    ({"GOMP_SPINCOUNT": "77"}, "77"),
    ({"OMP_WAIT_POLICY": "active"}, None),
])
def test_threads_of_openmp_do_not_wait_long(tmp_path: Path, given: dict[str, str], spins: str | None) -> None:
    """The library says which settings it has read, before a folder that cannot be made ends the run."""
    (tmp_path / "file").touch()
    known = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run([sys.executable, "-m", "bridge.validate", "--keep", tmp_path / "file" / "folder"], text=True,
                          capture_output=True, check=False, env=known | given | {"OMP_DISPLAY_ENV": "verbose"})
    assert done.returncode == 2
    if "GOMP_SPINCOUNT" not in done.stderr:
        pytest.skip("not GNU's OpenMP")
    found = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
    assert found == [spins] if spins else found != ["2000"]


@pytest.mark.parametrize("options", few([
    ["--precision", "float64"],
    ["--device", "naive"],
    ["--steps", "5", "--momentum", "0.9", "--nesterov"],
    ["--reduction", "sum", "--lr", "0.00001"],
    ["--momentum", "0.5", "--dampening", "0.25", "--weight-decay", "0.1"],
    ["--model", "tests.helpers.models:awkward"],
], 2))
def test_variants_are_right(options: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """And cnn_step has computed in the precision that was asked for."""
    keep = ["--keep", str(tmp_path / "kept")]
    assert validate.main(["--size", "20x24", "--batch", "3", *keep, *options]) == 0, capsys.readouterr()
    with h5py.File(tmp_path / "kept" / "result.h5") as file:
        assert file["steps/1/weights/0/weight" if "--model" in options else "steps/1/weights/conv1/weight"].dtype == (
            "float64" if "float64" in options else "float32")


class Late(Operations):
    """In step 7 a gradient is added to that of step 6, once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: list[Any] = []

    def filter_gradient(self, layer: Any, dz: Any, x: Any, w: Any) -> Any:
        g = super().filter_gradient(layer, dz, x, w)
        if layer.name != "conv2":
            return g
        self.seen.append(g)
        return g + self.seen[6] if len(self.seen) == 8 else g


def distance(fixture: Path, result: Path, k: int) -> float:
    """|w_k - w_k*| / |w_k* - w_0|."""
    with h5py.File(fixture) as reference, h5py.File(result) as candidate:
        names = [f"weights/conv{i}/{kind}" for i in (1, 2, 3) for kind in ("weight", "bias")]
        start, theirs, ours = (np.concatenate([file[f"steps/{step}/{name}"][()].ravel() for name in names])
                               for file, step in ((reference, 0), (reference, k), (candidate, k)))
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs - start))


@pytest.mark.deep
def test_a_fault_is_named_with_the_step_at_which_it_appears(tmp_path: Path) -> None:
    """Later steps start from the candidate's own weights and are right; left alone, the weights stay apart."""
    path = export(tmp_path / "f.h5", ExportSettings(height=14, width=18, batch=2, steps=10)).path
    for kind, code in ((Operations, 0), (Late, 1)):
        said = ask(path, train(path, tmp_path / "r.h5", kind), "--json", str(tmp_path / "v.json"))
        assert said.code == code
        document = json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))
        assert len(document["divergences"]) == 10
        assert document["divergence"] == document["divergences"][-1]
        assert document["divergences"][2] == pytest.approx(distance(path, tmp_path / "r.h5", 3))
        assert max(document["divergences"][:7]) < 1e-4
        assert (min(document["divergences"][7:]) > 1e-4) == (code == 1)
    assert "grads/conv2/weight of step 7 is wrong" in said.words
    assert {t["step"] for t in document["tensors"] if not t["T"] <= 1} == {7}


@pytest.mark.deep
def test_networks_that_are_no_chains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The Python extension repeats them, too."""
    options = ["--model", "tests.helpers.torch_graphs:Segmenter", "--size", "8x10", "--steps", "2"]
    assert validate.main([*options, "--json", str(tmp_path / "out.json")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "RIGHT: every difference is rounding" in said and "extension agree to the bit in 48 of 48" in said


@pytest.mark.deep
@pytest.mark.parametrize("options", [["--optimizer", "adam"], ["--schedule", "StepLR(1)"], ["--loss", "l1"]], ids=str)
def test_chains_that_are_trained_otherwise(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """By Adam, with a schedule, with another loss: the extension repeats these steps, too."""
    assert validate.main([*options, "--size", "12x10", "--steps", "2"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "RIGHT: every difference is rounding" in said and "extension agree to the bit in 54 of 54" in said


@pytest.mark.deep
def test_the_real_micrograph(micrograph: Path, tmp_path: Path) -> None:
    done = run("--size", "96x64", "--image", micrograph, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("options", "said"), few_rows([
    (["--device", "cuda:63"], "device cuda"),
    (["--size", "big"], "big"),
    (["--size", "2x2", "--image", "none.mrc"], "none.mrc"),
    (["--lr", "-1"], "lr"),
    (["--size", "16", "--keep", "/proc/none"], "--keep /proc/none"),
    (["--steps", "many"], "steps"),
], lambda row: row[1] in ("device cuda", "none.mrc", "--keep /proc/none")))
def test_bad_input_is_2(options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = validate.main(options)
    except SystemExit as end:
        code = end.code
    assert code == 2
    words = capsys.readouterr().err
    assert said in words and "Traceback" not in words
    assert not list(tmp_path.iterdir())


@pytest.mark.deep
def test_what_the_writer_of_fixtures_refuses_is_said(tmp_path: Path) -> None:
    """It is a process of its own."""
    done = run("--size", "2x2", "--image", "none.mrc", cwd=tmp_path)
    assert done.returncode == 2 and "none.mrc" in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["fixture.h5", "result.h5"])
def test_keep_replaces_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                               capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("mine\n")
    assert validate.main(["--size", "8", "--keep", "."]) == 2
    assert f"--keep {name}: is there already, expected a folder without it" in capsys.readouterr().err
    assert Path(name).read_text() == "mine\n"


@pytest.mark.deep
def test_keep_leaves_both_files(tmp_path: Path) -> None:
    assert run("--size", "16", "--keep", tmp_path / "files", cwd=tmp_path).returncode == 0
    assert sorted(p.name for p in (tmp_path / "files").iterdir()) == ["fixture.h5", "result.h5"]


def test_a_wrong_program_is_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    """A candidate that multiplies one gradient by 1.001 is caught, and the extension contradicts it."""
    wrong = tmp_path / "wrong_step"
    wrong.write_text(f"""#!{sys.executable}
import subprocess, sys, h5py
subprocess.run([{programs.cnn_step()!r}, *sys.argv[1:]], check=True)
with h5py.File(sys.argv[2], "r+") as file:
    file["steps/1/grads/conv2/weight"][...] *= 1.001
""", encoding="utf-8")
    wrong.chmod(0o755)
    monkeypatch.setattr(programs, "cnn_step", lambda: str(wrong))
    assert validate.main(["--size", "20x24", "--batch", "3"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "BUG: cnn_step and the Python extension disagree in 1 tensors" in said
    assert "grads/conv2/weight of step 1" in said


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "cnn_programs", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert validate.main(["--size", "16"]) == 2
    assert "the program cnn_step is not installed" in capsys.readouterr().err


def test_transforms_that_were_asked_for_are_rounding() -> None:
    """Of a device with transforms=yes; other devices are asked for direct sums."""
    for line, allowed in (
        (["--device", "cuda,transforms=yes"], ("fft", "winograd")),
        (["--device", "cuda,transforms=yes", "--allow", "split"], ("fft", "split", "winograd")),
        (["--device", "cuda,transforms=no"], ()),
        (["--allow", "fft"], ("fft",)),
    ):
        assert Options.of(parser().parse_args(line)).judging.allow == allowed, line
