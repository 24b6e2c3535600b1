# SPDX-License-Identifier: MIT
"""Many shapes of convolutions, each pass by itself, ours (`bridge.conv2d`, arguments checked) beside PyTorch's, with
arrays in the same layout.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cpu.tools import pictures
from benchmarks.cpu.tools.runs import compare, workers
from benchmarks.cpu.tools.shapes import QUICK, SHAPES, name
from benchmarks.frameworks.cpu import CHANNELS_LAST, EAGER, OURS, OURS_LAST
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.processes import Process
from benchmarks.harness.tables import caption, milliseconds, optional, skipped, table
from benchmarks.harness.timing import ratios
from benchmarks.harness.workloads import PASSES, Conv
from bridge.common.progress import stage

PEERS = (CHANNELS_LAST, EAGER)
#: Ours with arrays in the layout of each peer
OWN = {CHANNELS_LAST: OURS_LAST, EAGER: OURS}
THREADS = 2


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """All shapes in the same processes."""
    shapes, cases = QUICK if options.quick else SHAPES, []
    without, threads = options.left_out(PEERS, slow=(EAGER,)), 1 if options.quick else THREADS
    names = [one for peer in PEERS if peer not in without for one in (OWN[peer], peer)]
    with workers(names, threads) as processes, stage(console, "sweep") as report:
        for done, conv in enumerate(shapes):
            report(done, len(shapes))
            cases += [_one(processes, conv, which, options) for which in PASSES]
    for case in cases:
        case["results"] |= without
    return {"threads": threads, "shapes": len(shapes), "cases": cases, "exceptions": exceptions(cases)}, goals(cases)


def _one(processes: dict[str, Process], conv: Conv, which: str, options: Options) -> dict[str, Any]:
    results = compare(processes, conv, options.rounds(5), which)
    return {"name": name(conv), "pass": which, "conv": conv.as_dict(), "results": results,
            "ratios": {peer: found for peer, own in OWN.items()
                       if (found := ratios(results, own).get(peer)) is not None}}


def exceptions(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where we are slower than channels_last, the worst first."""
    slower = [{"name": case["name"], "pass": case["pass"], "ratio": case["ratios"][CHANNELS_LAST]}
              for case in cases if case["ratios"].get(CHANNELS_LAST, math.inf) < 1]
    return sorted(slower, key=lambda one: one["ratio"])


def goals(cases: list[dict[str, Any]]) -> list[Goal]:
    """Nowhere slower."""
    measured = [case for case in cases if CHANNELS_LAST in case["ratios"]]
    found = float(len(exceptions(cases))) if measured else None
    return [Goal(f"sweep: of {len(measured)} passes, slower than channels_last", found, 0, at_least=False, unit="")]


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each shape, and how the ratios are spread."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for case in document["cases"]:
        rows.setdefault(case["name"], {})[case["pass"]] = case
    made = table("convolutions: our ms, and PyTorch's time over ours (channels_last, NCHW)", "shape",
                 *(f"{which} {what}" for which in PASSES for what in ("ms", "cl", "NCHW")))
    for title, passes in rows.items():
        made.add_row(title, *(cell for which in PASSES for cell in _cells(passes[which])))
    made = caption(made, (skipped(case["results"]) for case in document["cases"]))
    return [made, _spread(document), _exceptions(document)]


def _cells(case: dict[str, Any]) -> list[str]:
    found = (case["ratios"].get(peer) for peer in PEERS)
    ours = next(case["results"][own] for own in OWN.values() if own in case["results"])
    return [milliseconds(ours["median"]), *map(optional, found)]


def _spread(document: dict[str, Any]) -> Table:
    made = table("PyTorch's time over ours, all shapes", "pass", "peer", "least", "median", "geometric mean", "most",
                 texts=2)
    for which in PASSES:
        for peer in PEERS:
            values = [c["ratios"][peer] for c in document["cases"] if c["pass"] == which and peer in c["ratios"]]
            if values:
                made.add_row(which, peer, *(f"{x:.2f}" for x in (min(values), statistics.median(values),
                                                                 statistics.geometric_mean(values), max(values))))
    return made


def _exceptions(document: dict[str, Any]) -> Table:
    made = table("slower than channels_last, the worst first", "shape", "pass", "ratio", texts=2)
    for one in document["exceptions"]:
        made.add_row(one["name"], one["pass"], f"{one['ratio']:.2f}")
    return made


def draw(document: dict[str, Any], folder: Path) -> list[Path]:
    """All ratios as a text, and sorted as a picture."""
    text = folder / "sweep.md"
    text.write_text(as_markdown(document), encoding="utf-8")
    return [text, pictures.sweep(document, folder / "sweep.png")]


def as_markdown(document: dict[str, Any]) -> str:
    """The ratios to channels_last, a row for each shape; where we are slower in bold."""
    rows: dict[str, dict[str, float | None]] = {}
    for case in document["cases"]:
        rows.setdefault(case["name"], {})[case["pass"]] = case["ratios"].get(CHANNELS_LAST)
    slower, measured = len(document["exceptions"]), sum(x is not None for row in rows.values() for x in row.values())
    lines = [f"# PyTorch channels_last's time over ours, {document['threads']} thread(s)", "",
             f"{document['environment']['cpu']}. Bold: we are slower, in {slower} of {measured} passes. "
             "Written by `python -m benchmarks sweep`.", "",
             f"| shape | {' | '.join(PASSES)} |", "| --- " + "| ---: " * len(PASSES) + "|"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(_ratio(row.get(one)) for one in PASSES)} |"
                               for name, row in rows.items()), ""])


def _ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value >= 1 else f"**{value:.2f}**"
