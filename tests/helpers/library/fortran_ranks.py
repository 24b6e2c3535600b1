# SPDX-License-Identifier: MIT
"""``cnn_train``, built for a test against the library that was built for these tests, and started by ``mpirun``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT

APP = ROOT / "fortran/app"
#: Of the program, in the order of compilation
SOURCES = [APP / f"{name}.f90" for name in ("main_program", "command_line", "progress", "readable", "mpi_ranks")]
FLAGS = ["-std=f2018", "-Wall", "-Wextra", "-Wimplicit-interface", "-Werror", "-fcheck=bounds", "-fopenmp", "-O1"]
#: More processes than cores, and as the user who owns a container, which Open MPI asks about; others do not mind
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
               "OMPI_MCA_hwloc_base_binding_policy": "none"}


def skip_without_mpi() -> None:
    """Skip the test where MPI, or the folder of the build, is not here."""
    for program in ("mpirun", "mpifort"):
        if shutil.which(program) is None:
            pytest.skip(f"skipped, because MPI is not here: {program} is not on the search path")


def build(program: Path, folder: Path) -> Path:
    """A program of our own room `app`, or a test's beside it; the executable."""
    skip_without_mpi()
    made = ROOT / "build/python"
    if not (made / "build.ninja").exists():
        pytest.skip("skipped, because the folder of the build is not here")
    rules = (made / "build.ninja").read_text(encoding="utf-8")
    found = re.search(r"^build fortran/cnn_step: .*?^ LINK_ARGS = (.*?)$", rules, re.DOTALL | re.MULTILINE)
    assert found
    executable = folder / program.stem
    modules = sorted(set(re.findall(r"-Ifortran/\S+\.a\.p", rules)))
    command = ["mpifort", *FLAGS, "-J", folder, *modules, *SOURCES, program, "-o", executable, *found[1].split()]
    done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return executable


def start(program: Path, ranks: int, *arguments: object) -> subprocess.Popen[str]:
    """It runs."""
    command = ["mpirun", "-n", str(ranks), program, *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def run(program: Path, ranks: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """It has ended, within a minute."""
    process = start(program, ranks, *arguments)
    try:
        out, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)
