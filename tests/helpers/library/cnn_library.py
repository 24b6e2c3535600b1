# SPDX-License-Identifier: MIT
"""Programs that `use cnn`, compiled against the library that was built for these tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT

PROGRAMS = ROOT / "tests/library/programs"
SANITIZED = ("-fsanitize=address",)
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-fopenmp", "-g", "-O1"]
#: With which climate models are compiled
TRAPS = "-ffpe-trap=invalid,zero,overflow"
#: By the ending of a source
FLAGS = {".f90": ["-std=f2018", "-fcheck=bounds", TRAPS, *WARNINGS], ".c": ["-std=c99", "-pedantic", *WARNINGS]}


def compiled(source: Path, folder: Path, *flags: str) -> Path:
    """The executable; skips the test where there is no gfortran, or no folder of the build."""
    build = ROOT / "build/python"
    if shutil.which("gfortran") is None or not (build / "build.ninja").exists():
        pytest.skip("skipped, because gfortran or the folder of the build is not here")
    rules = (build / "build.ninja").read_text(encoding="utf-8")
    found = re.search(r"^build fortran/cnn_step: .*?^ LINK_ARGS = (.*?)$", rules, re.DOTALL | re.MULTILINE)
    assert found
    executable = folder / source.stem
    # The module alone, as an installation has it
    (folder / "include").mkdir(exist_ok=True)
    shutil.copy(build / "fortran/libcnn.a.p/cnn.mod", folder / "include")
    shutil.copy(ROOT / "fortran/installed/cnn.h", folder / "include")
    made = folder / f"{source.stem}.o"
    compiler = "cc" if source.suffix == ".c" else "gfortran"
    for command in ([compiler, *FLAGS[source.suffix], "-I", folder / "include", "-c", source, "-o", made,
                     *(flag for flag in flags if flag.startswith("-"))],
                    ["gfortran", "-fopenmp", made, *flags, "-o", executable, *found[1].split()]):
        done = subprocess.run(command, cwd=build, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return executable


def printed(executable: Path, *arguments: str, **environment: str) -> list[str]:
    """What it prints, line by line; it must end well."""
    done = subprocess.run([executable, *arguments], cwd=executable.parent, capture_output=True, text=True, check=False,
                          env=os.environ | environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    return [line.strip() for line in done.stdout.splitlines()]
