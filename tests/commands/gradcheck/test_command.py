# SPDX-License-Identifier: MIT
"""``python -m bridge.gradcheck``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.gradcheck import __main__ as command
from bridge.gradcheck.operations import CHECKS, Check
from bridge.judge.measure.outcome import Outcome
from bridge.report import outputs
from bridge.report.series import Series
from tests.helpers.judged.gradients import (
    WRONG,
    Gradients,
    check,
    squares,
)
from tests.helpers.tiers import few


def test_the_command_as_a_program() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-m", "bridge.gradcheck", "gelu", "--points", "4"],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("RIGHT: ")


@pytest.mark.parametrize("dtype", few(["float64", "float32"], 1))
def test_the_command_on_everything(dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gradients.json"
    assert command.main(["--dtype", dtype, "--json", str(path), "--seed", "5", "--points", "8"]) == 0
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["verdict"] == "right" and document["seed"] == 5 and document["dtype"] == dtype
    assert {re.split("[ ,]", one["title"])[0] for one in document["reports"]} == set(CHECKS)
    assert all((one["oracle"] == {}) == (one["title"][:7] in ("network", "bridge.")) for one in document["reports"])
    assert capsys.readouterr().out.startswith("RIGHT: ")


@pytest.mark.parametrize(("wrong", "dtype", "code", "word"), [
    (WRONG["sign"], "float64", 1, "WRONG: "), (None, "float32", 4, "CANNOT TELL: ")])
def test_the_exit_code_is_the_verdict(wrong: Callable[..., Gradients] | None, dtype: str, code: int, word: str,
                                      monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report = check(wrong) if wrong else squares(dtype)
    monkeypatch.setitem(CHECKS, "planted", Check("", lambda settings: [report]))
    assert command.main(["relu", "planted"]) == code
    said = capsys.readouterr().out
    # Of what is right a line, of what is not every gradient, too
    assert said.startswith(word) and "\n  input" in said.partition("planted float")[2]
    assert "\n  input" not in said.partition("planted float")[0]


def test_the_command_alone_shows_every_gradient(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["linear", "--points", "4"]) == 0
    said = capsys.readouterr().out
    assert all(words in said for words in (
        "linear float64", "linear float32", "  linear: weight", "  linear, rows of images, no bias: input"))
    assert "linear, rows of images, no bias: bias" not in said


def test_the_list_and_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(CHECKS)
    assert "batch_norm2d         input, weight, bias" in lines and "matmul               first, other" in lines
    with pytest.raises(SystemExit):
        command.main(["--help"])
    text = capsys.readouterr().out
    assert all(word in text for word in ("cbrt(u)", "float64", "exit codes:", "kink"))


@pytest.mark.parametrize(("arguments", "words"), [
    (["pool"], "OPERATION: 'pool', expected one of abs, "),
    (["--fixture", "missing.h5"], "missing.h5: no such file"),
    (["conv2d", "--fixture", "missing.h5"], "--fixture: given together with 'conv2d'"),
    (["--device", "abacus"], "device abacus"),
    (["--seed", "-1"], "seed: -1, expected an integer of 0 or more"),
    (["--points", "0"], "points: 0, expected"),
    (["--json", "no/such/folder.json"], "--json no/such/folder.json: no such folder"),
])
def test_bad_input_is_said_in_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bridge.gradcheck: {words}")


def test_the_network_of_a_fixture(small_fixture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gradients.json"
    assert command.main(["--fixture", str(small_fixture), "--points", "4", "--json", str(path)]) == 0
    (report,) = json.loads(path.read_text(encoding="utf-8"))["reports"]
    assert [one["name"] for one in report["inputs"]] == [
        "input", *(f"conv{i}.{part}" for i in (1, 2, 3) for part in ("weight", "bias"))]
    assert capsys.readouterr().out.startswith("RIGHT: ")


def test_a_verdict_against_a_gradient_stays_when_the_file_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outputs, "write_json", fail)
    wanted = outputs.OutputFiles(json="a.json")
    for outcome, expected in ((Outcome.ROUNDING, 2), (Outcome.BUG, 1), (Outcome.CANNOT_TELL, 4)):
        series = Series("gradients", "", outcome, "", [])
        assert outputs.finish_series("bridge.gradcheck", wanted, series, {}) == expected
