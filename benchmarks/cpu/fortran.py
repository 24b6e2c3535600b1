# SPDX-License-Identifier: MIT
"""One convolution layer with its ReLU, forward and backward, beside those of neural-fortran and athena.

Their sources are compiled here, so they have to lie on this machine: the environment variables `NEURAL_FORTRAN` and
`ATHENA` name the folders. Both work with one thread, without padding. What they compute is held against ours.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import bridge
from benchmarks.cpu.tools.runs import call
from benchmarks.harness import data
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.errors import NotHere
from benchmarks.harness.interleaved import warm_summaries
from benchmarks.harness.processes import ROOT
from benchmarks.harness.tables import caption, skipped, table, times
from benchmarks.harness.timing import ratios
from benchmarks.harness.workloads import Conv
from bridge.common.progress import stage

OURS = "bridge"
PASSES = {"forward": ("y",), "backward": ("dx", "dw", "db")}
#: Of neural-fortran's release, and for this processor
FLAGS = ("-cpp", "-Ofast", "-march=native", "-fno-frontend-optimize", "-fcoarray=single")
#: Of the largest value of a tensor: sums of up to 31752 float32 numbers, one after the other
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Library:
    """A library, the variable that names its folder, and which of its files hold the layer and what it uses."""

    name: str
    variable: str
    source: str
    files: str

    def folder(self) -> Path:
        """Where its sources are.

        Raises
        ------
        NotHere
            If nothing says so, or they are not there.
        """
        found = os.environ.get(self.variable)
        if not found:
            raise NotHere(f"the environment variable {self.variable} names no folder with its sources")
        if not list(Path(found).glob(self.files)):
            raise NotHere(f"{self.variable}={found}: no files {self.files}")
        return Path(found)


LIBRARIES = (Library("neural-fortran", "NEURAL_FORTRAN", "neural_fortran_layer.f90", "src/nf/nf_*.f90"),
             Library("athena", "ATHENA", "athena_layer.f90", "src/lib/mod_*.f90"))


def cases(quick: bool) -> tuple[Conv, ...]:
    """The mission's layer on smaller images: theirs take long."""
    return (Conv(1, 3, 9, 8, 2, 3, 3),) if quick else (Conv(2, 16, 128, 128, 16, 3, 3), Conv(2, 64, 30, 30, 64, 3, 3))


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """All cases and both passes, with one thread."""
    found, versions = [], {}
    with tempfile.TemporaryDirectory() as folder, stage(console, "fortran") as report:
        programs, without = {}, options.left_out(tuple(one.name for one in LIBRARIES))
        for number, library in enumerate(LIBRARIES):
            report(number, len(LIBRARIES) + len(cases(options.quick)))
            if library.name in without:
                continue
            try:
                programs[library.name] = str(compiled(library, Path(folder)))
                versions[library.name] = version(library.folder())
            except NotHere as why:
                without[library.name] = {"skipped": str(why)}
        for number, conv in enumerate(cases(options.quick)):
            report(len(LIBRARIES) + number, len(LIBRARIES) + len(cases(options.quick)))
            for which in PASSES:
                results = call("benchmarks.cpu.fortran:run", 1, conv=conv.as_dict(), which=which, programs=programs,
                               rounds=options.rounds(7))
                found.append({"conv": conv.as_dict(), "pass": which, "results": results | without,
                              "ratios": ratios(results, OURS)})
    return {"threads": 1, "libraries": versions, "cases": found}, []


def compiled(library: Library, folder: Path) -> Path:
    """The program of a library, from its own sources.

    Raises
    ------
    NotHere
        If there are none, no compiler, or one that cannot compile them.
    """
    compiler = shutil.which("gfortran")
    if compiler is None:
        raise NotHere("gfortran is not on the search path")
    own, program = ROOT / "benchmarks" / "frameworks" / library.source, folder / library.name
    sources = in_order([own, *library.folder().glob(library.files)], own)
    modules = folder / f"{library.name}-modules"
    modules.mkdir()
    done = subprocess.run([compiler, *FLAGS, "-J", modules, *sources, "-o", program], capture_output=True, text=True)
    if done.returncode:
        raise NotHere(f"gfortran cannot compile {library.folder()}: {done.stderr.strip().splitlines()[-1]}")
    return program


def in_order(sources: list[Path], last: Path) -> list[Path]:
    """What `last` needs of some Fortran files, modules before those that use them, submodules behind their modules."""
    texts = {path: path.read_text(encoding="utf-8").lower() for path in sources}
    modules = {name: path for path, text in texts.items() for name in _found(r"module\s+(?!procedure)(\w+)", text)}
    parents = {path: _found(r"submodule\s*\(\s*(\w+)[^)]*\)\s*\w+", text) for path, text in texts.items()}
    made: list[Path] = []

    def add(path: Path) -> None:
        if path in made:
            return
        for name in (*_found(r"use\s*(?:,\s*intrinsic\s*::\s*)?(\w+).*", texts[path]), *parents[path]):
            if name in modules and modules[name] != path:
                add(modules[name])
        made.append(path)
        for below in texts:
            if any(modules.get(name) == path for name in parents[below]):
                add(below)

    add(last)
    return [*(path for path in made if path != last), last]


def _found(statement: str, text: str) -> list[str]:
    return re.findall(rf"^\s*{statement}\s*(?:!.*)?$", text, re.MULTILINE)


def version(folder: Path) -> str:
    """What the library's own manifest says."""
    manifest = folder / "fpm.toml"
    text = manifest.read_text(encoding="utf-8") if manifest.exists() else ""
    return next(iter(re.findall(r'^version\s*=\s*"([^"]+)"', text, re.MULTILINE)), "unknown")


def run(conv: dict[str, Any], which: str, programs: dict[str, str], rounds: int) -> dict[str, Any]:
    """Interleaved runs of a pass of a layer, ours and theirs; called by `measure` through the worker.

    Returns
    -------
    results : seconds by name, and for theirs how far each tensor is from ours, as a share of its largest value
    """
    layer, repeats = Conv.of_dict(conv), 3
    x, w, dy = data.operands(layer)
    b = w[:, 0, 0, 0].copy()
    y = bridge.conv2d(x, w, b, relu=True)

    def ours() -> dict[str, np.ndarray]:
        if which == "forward":
            return {"y": bridge.conv2d(x, w, b, relu=True)}
        return dict(zip(PASSES[which], bridge.conv2d_backward(dy * (y > 0), x, w), strict=True))

    def seconds() -> float:
        begin = time.perf_counter()
        for _ in range(repeats):
            ours()
        return (time.perf_counter() - begin) / repeats

    right = ours()
    with tempfile.TemporaryDirectory() as name:
        case, result = Path(name, "case"), Path(name, "result")
        sizes = np.array([layer.n, layer.c, layer.h, layer.w, layer.k, layer.r, repeats], np.int32)
        case.write_bytes(b"".join(one.tobytes() for one in (sizes, x, w, b, dy)))

        def theirs(program: str) -> Callable[[], float]:
            # The last line: athena says something of its own first
            return lambda: float(subprocess.run([program, which, case, result], check=True, capture_output=True,
                                                text=True).stdout.split()[-1])

        found = warm_summaries({OURS: seconds} | {name: theirs(one) for name, one in programs.items()}, rounds)
        for library, program in programs.items():
            theirs(program)()
            found[library]["errors"] = dict(_errors(np.fromfile(result, np.float32), right))
    for one in found.values():
        one["gflops"] = layer.flop * (1 if which == "forward" else 2) / one["median"] / 1e9
    return found


def _errors(found: np.ndarray, right: dict[str, np.ndarray]) -> Iterator[tuple[str, float]]:
    """Largest difference of each tensor, as a share of its largest value."""
    at = 0
    for name, one in right.items():
        theirs, at = found[at:at + one.size].reshape(one.shape), at + one.size
        yield name, float(np.abs(theirs - one).max() / np.abs(one).max())


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each library in each case."""
    made = table("a layer beside other Fortran libraries, 1 thread, float32", "case", "pass", "library", "median ms",
                 "quartiles", "GFLOP/s", "x our time", "what differs", texts=3)
    for case in document["cases"]:
        conv = Conv.of_dict(case["conv"])
        for name, one in case["results"].items():
            if "median" in one:
                wrong = [f"{tensor} by {error:.0%}" for tensor, error in one.get("errors", {}).items()
                         if not error <= TOLERANCE]
                label = " ".join(filter(None, (name, document["libraries"].get(name))))
                made.add_row(f"{conv.n} x {conv.c} x {conv.h} x {conv.w} -> {conv.k}", case["pass"], label, *times(one),
                             f"{one['gflops']:.2f}", f"{case['ratios'].get(name, 1.0):.1f}", ", ".join(wrong))
    return [caption(made, {skipped(case["results"]) for case in document["cases"]})]
