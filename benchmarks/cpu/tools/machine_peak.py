# SPDX-License-Identifier: MIT
"""The roof over every rate: `machine_peak.f90` compiled for this processor, and run beside what is measured."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import processors
from benchmarks.harness.errors import NotHere

SOURCE = Path(__file__).with_suffix(".f90")
FLAGS = ("-cpp", "-std=f2018", "-O3", "-march=native", "-fopenmp")
#: Of float32, in the vector registers of SSE and Arm, AVX2, and AVX-512
LANES = (4, 8, 16)
#: What the program prints
FLOATS = ("float32", "float64")
TRIAD = "triad"


class MachinePeak:
    """The compiled program.

    Parameters
    ----------
    folder : for the executables
    mebibytes : of each of the triad's arrays; together more than the caches hold
    seconds : for each figure of a run

    Raises
    ------
    NotHere
        If there is no gfortran, or it cannot compile the program.
    """

    def __init__(self, folder: Path, mebibytes: int = 256, seconds: float = 0.1) -> None:
        self._arguments = [str(mebibytes), str(seconds)]
        compiler = shutil.which("gfortran")
        if compiler is None:
            raise NotHere("gfortran is not on the search path, and the peak of the machine is unknown")
        built = [_compile(compiler, folder, lanes) for lanes in LANES]
        self._program = max(built, key=lambda program: self._run(program, ["1", "0.02"], 1)["float32"])
        #: Rates of all runs, by threads and name
        self.found: dict[int, dict[str, list[float]]] = {}

    def measure(self, threads: int) -> None:
        """One run; the rates go to `found`."""
        rates = self.found.setdefault(threads, {})
        for name, rate in self._run(self._program, self._arguments, threads).items():
            rates.setdefault(name, []).append(rate)

    def best(self, threads: int, name: str) -> float:
        """The highest rate: what the machine can do when nothing disturbs it, in GFLOP/s or GB/s."""
        return max(self.found[threads][name])

    def median(self, threads: int, name: str) -> float:
        """The rate of the median run: what was left of it while the frameworks ran."""
        return statistics.median(self.found[threads][name])

    @staticmethod
    def _run(program: Path, arguments: Sequence[str], threads: int) -> dict[str, float]:
        code = ("import os, sys; from benchmarks.harness import processors; processors.restrict(int(sys.argv[1])); "
                "os.execv(sys.argv[2], sys.argv[2:])")
        done = subprocess.run([sys.executable, "-c", code, str(threads), str(program), *arguments], check=True,
                              text=True, capture_output=True, cwd=SOURCE.parents[3],
                              env=processors.environment(threads))
        return {line.split()[0]: float(line.split()[-1]) for line in done.stdout.splitlines()}


def _compile(compiler: str, folder: Path, lanes: int) -> Path:
    program = folder / f"machine_peak_{lanes}"
    # gcc keeps to 256 bits on many processors with 512, unless it is told; others have no such option
    wide = ["-mprefer-vector-width=512"] if lanes == 16 else []
    command = [compiler, *FLAGS, f"-DLANES={lanes}", str(SOURCE), "-o", str(program)]
    for options in (wide, []):
        done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=folder)
        if done.returncode == 0:
            return program
    raise NotHere(f"gfortran cannot compile machine_peak.f90: {done.stderr.strip().splitlines()[-1]}")
