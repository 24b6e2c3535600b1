# SPDX-License-Identifier: MIT
"""The two programs that a validation runs, each in a process of its own: ``reference.export`` and ``cnn_step``.

The two sides meet in the file alone, and what they print is theirs.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

from bridge.common.errors import BridgeError
from bridge.common.optional_packages import require
from bridge.common.threads import child_environment
from bridge.engine.library import nvidia_wheels

#: Seconds that a child has to end after it was told to
PATIENCE = 10.0


def export_fixture(fixture: Path, *options: str) -> str:
    """Write a fixture with PyTorch; `options` are those of ``python -m reference.export``. Returns what it printed.

    Raises
    ------
    BridgeError
        If PyTorch is missing, or with the message of the program that failed.
    """
    require("torch", "the reference is PyTorch")
    return _run([sys.executable, "-m", "reference.export", str(fixture), *options], "reference.export")


def run_cnn_step(fixture: Path, result: Path, device: str = "cpu", precision: str = "float32") -> None:
    """Train the fixture's steps in Fortran, without Python.

    Raises
    ------
    BridgeError
        If the program is not installed, or with the message of the program that failed.
    """
    # The program has no Python to find NVIDIA's wheels with
    nvidia_wheels.name_wheels()
    _run([cnn_step(), str(fixture), str(result), "--device", device, "--precision", precision], "cnn_step", quiet=True)


def _run(command: list[str], what: str, *, quiet: bool = False) -> str:
    """Run a program and return what it printed: our reader may be gone. Its own message is the error."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE if quiet else None, text=True,
                          errors="replace", env=child_environment()) as child:
        try:
            printed, said = child.communicate()
        except BaseException:
            _end(child)
            raise
    if child.returncode != 0:
        said = (said or "").strip()
        raise BridgeError(said if child.returncode == 2 and said else
                          f"{what} failed with the exit status {child.returncode} {said}".strip())
    return printed.rstrip("\n")


def _end(child: subprocess.Popen[str]) -> None:
    """Let it clean up, within reason."""
    child.terminate()
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()


def cnn_step() -> str:
    """Return the path of the program that trains on a fixture; see `program_path`."""
    return program_path("cnn_step")


def program_path(name: str) -> str:
    """Return the path of one of our Fortran programs: the one installed with the package, else the search path's.

    Raises
    ------
    BridgeError
        If it is not installed.
    """
    try:
        installed = importlib.import_module("cnn_programs").path(name)
    except ImportError:
        installed = ""
    found = installed if Path(installed).is_file() else shutil.which(name)
    if found is None:
        raise BridgeError(f"the program {name} is not installed: 'make setup' or 'pip install .' installs it")
    return found
