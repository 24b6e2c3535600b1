# SPDX-License-Identifier: MIT
"""The programs' exit codes: 1 is a bug of the candidate, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from bridge import compare, step
from bridge.common import cli
from bridge.common.errors import FileError
from bridge.engine.library import extension
from bridge.report import outputs
from bridge.validate import __main__ as validate
from tests.helpers.tiers import few_rows

PROGRAMS = {"compare": compare, "validate": validate, "step": step}
ENDS = [
    (FileError("a.h5: no such file"), 2, "a.h5: no such file"),
    (OSError(28, "No space left on device"), 2, "[Errno 28] No space left on device"),
    (MemoryError("Unable to allocate 1 TiB"), 2, "not enough memory (Unable to allocate 1 TiB)"),
    (MemoryError(), 2, "not enough memory"),
    (KeyboardInterrupt(), 130, "interrupted"),
]


@pytest.fixture(scope="module")
def wrong_result(small_result: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result with one wrong gradient."""
    path = tmp_path_factory.mktemp("wrong") / "wrong.h5"
    shutil.copyfile(small_result, path)
    with h5py.File(path, "r+") as file:
        file["steps/1/grads/conv2/weight"][...] *= 1.01
    return path


def run_that_raises(name: str, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a program whose work ends with `error`."""

    def fail(*given: object, **named: object) -> None:
        raise error

    for module, function in ((compare, "open_pair"), (step, "check_readable"), (extension, "check_device")):
        monkeypatch.setattr(module, function, fail)
    return PROGRAMS[name].main([] if name == "validate" else ["a.h5", "b.h5"])


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("error", "code", "said"), ENDS, ids=str)
def test_an_end_in_one_line(name: str, error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch,
                            capsys: pytest.CaptureFixture[str]) -> None:
    """What can happen to anybody is said in one line, without a traceback."""
    assert run_that_raises(name, error, monkeypatch) == code
    assert capsys.readouterr().err.splitlines() == [f"bridge.{name}: {said}"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fault_of_ours_is_no_verdict(name: str, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    """An unexpected exception keeps its traceback, and never says that the candidate has a bug."""
    assert run_that_raises(name, ZeroDivisionError("surprise"), monkeypatch) == 2
    errors = capsys.readouterr().err
    assert "Traceback" in errors and "ZeroDivisionError: surprise" in errors
    assert errors.splitlines()[-1] == f"bridge.{name}: this is a fault of ours, not a verdict"


def run_into(out: int, *arguments: object, errors: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *map(str, arguments)], stdout=out, stderr=errors, text=True,
                          check=False, timeout=120)


def into_closed_pipe(*arguments: object, both: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a program whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return run_into(writer, *arguments, errors=writer if both else subprocess.PIPE)
    finally:
        os.close(writer)


@pytest.mark.parametrize(("code", "both", "options"), few_rows(
    [*((code, both, ["--no-diagnosis"]) for code, both in ((0, False), (1, True), (2, True))),
     (0, True, ["--all"]), (1, False, [])],
    lambda row: row[2] == ["--no-diagnosis"]))
def test_a_closed_pipe_keeps_the_verdict(code: int, both: bool, options: list[str], small_fixture: Path,
                                         small_result: Path, wrong_result: Path) -> None:
    """``compare | head`` of a right result is right, of a wrong one a bug, of none bad input."""
    result = (small_result, wrong_result, "none.h5")[code]
    done = into_closed_pipe("bridge.compare", small_fixture, result, *options, both=both)
    assert done.returncode == code, done.stderr
    assert both or ("Traceback" not in done.stderr and "Broken pipe" not in done.stderr)


@pytest.mark.deep
def test_validate_into_a_closed_pipe() -> None:
    for both in (False, True):
        done = into_closed_pipe("bridge.validate", "--size", "16", "--steps", "1", both=both)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="skipped, because there is no /dev/full here")
def test_a_full_disk_is_bad_input(small_fixture: Path, small_result: Path) -> None:
    """Where the verdict cannot be written there is none."""
    with open("/dev/full", "w") as full:
        done = run_into(full.fileno(), "bridge.compare", small_fixture, small_result)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "bridge.compare: [Errno 28] No space left on device"


UNWRITABLE = [("nope/v.json", "no such folder"), ("folder", "not the name of a file"),
              ("folder/", "not the name of a file"), ("", "not the name of a file"), ("/proc/v.json", "")]


@pytest.mark.parametrize("name", ["compare", "validate"])
@pytest.mark.parametrize(("path", "reason"), UNWRITABLE)
def test_a_json_that_cannot_be_written_is_found_first(name: str, path: str, reason: str, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    """Before any work, with the path as it was given; nothing is left behind."""
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "judge_pair", lambda *given: pytest.fail("the work has begun"))
    monkeypatch.setattr(validate, "workspace", lambda *given: pytest.fail("the work has begun"))
    files = ["none.h5", "none.h5"] if name == "compare" else []
    assert PROGRAMS[name].main([*files, "--json", path]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bridge.{name}: --json {path}: {reason}") and ".part" not in line
    assert [p.name for p in tmp_path.rglob("*")] == ["folder"]


@pytest.mark.deep
def test_a_json_that_fails_late_never_hides_a_bug(small_fixture: Path, small_result: Path, wrong_result: Path,
                                                  monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict is printed; a right result without its JSON is 2, a wrong one stays 1."""

    def full(path: str, document: object) -> None:
        raise OSError(28, "No space left on device", ".secret.part")

    monkeypatch.setattr(outputs, "write_json", full)
    for result, code in ((small_result, 2), (wrong_result, 1)):
        path = str(tmp_path / "v.json")
        assert compare.main([str(small_fixture), str(result), "--json", path]) == code
        assert capsys.readouterr().err.splitlines()[-1] == f"bridge.compare: --json {path}: No space left on device"


def test_a_json_replaces_an_older_one(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    path.write_text("old", encoding="utf-8")
    assert compare.main([str(small_fixture), str(small_result), "--json", str(path)]) == 0
    assert json.loads(path.read_text(encoding="utf-8"))["exit_code"] == 0
    assert [p.name for p in tmp_path.iterdir()] == ["v.json"]


@pytest.mark.parametrize("work", [lambda: 0, lambda: 3])
def test_the_work_gives_the_exit_code(work: Callable[[], int]) -> None:
    assert cli.run("bridge.example", work) == work()


def test_a_message_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Even where a file's name or the error has several; blanks in names stay."""
    assert cli.complain("bridge.example", "two  blanks\nand a line") == 2
    assert capsys.readouterr().err == "bridge.example: two  blanks and a line\n"
