# SPDX-License-Identifier: MIT
"""Small Fortran programs built from some of our sources, for what Python cannot ask of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.helpers.cuda.signatures import written

FORTRAN = ROOT / "fortran"
PROGRAMS = Path(__file__).parents[1] / "programs"
FLAGS = ["-std=f2018", "-Wall", "-Wextra", "-Wimplicit-interface", "-Werror", "-fcheck=all", "-O1"]


def sources_of(program: Path) -> list[Path]:
    """The program and all sources that it uses, in the order of compilation; KeyError for an unknown module."""
    modules = {"_".join(("cnn", *path.relative_to(FORTRAN).with_suffix("").parts)): path
               for path in FORTRAN.rglob("*.f90")} | written()
    order: list[Path] = []

    def visit(path: Path) -> None:
        for name in re.findall(r"^\s*use (cnn_\w+)", path.read_text(encoding="utf-8"), re.M):
            if modules[name] not in order:
                visit(modules[name])
        order.append(path)

    visit(program)
    return order


def build(program: Path, folder: Path) -> Path:
    """The executable, in a folder of its own; skips the test without gfortran, fails where it does not compile."""
    if shutil.which("gfortran") is None:
        pytest.skip("gfortran is not installed")
    executable = folder / program.stem
    sources = sources_of(program)
    objects = [_compiled(path, folder) for path in _c_sources_of(sources)]
    command = ["gfortran", *FLAGS, "-J", folder, *sources, *objects, "-o", executable, "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return executable


def _c_sources_of(sources: list[Path]) -> list[Path]:
    """Our C files with functions that these sources bind."""
    bound = {name for path in sources for name in re.findall(r'name="(cnn_\w+)"', path.read_text(encoding="utf-8"))}
    return [path for path in FORTRAN.rglob("*.c")
            if bound & set(re.findall(r"^\w[\w *]* \*?(cnn_\w+)\(", path.read_text(encoding="utf-8"), re.M))]


def _compiled(path: Path, folder: Path) -> Path:
    made = folder / f"{path.stem}.o"
    done = subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-O1", "-c", path, "-o", made], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made
