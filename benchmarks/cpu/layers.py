# SPDX-License-Identifier: MIT
"""The layers of the mission's net, pass by pass: GFLOP/s, and the share of what the machine can do.

The machine's peak and its memory bandwidth are measured in every round, between the frameworks.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cpu.tools import pictures
from benchmarks.cpu.tools.machine_peak import FLOATS, TRIAD, MachinePeak
from benchmarks.cpu.tools.runs import compare, workers
from benchmarks.frameworks.cpu import CHANNELS_LAST, EAGER, KERNEL, OURS
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.errors import NotHere
from benchmarks.harness.tables import caption, optional, skipped, table, threads, times
from benchmarks.harness.timing import ratios
from benchmarks.harness.workloads import PASSES, Conv, Net
from bridge.common.progress import stage

PEERS = (EAGER, CHANNELS_LAST)
THREADS = (1, 2)
#: Of the measured peak
WANTED = 0.65


def layers(dtype: str, quick: bool) -> list[Conv]:
    """The one in the middle, and in float32 the two thin ones, which the memory's bandwidth limits."""
    first, middle, last = Net(size=24 if quick else 1024, dtype=dtype).layers
    return [middle] if quick or dtype == "float64" else [middle, first, last]


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """Both precisions, all passes, each number of threads."""
    cases: list[dict[str, Any]] = []
    runs = [(1, "float32")] if options.quick else [(number, dtype) for dtype in FLOATS for number in THREADS]
    with tempfile.TemporaryDirectory() as folder, stage(console, "layers") as report:
        peak, why = _peak(Path(folder), options.quick)
        for done, (number, dtype) in enumerate(runs):
            report(done, len(runs))
            cases += _passes(number, layers(dtype, options.quick), peak, options)
        machine = {"skipped": why} if peak is None else {"runs": _by_threads(peak)}
    if peak is not None:
        for case in cases:
            _add_shares(case, peak)
    return {"machine": machine, "cases": cases}, goals(cases)


def _peak(folder: Path, quick: bool) -> tuple[MachinePeak | None, str]:
    try:
        return (MachinePeak(folder, mebibytes=8, seconds=0.01) if quick else MachinePeak(folder)), ""
    except NotHere as why:
        return None, str(why)


def _passes(number: int, convs: list[Conv], peak: MachinePeak | None, options: Options) -> list[dict[str, Any]]:
    """All layers and passes in the same processes."""
    without = options.left_out(PEERS, slow=(EAGER,))
    names = [name for name in (KERNEL, OURS, *PEERS) if name not in without]

    def between() -> None:
        if peak is not None:
            peak.measure(number)

    found = []
    with workers(names, number) as processes:
        for conv, which in itertools.product(convs, PASSES):
            results = compare(processes, conv, options.rounds(7), which, between)
            found.append(_one(conv, which, number, results | without))
    return found


def _one(conv: Conv, which: str, number: int, results: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"{conv.c}->{conv.k} {which}, {conv.dtype}, {threads(number)}", "pass": which, "dtype": conv.dtype,
            "threads": number, "conv": conv.as_dict(), "gflop": conv.flop / 1e9,
            "flop_per_byte": conv.flop / conv.bytes, "results": results, "ratios": ratios(results, KERNEL)}


def _by_threads(peak: MachinePeak) -> list[dict[str, Any]]:
    """The highest rates, those of the median run, and how often they were measured."""
    return [{"threads": number, "runs": len(rates[TRIAD]), **_rates(number, peak.best),
             "median": _rates(number, peak.median)} for number, rates in peak.found.items()]


def _rates(number: int, which: Callable[[int, str], float]) -> dict[str, Any]:
    return {"gigabytes_per_second": which(number, TRIAD), "gflops": {dtype: which(number, dtype) for dtype in FLOATS}}


def _add_shares(case: dict[str, Any], peak: MachinePeak) -> None:
    highest = peak.best(case["threads"], case["dtype"])
    for one in case["results"].values():
        if "gflops" in one:
            one["share_of_peak"] = one["gflops"] / highest


def goals(cases: list[dict[str, Any]]) -> list[Goal]:
    """The share of the peak in float32, where the bandwidth is no limit."""
    return [Goal(f"layer {case['name']}: share of the multiply-add peak",
                 case["results"][KERNEL].get("share_of_peak"), WANTED, unit="")
            for case in cases if case["dtype"] == "float32" and case["conv"]["c"] == case["conv"]["k"]]


def tables(document: dict[str, Any]) -> list[Table]:
    """The machine, and a row for each framework in each case."""
    machine = document["machine"]
    roof = table("the machine", "", "float32 GFLOP/s", "float64 GFLOP/s", "triad GB/s")
    for run in machine.get("runs", []):
        for what, rates in ("at most", run), ("in the median run", run["median"]):
            roof.add_row(f"{threads(run['threads'])}, {what}", *(f"{rates['gflops'][dtype]:.1f}" for dtype in FLOATS),
                         f"{rates['gigabytes_per_second']:.1f}")
    if "skipped" in machine:
        roof.add_row(f"skipped: {machine['skipped']}")
    made = table("layers of the mission's net", "layer and pass", "framework", "median ms", "quartiles", "GFLOP/s",
                 "of the peak", "x the kernel's time", texts=2)
    for case in document["cases"]:
        title = case["name"]
        for name, one in case["results"].items():
            if "median" in one:
                made.add_row(title, name, *_cells(one, case["ratios"].get(name)))
                title = ""
    return [roof, caption(made, (skipped(case["results"]) for case in document["cases"]))]


def _cells(one: dict[str, Any], ratio: float | None) -> list[str]:
    share = one.get("share_of_peak")
    return [*times(one), f"{one['gflops']:.1f}", optional(share, ".0%"), optional(ratio)]


def draw(document: dict[str, Any], folder: Path) -> list[Path]:
    """The roofline, where the peak is known."""
    return [pictures.roofline(document, folder / "layers.png")] if "runs" in document["machine"] else []
