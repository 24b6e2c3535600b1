# SPDX-License-Identifier: MIT
"""The commands ``cnn_step`` and ``cnn_time`` start the programs wherever an installer puts the package."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import cnn_programs
import pytest

from bridge.engine.library.programs import program_path

# Installs from nothing
pytestmark = pytest.mark.deep

PROGRAMS = ("cnn_step", "cnn_time")
ELF = b"\x7fELF"


def run(command: list[str | Path], packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command that finds our packages nowhere but in `packages`."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def fake(folder: Path, body: str) -> Path:
    """The package in `folder` with a script in the place of ``cnn_step``."""
    package = folder / "cnn_programs"
    package.mkdir(parents=True)
    shutil.copy(cnn_programs.__file__, package)
    (package / "cnn_step").write_text("#!/bin/sh\n" + body, encoding="utf-8")
    (package / "cnn_step").chmod(0o755)
    return folder


def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What the file ``cnn_step`` that pip writes does."""
    code = "import sys; from cnn_programs import cnn_step; sys.exit(cnn_step())"
    return run([sys.executable, "-c", code, *arguments], folder)


def test_no_program_lies_among_the_scripts() -> None:
    """auditwheel would put a script there that looks in the interpreter's own folder for packages."""
    files = importlib.metadata.files("fortran-torch-bridge")
    assert files
    programs = {file.name: file for file in files if file.name in PROGRAMS and file.parent.name == "cnn_programs"}
    assert set(programs) == set(PROGRAMS)
    scripts = [file for file in files if file.parent.name == "bin"]
    assert {file.name for file in scripts} == {*PROGRAMS, "cnn-bridge"}
    for file in scripts:
        assert not Path(str(file.locate())).read_bytes().startswith(ELF)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_command_starts_the_program(name: str) -> None:
    command = next(str(file.locate()) for file in importlib.metadata.files("fortran-torch-bridge") or ()
                   if file.parent.name == "bin" and file.name == name)
    if name == "cnn_step":
        assert run([command, "--version"]).stdout == run([program_path(name), "--version"]).stdout != ""
    done, plain = (run([start, "a", "b", "c", "d"]) for start in (command, program_path(name)))
    assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert done.returncode != 0


def test_the_package_finds_its_program(tmp_path: Path) -> None:
    """Not the interpreter's; arguments and status are handed on, with the process itself."""
    folder = fake(tmp_path / "with blank", 'printf "%s\\n" "$$" "$@"; exit 7')
    done = start(folder, "one", "t w o", "--three=")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.splitlines()[1:] == ["one", "t w o", "--three="]


@pytest.mark.parametrize("name", ["PIPE", "XFSZ"])
def test_signals_end_the_program_as_ever(tmp_path: Path, name: str) -> None:
    """Python ignores these two, and what it starts would."""
    done = start(fake(tmp_path, f"kill -{name} $$; exit 0"))
    assert done.returncode == -getattr(signal, f"SIG{name}")


def test_a_program_that_cannot_start_is_told(tmp_path: Path) -> None:
    folder = fake(tmp_path, "")
    program = folder / "cnn_programs" / "cnn_step"
    program.chmod(0o644)
    done = start(folder)
    assert (done.returncode, done.stderr) == (1, f"cnn_step: cannot start {program}: Permission denied\n")
    program.unlink()
    assert start(folder).stderr == f"cnn_step: cannot start {program}: No such file or directory\n"


def test_the_command_imports_next_to_nothing() -> None:
    """It stands before every run of the program."""
    done = run([sys.executable, "-S", "-c", "import sys; sys.path.append(sys.argv[1]); import cnn_programs; "
                "print(*sys.modules)", str(Path(cnn_programs.__file__).parents[1])])
    assert "cnn_programs" in done.stdout.split()
    assert not {"bridge", "numpy", "typing", "re", "pathlib", "subprocess", "importlib.util"} & set(done.stdout.split())
