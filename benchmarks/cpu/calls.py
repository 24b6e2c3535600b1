# SPDX-License-Identifier: MIT
"""What the way from Python into Fortran costs: the cheapest call, a tiny convolution, and `Network.step`.

`Network.step` is set against the same steps of a Fortran program without Python, `cnn_time`.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from rich.console import Console
from rich.table import Table

import bridge
from benchmarks.cpu.tools.runs import call
from benchmarks.harness import data
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.interleaved import warm_summaries
from benchmarks.harness.tables import table
from benchmarks.harness.workloads import Net
from bridge.common.progress import stage
from bridge.engine.library import extension
from bridge.engine.library.programs import program_path

CALL, CONV, TINY_STEP = "engine.call", "bridge.conv2d", "Network.step, 8 x 8"
METHOD, PROGRAM = "Network.step", "Fortran program"
#: In microseconds
LONGEST_CALL = 3.0
#: Of the time of the Fortran program
MOST_FOR_STEP = 1.02
#: Large steps of a run, after one that is not counted
LARGE_STEPS = 5


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """In a process of our own, on one processor: two threads would measure how they wake each other."""
    with stage(console, "calls"):
        found = call("benchmarks.cpu.calls:time_calls", 1, loops=100 if options.quick else 5000,
                     rounds=options.rounds(15), size=32 if options.quick else 1024)
    step = found["results"][METHOD]["median"] / found["results"][PROGRAM]["median"]
    found["ratios"] = {METHOD: step}
    return found | {"threads": 1}, [
        Goal("calls: a call from Python into Fortran", 1e6 * found["results"][CALL]["median"], LONGEST_CALL,
             at_least=False, unit="us"),
        Goal("calls: Network.step, of the same steps in Fortran", step, MOST_FOR_STEP, at_least=False),
    ]


def time_calls(loops: int, rounds: int, size: int) -> dict[str, Any]:
    """Everything interleaved, in the process that is asked; called by `measure` through the worker.

    Parameters
    ----------
    loops : calls of what is tiny in a run; the large step is called once
    rounds : runs
    size : of the image of the large step, 2 of them

    Returns
    -------
    results : seconds for a call, by name
    """
    x, w = np.ones((1, 1, 8, 8), np.float32), np.ones((1, 1, 3, 3), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        tiny, large = (_Steps(Net(size=n), Path(folder, f"{n}.h5")) for n in (8, size))
        work: dict[str, Callable[[], float]] = {
            CALL: lambda: _seconds(lambda: extension.call("device_check", "cpu"), loops),
            CONV: lambda: _seconds(lambda: bridge.conv2d(x, w), loops),
            TINY_STEP: lambda: _seconds(tiny.method, max(loops // 20, 1)),
            METHOD: lambda: statistics.median([_seconds(large.method, 1) for _ in range(LARGE_STEPS + 1)][1:]),
            PROGRAM: lambda: statistics.median(large.program(LARGE_STEPS + 1)[1:]),
        }
        results = warm_summaries(work, rounds)
    return {"size": size, "loops": loops, "results": results}


def _seconds(function: Callable[[], object], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - begin) / calls


class _Steps:
    """A training step, through the method and in a Fortran program."""

    def __init__(self, net: Net, path: Path) -> None:
        # Not at the top: the module belongs to the worker's side
        from benchmarks.frameworks.bridge_cpu import network_of

        self.network, self._path = network_of(net), path
        self.x, self.t = data.batch(net)
        self.network.save(path, bridge.Sgd(data.LR))
        with h5py.File(path, "a") as file:
            for name, array in (("input", self.x), ("target", self.t)):
                file[f"batches/0/{name}"] = array

    def method(self) -> float:
        """As a program calls it."""
        return self.network.step(self.x, self.t, lr=data.LR)

    def program(self, steps: int) -> list[float]:
        """The seconds of each step without Python."""
        done = subprocess.run([program_path("cnn_time"), self._path, str(steps)], capture_output=True, text=True,
                              check=True)
        return [float(line) for line in done.stdout.split()]


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each."""
    made = table("from Python into Fortran, 1 thread", "what", "median us", "quartiles")
    for name, one in document["results"].items():
        low, high = (1e6 * seconds for seconds in one["quartiles"])
        title = f"{name}, 2 x {document['size']}²" if name in (METHOD, PROGRAM) else name
        made.add_row(title, f"{1e6 * one['median']:.2f}", f"{low:.2f} .. {high:.2f}")
    made.add_row("Network.step, of the same steps in Fortran", f"{document['ratios'][METHOD]:.3f} x", "")
    return [made]
