# SPDX-License-Identifier: MIT
"""Losses of the examples that train: those of each Fortran program beside those of its Python program.

Both start from the file that the Python program writes, with the same batches. The library has to be installed where
pkg-config finds it (docs/fortran.md). What the programs print is all that is known of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cpu.tools import pictures
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.errors import BenchmarkError, NotHere
from benchmarks.harness.processes import ROOT
from benchmarks.harness.tables import caption, table
from bridge.common.progress import stage

#: How far a loss may be from PyTorch's, as a share of it
APART = 1e-3
#: What a program is given before the number of its steps
GIVEN = {"gpt": (str(ROOT / "README.md"),)}
OURS, TORCH = "Fortran", "PyTorch"
#: A line that a training prints
STEP = re.compile(r"^step\s+(\d+)\s+loss\s+(\S+)$", re.MULTILINE)


def sources(examples: Path = ROOT / "examples") -> list[Path]:
    """Return the Fortran programs whose Python programs print such lines, in the order of their numbers.

    >>> [path.stem for path in sources()][:2]
    ['gpt', 'emulator']
    """
    found = [path for path in examples.glob("*/*.f90") if path.with_suffix(".py").exists()
             and 'print(f"step {step:4d}  loss ' in path.with_suffix(".py").read_text(encoding="utf-8")]
    return sorted(found, key=lambda path: int(path.parent.name.partition("_")[0]))


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """Train each example twice."""
    steps = 40 if options.quick else 200
    found: dict[str, Any] = {"steps": steps, "examples": []}
    programs = sources()[:1 if options.quick else None]
    with tempfile.TemporaryDirectory() as name, stage(console, "examples") as report:
        for done, source in enumerate(programs):
            report(done, len(programs))
            try:
                found["examples"].append(_trained(source, steps, Path(name)))
            except NotHere as why:
                found["skipped"] = str(why)
                break
    goals = [Goal(f"examples: {one['name']}, difference of a loss from PyTorch's, as a share", one["apart"], APART,
                  at_least=False, unit="") for one in found["examples"]]
    return found, goals


def _trained(source: Path, steps: int, folder: Path) -> dict[str, Any]:
    program, given = compiled(source, folder), (*GIVEN.get(source.stem, ()), str(steps))
    said = {TORCH: _run([sys.executable, str(source.with_suffix(".py")), *given], folder),
            OURS: _run([str(program), *given], folder)}
    curves = {name: curve(text) for name, text in said.items()}
    ours, theirs = curves[OURS], curves[TORCH]
    if not ours or ours["step"] != theirs["step"]:
        raise BenchmarkError(f"{source.stem}: the programs print other steps, {ours['step']} and {theirs['step']}")
    return {"name": source.stem, "curves": curves,
            "apart": max(abs(a / b - 1) for a, b in zip(ours["loss"], theirs["loss"], strict=True))}


def curve(text: str) -> dict[str, list[float]]:
    """Return the losses that a training has printed, and the steps that they are of.

    >>> curve("step   20  loss 0.5\\nright on 3")
    {'step': [20], 'loss': [0.5]}
    """
    lines = STEP.findall(text)
    return {"step": [int(step) for step, _ in lines], "loss": [float(loss) for _, loss in lines]}


def compiled(source: Path, folder: Path) -> Path:
    """Compile an example with the installed library.

    Raises
    ------
    NotHere
        If there is no compiler, or pkg-config does not find the library.
    """
    for program in ("gfortran", "pkg-config"):
        if shutil.which(program) is None:
            raise NotHere(f"{program} is not on the search path")
    asked = subprocess.run(["pkg-config", "--cflags", "--libs", "cnn"], capture_output=True, text=True)
    if asked.returncode:
        raise NotHere("pkg-config does not find the library, PKG_CONFIG_PATH names the folder of its cnn.pc")
    made = folder / source.stem
    _run(["gfortran", str(source), *asked.stdout.split(), "-o", str(made)], folder)
    return made


def _run(command: list[str], folder: Path) -> str:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})
    if done.returncode:
        raise BenchmarkError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each example."""
    made = table(f"losses of {document['steps']} steps of the examples", "example", "first", "PyTorch's last",
                 "Fortran's last", "largest difference, as a share")
    for one in document["examples"]:
        theirs, ours = (one["curves"][name]["loss"] for name in (TORCH, OURS))
        made.add_row(one["name"], f"{theirs[0]:.6f}", f"{theirs[-1]:.6f}", f"{ours[-1]:.6f}", f"{one['apart']:.1e}")
    return [caption(made, [f"  skipped: {document['skipped']}"] if "skipped" in document else [])]


def draw(document: dict[str, Any], folder: Path) -> list[Path]:
    """Both curves of each example."""
    return [pictures.examples(document, folder / "examples.png")] if document["examples"] else []
