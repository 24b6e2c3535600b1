# SPDX-License-Identifier: MIT
"""Every command is listed, says its version and its usage, and has a help that teaches."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import bridge.__main__
from benchmarks.__main__ import OTHERS
from bridge.engine.library.programs import program_path
from tests.helpers.commands import ROOT, command_names


def main_of(name: str) -> Callable[[list[str]], int]:
    """What a command runs, in this process."""
    spec = find_spec(name)
    module = f"{name}.__main__" if spec and spec.submodule_search_locations else name
    return importlib.import_module("reference.cli" if name == "reference.export" else module).main


def test_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with one sentence, and none that is not there."""
    listed = {*bridge.__main__.COMMANDS, *(f"benchmarks.{name}" for name in OTHERS)}
    assert listed | {"bridge", "reference", "benchmarks"} == set(command_names())
    assert bridge.__main__.main([]) == 0
    said = capsys.readouterr().out
    for name, text in bridge.__main__.COMMANDS.items():
        assert re.search(rf"^  python -m {re.escape(name)} +{re.escape(text)}$", said, re.MULTILINE)
    for name in bridge.__main__.PROGRAMS:
        assert f"\n  {name} " in said and program_path(name)


def test_commands_by_their_last_names() -> None:
    """With their exit codes."""
    assert len(bridge.__main__.SHORT) == len(bridge.__main__.COMMANDS)
    script = str(Path(sysconfig.get_path("scripts")) / "cnn-bridge")
    done = subprocess.run([sys.executable, "-m", "bridge", "compare", "--version"], capture_output=True, text=True,
                          check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, f"bridge.compare {version('fortran-torch-bridge')}\n"), done.stderr
    done = subprocess.run([script, "compare", "none.h5", "none.h5"], capture_output=True, text=True, check=False,
                          cwd=ROOT)
    assert done.returncode == 2 and "none.h5: no such file" in done.stderr


@pytest.mark.parametrize("name", command_names())
def test_every_command_has_a_version_and_a_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main = main_of(name)
    for option, expected in (("--version", f"{name} {version('fortran-torch-bridge')}\n"),
                             ("--help", f"usage: python -m {name} ")):
        with pytest.raises(SystemExit) as end:
            main([option])
        assert not end.value.code
        said = capsys.readouterr().out
        assert said == expected or (option == "--help" and said.startswith(expected))
    if name not in ("bridge", "reference"):
        assert "\nexit codes:\n  0 " in said and "\nexamples:\n  " in said


def test_a_help_fits_into_its_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is longer than 80 columns, and more are used where there are more."""
    lengths = {}
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        for name in command_names():
            with pytest.raises(SystemExit):
                main_of(name)(["--help"])
            said = capsys.readouterr().out
            lengths[name, columns] = max(map(len, said.splitlines()))
            assert "``" not in said, name
    assert [one for one, length in lengths.items() if length > one[1]] == []
    assert all(lengths[name, 120] > 80 for name in command_names() if name.startswith("bridge."))


@pytest.mark.parametrize("name", ["bridge", "reference"])
def test_a_package_is_a_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It lists, and refuses anything else."""
    done = subprocess.run([sys.executable, "-m", name], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == "" and "  python -m reference.export  " in done.stdout
    for wrong in ("nothing", *(["compare"] if name == "reference" else [])):
        with pytest.raises(SystemExit) as end:
            main_of(name)([wrong])
        said = capsys.readouterr().err
        assert end.value.code == 2 and wrong in said
        assert name == "reference" or "expected one of validate, compare, identities" in said


@pytest.mark.parametrize("name", bridge.__main__.PROGRAMS)
def test_every_program_has_a_version_and_a_usage(name: str) -> None:
    """Wherever among its arguments it is asked."""
    for before in ([], ["f.h5"], ["f.h5", "r.h5", "--device"]):
        for option, expected in (("--version", f"{name} {version('fortran-torch-bridge')}\n"),
                                 ("--help", f"usage: {name} FIXTURE "), ("-h", f"usage: {name} FIXTURE ")):
            done = subprocess.run([program_path(name), *before, option], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.startswith(expected)
