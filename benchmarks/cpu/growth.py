# SPDX-License-Identifier: MIT
"""How the time and the peak memory of a training step grow: with the image, the channels, the batch, the threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cpu.tools import pictures
from benchmarks.cpu.tools.runs import compare, workers
from benchmarks.frameworks.cpu import CHANNELS_LAST, OURS
from benchmarks.harness import processors
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.tables import caption, milliseconds, optional, table
from benchmarks.harness.timing import ratios, slope
from benchmarks.harness.workloads import Net
from bridge.common.progress import stage

NAMES = (OURS, CHANNELS_LAST)
#: A step that would take longer is not measured
LONGEST = 20.0
#: Of the memory that is free, what a framework may need
SHARE_OF_MEMORY = 0.7


@dataclass(frozen=True)
class Curve:
    """What grows, and the nets and threads at each of its values."""

    title: str
    grows: str
    x: tuple[int, ...]
    nets: tuple[Net, ...]
    threads: tuple[int, ...]


def curves(quick: bool) -> list[Curve]:
    """The four; a quick run has two points of the first."""
    base = Net(size=16, batch=1) if quick else Net(size=256, batch=1)

    def made(title: str, grows: str, x: Sequence[int], nets: Sequence[Net], threads: Sequence[int] = ()) -> Curve:
        end = 2 if quick else len(x)
        usual = (1 if quick else 2,) * len(x)
        return Curve(title, grows, tuple(x[:end]), tuple(nets[:end]), tuple(threads or usual)[:end])

    sizes = (8, 16) if quick else (64, 128, 256, 512, 1024, 2048, 4096)
    powers = (1, 2, 4, 8, 16, 32, 64)
    batches = replace(base, size=base.size // 2)
    large = replace(base, size=16 if quick else 1024)
    found = [
        made("1 image", "height = width", sizes, [replace(base, size=size) for size in sizes]),
        made(f"1 image of {base.size}²", "channels", powers, [replace(base, channels=(1, n, n, 1)) for n in powers]),
        made(f"images of {batches.size}²", "batch", powers, [replace(batches, batch=n) for n in powers]),
        made(f"1 image of {large.size}²", "threads", (1, 2), [large, large], (1, 2)),
    ]
    return found[:1] if quick else found


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """Every point in new processes, whose memory is then that of the point."""
    wanted, found = curves(options.quick), []
    with stage(console, "growth") as report:
        for done, curve in enumerate(wanted):
            report(done, len(wanted))
            found.append(_curve(curve, options))
    return {"curves": found}, []


def _curve(curve: Curve, options: Options) -> dict[str, Any]:
    points: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    for net, threads in zip(curve.nets, curve.threads, strict=True):
        skipped = options.left_out(NAMES[1:])
        for name in NAMES:
            before = points[name][-1] if points[name] else None
            reason = too_much(before, _larger(curve, len(points[name])), processors.memory_left())
            if reason and name not in skipped:
                skipped[name] = {"skipped": reason}
        with workers([name for name in NAMES if name not in skipped], threads) as processes:
            results = compare(processes, net, options.rounds(3)) | skipped
        for name in NAMES:
            points[name].append(_point(results[name]))
    return {"title": curve.title, "grows": curve.grows, "x": list(curve.x), "threads": list(curve.threads),
            "nets": [net.as_dict() for net in curve.nets], "points": points, "ratios": _ratios(points),
            "slopes": {name: _slopes(curve.x, points[name]) for name in NAMES}}


def _larger(curve: Curve, place: int) -> float:
    """How many times as much work a point is as the one before."""
    return curve.nets[place].flop / curve.nets[place - 1].flop if place else 1.0


def too_much(before: dict[str, Any] | None, larger: float, memory: int) -> str:
    """Why a point cannot be measured, computed from the one before; empty where it can.

    Examples
    --------
    >>> too_much({"seconds": 6.0, "bytes": 1000}, 4.0, 10**9)
    'a step would take about 24 s'
    """
    if before is None:
        return ""
    if "skipped" in before:
        return before["skipped"]
    if before["seconds"] * larger > LONGEST:
        return f"a step would take about {before['seconds'] * larger:.0f} s"
    if before["bytes"] * larger > SHARE_OF_MEMORY * memory:
        return f"it would need about {before['bytes'] * larger / 1e9:.0f} GB of memory"
    return ""


def _point(result: dict[str, Any]) -> dict[str, Any]:
    if "skipped" in result:
        return result
    return {"seconds": result["median"], "quartiles": result["quartiles"], "runs": result["runs"],
            "bytes": result["memory"]["peak"], "bytes_after_import": result["memory"]["imported"],
            "gflops": result["gflops"]}


def _ratios(points: dict[str, list[dict[str, Any]]]) -> list[dict[str, float]]:
    columns = (dict(zip(points, column, strict=True)) for column in zip(*points.values(), strict=True))
    return [ratios({name: {"median": one["seconds"]} for name, one in column.items() if "seconds" in one}, OURS)
            for column in columns]


def _slopes(x: Sequence[int], points: list[dict[str, Any]]) -> dict[str, float | None]:
    """Exponents of the time, and of the memory beyond that of the imported libraries."""
    there = [(n, one) for n, one in zip(x, points, strict=True) if "seconds" in one]
    numbers = [n for n, _ in there]
    more = [max(one["bytes"] - one["bytes_after_import"], 1) for _, one in there]
    return {"seconds": slope(numbers, [one["seconds"] for _, one in there]), "bytes": slope(numbers, more)}


def tables(document: dict[str, Any]) -> list[Table]:
    """A table for each curve; the last row holds the exponents."""
    return [_table(curve) for curve in document["curves"]]


def _table(curve: dict[str, Any]) -> Table:
    made = table(f"growth with {curve['grows']}, {curve['title']}", curve["grows"],
                 *(f"{name} {what}" for name in NAMES for what in ("ms", "MB")), "ratio")
    for place, x in enumerate(curve["x"]):
        ratio = curve["ratios"][place].get(CHANNELS_LAST)
        made.add_row(str(x), *(cell for name in NAMES for cell in _cells(curve["points"][name][place])),
                     optional(ratio))
    exponents = (curve["slopes"][name][what] for name in NAMES for what in ("seconds", "bytes"))
    made.add_row("~ n^", *map(optional, exponents), "")
    reasons = (f"  skipped: {name}, {curve['grows']} {x}: {one['skipped']}" for name in NAMES
                            for x, one in zip(curve["x"], curve["points"][name], strict=True) if "skipped" in one)
    return caption(made, reasons)


def _cells(point: dict[str, Any]) -> list[str]:
    return ["", ""] if "skipped" in point else [milliseconds(point["seconds"]), f"{point['bytes'] / 1e6:.0f}"]


def draw(document: dict[str, Any], folder: Path) -> list[Path]:
    """Time and memory."""
    return [pictures.growth(document, folder / "growth.png")]
