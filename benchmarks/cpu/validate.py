# SPDX-License-Identifier: MIT
"""How long ``python -m bridge.validate`` takes, and its stages as it prints them: once, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness.document import Goal, Options
from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.processes import ROOT
from benchmarks.harness.tables import table
from bridge.common.progress import stage

#: In seconds
LONGEST = 20.0
STAGE = re.compile(r"^(?P<name>\S.{0,60}?) {2,}(?P<seconds>\d+\.\d) s$")
REST = "export, start, report"


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """One run at the mission's size, with what it prints about time."""
    size, arguments = (16, ["--steps", "1"]) if options.quick else (1024, [])
    with stage(console, "validate"):
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "bridge.validate", "--size", str(size), *arguments], cwd=ROOT,
                              text=True, capture_output=True)
        seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise BenchmarkError(f"bridge.validate ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    found = stages(done.stderr)
    found[REST] = max(seconds - sum(found.values()), 0.0)
    return {"size": size, "seconds": seconds, "stages": found}, [
        Goal(f"validate: 2 x {size} x {size}", seconds, LONGEST, at_least=False, unit="s")]


def stages(text: str) -> dict[str, float]:
    """Seconds by stage, from what the program prints on standard error.

    Examples
    --------
    >>> stages("files in /x (removed)\\ncompare with the float64 oracle             6.1 s\\n")
    {'compare with the float64 oracle': 6.1}
    """
    found = filter(None, (STAGE.match(line) for line in text.splitlines()))
    return {one["name"].strip(): float(one["seconds"]) for one in found}


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each stage."""
    made = table(f"python -m bridge.validate --size {document['size']}", "stage", "s")
    for name, seconds in document["stages"].items():
        made.add_row(name, f"{seconds:.1f}")
    made.add_row("all", f"{document['seconds']:.1f}")
    return [made]
