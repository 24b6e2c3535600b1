# SPDX-License-Identifier: MIT
"""The experiments: errors that fall with the precision and grow with the size are rounding, others are not."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.engine.library import programs
from bridge.judge.measure.outcome import Outcome
from bridge.validate import __main__ as validate
from bridge.validate import plots, precision_study
from bridge.validate.precision_study import Fall
from bridge.validate.size_study import Scaling, Size, fitted_exponent

Say = pytest.CaptureFixture[str]


@pytest.fixture
def wrong_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a program in the place of cnn_step that spoils its result with a line of Python."""
    right = programs.cnn_step()

    def install(line: str) -> None:
        path = tmp_path / "wrong_step"
        path.write_text(f"""#!{sys.executable}
import subprocess, sys, h5py, numpy as np
subprocess.run([{right!r}, *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
with h5py.File(sys.argv[2], "r+") as file:
    g = file["steps/0/grads/conv2/weight"]
    n = file["steps/0/grads/input"].size
    {line}
""", encoding="utf-8")
        path.chmod(0o755)
        monkeypatch.setattr(programs, "cnn_step", lambda: str(path))

    return install


FLIP = "g[...] = g[()][..., ::-1, ::-1]"


def said(capsys: Say) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_rounding_grows_like_rounding(tmp_path: Path, capsys: Say) -> None:
    picture, document = tmp_path / "sizes.png", tmp_path / "sizes.json"
    sizes = "12,12x24,24"
    assert validate.main(["--sizes", sizes, "--plot", str(picture), "--json", str(document)]) == 0
    words = said(capsys)
    assert "ROUNDING: from 12 to 24 the error grows like rounding, sums over n pixels ~ n^" in words
    found = json.loads(document.read_text(encoding="utf-8"))
    assert (found["verdict"], found["exit_code"]) == ("rounding", 0)
    assert [(s["size"], s["pixels"]) for s in found["sizes"]] == [("12", 288), ("12x24", 576), ("24", 1152)]
    assert {t["name"] for t in found["tensors"] if t["reduced"]} == {
        "loss", *(f"grads/conv{i}/{kind}" for i in (1, 2, 3) for kind in ("weight", "bias"))}
    assert all(len(t["T"]) == 3 and max(t["T"]) <= 1 for t in found["tensors"])
    assert all(abs(t["exponent"]) < 0.3 for t in found["tensors"] if not t["reduced"])
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.deep
@pytest.mark.parametrize(("line", "code", "words"), [
    (FLIP, 1, "BUG at every size: grads/conv2/weight is off by"),
    (f"if n > 400: {FLIP}", 1, "BUG at 18 only: grads/conv2/weight is off by"),
    ("g[...] = g[()] * np.nan", 1, "BUG at every size: grads/conv2/weight holds NaN"),
    ("file['steps/1/weights/conv3/bias'][...] += 1", 1, "BUG at every size: optimizer/conv3/bias"),
])
def test_a_bug_does_not(wrong_program: Callable, line: str, code: int, words: str, capsys: Say) -> None:
    wrong_program(line)
    assert validate.main(["--sizes", "12,14,18"]) == code
    assert words in said(capsys)


@pytest.mark.deep
def test_the_error_falls_with_the_precision(tmp_path: Path, capsys: Say) -> None:
    picture, document = tmp_path / "fall.svg", tmp_path / "fall.json"
    options = ["--size", "16x20", "--steps", "2", "--precision", "float64"]
    assert validate.main([*options, "--plot", str(picture), "--json", str(document)]) == 0
    assert "ROUNDING: from float32 to float64 the error falls by 2^2" in said(capsys)
    found = json.loads(document.read_text(encoding="utf-8"))
    assert found["precision"] == "float64"
    test = found["float64_test"]
    assert len(test["tensors"]) == 36
    known = sorted(t["log2_ratio"] for t in test["tensors"] if t["log2_ratio"] is not None)
    assert 27 < known[len(known) // 2] < 31
    assert "<svg" in picture.read_text(encoding="utf-8")


@pytest.mark.deep
@pytest.mark.parametrize(("line", "words"), [
    (FLIP, "BUG: the error of grads/conv2/weight in step 0 does not fall"),
    ("g[...] = g[()].astype(np.float32)", "NOT FLOAT64: the error of grads/conv2/weight in step 0 is inside"),
    (f"if g.dtype == np.float32: {FLIP}", "FLOAT64 IS RIGHT, float32 is not, first in grads/conv2/weight of step 0"),
    ("g[...] *= 1 + 1e-9 * (g.dtype == np.float64)", "something is still computed in float32, or a bug is as small as"),
])
def test_a_bug_stays(wrong_program: Callable, line: str, words: str, capsys: Say) -> None:
    wrong_program(line)
    assert validate.main(["--size", "16x20", "--steps", "1", "--precision", "float64"]) == 1
    assert words in said(capsys)


def test_conclusions_about_a_fall() -> None:
    """Those that no program of ours gives."""
    exact = Fall("forward/a", 0, 0.0, 0.0, 0.0, 0.0)
    assert precision_study.conclusion([exact]) == "EXACT in both precisions."
    little = Fall("forward/a", 1, 1e-3, 1e-9, 1e4, 1e7)
    said = precision_study.conclusion([little])
    assert "BUG: the error of forward/a in step 1 falls by 2^19.9, and is still more" in said
    nan = Fall("loss", 0, float("nan"), float("nan"), float("inf"), float("inf"))
    assert precision_study.conclusion([exact, nan]).startswith("BUG: the error of loss in step 0 does not fall")


def size(name: str, pixels: int, error: float, t: float) -> Size:
    outcome = Outcome.ROUNDING if t <= 1 else Outcome.CANNOT_TELL
    first = "" if t <= 1 else "loss of step 0"
    return Size(name, pixels, outcome, "words", first, {"loss": error}, {"loss": t})


def test_a_naive_sum_is_named_by_its_growth() -> None:
    """The error of a sum that runs through all terms grows like n, and leaves the bound at some size."""
    naive = Scaling([size(str(n), n * n, 1e-9 * n * n, n / 300) for n in (64, 128, 256, 512, 1024)])
    assert naive.outcome is Outcome.CANNOT_TELL
    assert naive.conclusion.startswith("CANNOT TELL at 512, 1024 only: loss is off by 2.6e-04 to 0.001")
    assert "right at 64, 128, 256: look at what depends on the size" in naive.conclusion
    fast = Scaling([size(str(n), n * n, 1e-16 * n**3, 0.5) for n in (64, 128, 256)])
    assert fast.growths[0].exponent == pytest.approx(1.5)
    assert "More than n is faster than any rounding" in fast.conclusion


def test_a_relu_that_went_the_other_way_is_explained() -> None:
    """Three sizes are alike, at the last one a mask differs where nobody can know it."""
    jump = Scaling([replace(size(str(n), n * n, e, 0.9), relative={"grads/a/output": e}, t={"grads/a/output": 0.9})
                    for n, e in ((64, 1e-7), (128, 1e-7), (256, 1e-4))])
    assert "an input of a ReLU is 0 up to rounding and went the other way, as it may" in jump.conclusion
    assert "the rest ~ n^2.49" in jump.conclusion


def test_an_exponent_needs_two_sizes() -> None:
    for points in ([], [(4, 1.0)], [(4, 1.0), (4, 2.0)]):
        assert fitted_exponent(points) != fitted_exponent(points)


@pytest.mark.parametrize(("options", "message"), [
    (["--sizes", "16"], "expected two or more different sizes"),
    (["--sizes", "16,,32"], "expected two or more different sizes"),
    (["--sizes", "16,16"], "expected two or more different sizes"),
    (["--sizes", "16,32", "--size", "8"], "--sizes and --size: one of them"),
    (["--sizes", "16,32", "--probe"], "--sizes and --probe: one experiment at a time"),
    (["--sizes", "16,big"], "big"),
    (["--sizes", "16,32", "--all"], "--all belongs to a single comparison, expected no --sizes"),
    (["--self-test", "--all"], "--all belongs to a single comparison, expected no --self-test"),
    (["--plot", "a.png"], "--plot draws the result of --sizes or of --precision float64"),
    (["--checks", "--plot", "a.png"], "--plot draws the result of"),
    (["--sizes", "16,32", "--plot", "a.txt"], "expected a name that ends with .png, .svg, .pdf"),
    (["--sizes", "16,32", "--plot", "/no/such/a.png"], "--plot /no/such/a.png: no such folder"),
    (["--probe", "--size", "20"], "a power of two of output elements"),
])
def test_bad_options_are_2(options: list[str], message: str, capfd: Say) -> None:
    try:
        code = validate.main(options)
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert message in " ".join(capfd.readouterr().err.split())


def test_a_plot_without_matplotlib_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Say) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec",
                        lambda name, *rest: None if name == "matplotlib" else find(name, *rest))
    assert validate.main(["--sizes", "16,32", "--plot", "a.png"]) == 2
    assert capsys.readouterr().err.strip() == (
        "bridge.validate: matplotlib is not installed, and --plot draws with it (the tables are printed without it): "
        "pip install 'matplotlib>=3.7'")


def test_the_plot_of_a_bug_is_drawn(tmp_path: Path) -> None:
    """Infinite and missing values leave gaps."""
    nan, inf = float("nan"), float("inf")
    scaling = Scaling([size("8", 64, nan, inf), size("16", 256, 0.0, 0.0), size("32", 1024, 1e-7, 9.0)])
    plots.plot_sizes(str(tmp_path / "a.png"), scaling)
    found = [Fall("loss", 0, 1e-1, 1e-1, 9e9, 9e9), Fall("forward/a", 0, 1e-7, 0.0, 0.5, 0.0)]
    plots.plot_precisions(str(tmp_path / "b.png"), found)
    assert all((tmp_path / name).stat().st_size > 10000 for name in ("a.png", "b.png"))


@pytest.mark.deep
def test_probes_of_validate(wrong_program: Callable, tmp_path: Path, capsys: Say) -> None:
    document = tmp_path / "probe.json"
    assert validate.main(["--probe", "--json", str(document)]) == 0
    found = json.loads(document.read_text(encoding="utf-8"))
    assert [probe["words"][:10] for probe in found["probes"]] == ["EXACT: all"] * 3
    wrong_program("g[0, 0, 0, 0] = np.nextafter(g[0, 0, 0, 0], np.float32(9))")
    capsys.readouterr()
    assert validate.main(["--probe", "--size", "8x16"]) == 1
    words = said(capsys)
    assert "BUG: grads/conv2/weight of step 0 is wrong: at (k=0, c=0, r=0, s=0)" in words
    assert "1 of 2304 elements of grads/conv2/weight of step 0 differ from PyTorch's" in words


def test_checks_of_validate(wrong_program: Callable, tmp_path: Path, capsys: Say) -> None:
    document = tmp_path / "checks.json"
    assert validate.main(["--checks", "--size", "16", "--json", str(document)]) == 0
    assert "28 of 28 identities hold." in said(capsys)
    assert len(json.loads(document.read_text(encoding="utf-8"))["checks"]) == 28
    wrong_program(FLIP)
    assert validate.main(["--checks", "--size", "16", "--steps", "1"]) == 1
    words = said(capsys)
    assert "24 of 25 identities hold. First wrong: cnn_step, float32: adjoint identity of conv2, step 0." in words
    assert "implicated is the filter gradient of conv2" in words
