# SPDX-License-Identifier: MIT
"""A whole training step (forward, loss, backward, SGD), ours beside PyTorch's and JAX's.

Nobody computes the gradient of the image, which training does not need. The peak memory is that of a process that
does nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cpu.tools import pictures
from benchmarks.cpu.tools.runs import compare, workers
from benchmarks.frameworks.cpu import (
    CHANNELS_LAST,
    COMPILED,
    COMPILED_LAST,
    EAGER,
    JAX_NCHW,
    JAX_NHWC,
    MEMORY_KEPT,
    OURS,
)
from benchmarks.harness import processors
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.tables import caption, optional, skipped, table, times, title
from benchmarks.harness.timing import ratios
from benchmarks.harness.workloads import Net
from bridge.common.progress import stage

#: Those that PyTorch's users would change to, and JAX
BEST = (CHANNELS_LAST, COMPILED, COMPILED_LAST, JAX_NCHW, JAX_NHWC)
#: Faster, but no default: it is shown, and no goal is set against it
PEERS = (EAGER, *BEST, MEMORY_KEPT)
#: Of the memory that is free: what a peer may need, and what one may keep while others work
SHARE_OF_MEMORY, SHARE_KEPT = 0.7, 0.2
SLOW_TO_START = (COMPILED, COMPILED_LAST, JAX_NCHW, JAX_NHWC, MEMORY_KEPT)


@dataclass(frozen=True)
class Case:
    """A net, and with how many threads and in how many runs it is run."""

    name: str
    net: Net
    threads: int = 2
    rounds: int = 5


MISSION = Case("mission", Net(), rounds=9)
CASES = (
    MISSION,
    Case("mission, 1 thread", Net(), threads=1),
    # Peers take 5 to 30 s for a step
    Case("float64", Net(dtype="float64"), rounds=3),
    Case("64 x 64", Net(size=64), rounds=9),
    Case("256 x 256", Net(size=256), rounds=9),
    Case("4096 x 4096, 1 image", Net(size=4096, batch=1), rounds=3),
    Case("32 channels, 512 x 512", Net((1, 32, 32, 1), size=512)),
    Case("64 channels, 512 x 512", Net((1, 64, 64, 1), size=512)),
    Case("5 x 5 kernels, 512 x 512", Net(kernel=5, size=512)),
)
#: A size that takes no time; one thread, because two would wait for each other on a machine that others use
QUICK = (Case("mission", Net(size=24), threads=1),)


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """All cases, one after the other."""
    cases, found = QUICK if options.quick else CASES, []
    with stage(console, "step") as report:
        for done, case in enumerate(cases):
            report(done, len(cases))
            found.append(_one(case, options))
    return {"cases": found}, goals(found)


def _one(case: Case, options: Options) -> dict[str, Any]:
    skipped = too_large(case.net, processors.memory_left()) | options.left_out(PEERS, slow=SLOW_TO_START)
    names = [name for name in (OURS, *PEERS) if name not in skipped]
    with workers(names, case.threads) as processes:
        results = compare(processes, case.net, options.rounds(case.rounds)) | skipped
    return {"name": case.name, "net": case.net.as_dict(), "threads": case.threads, "gflop": case.net.flop / 1e9,
            "results": results, "ratios": ratios(results, OURS), "memory_ratios": memory_ratios(results)}


def too_large(net: Net, free: int) -> dict[str, dict[str, str]]:
    """Results of the peers for which there is not enough memory; one that keeps it takes it from all others.

    Examples
    --------
    >>> list(too_large(Net(), 5 * 10**9)), list(too_large(Net(size=128), 5 * 10**9))
    (['torch channels_last, memory kept'], [])
    """
    reason = {"skipped": f"it would need about {net.likely_bytes / 1e9:.1f} GB of memory"}
    return {name: reason for name in PEERS
            if net.likely_bytes > free * (SHARE_KEPT if name == MEMORY_KEPT else SHARE_OF_MEMORY)}


def memory_ratios(results: dict[str, Any]) -> dict[str, float]:
    """How many times our peak memory each peer's is."""
    own = results[OURS]["memory"]["peak"]
    return {name: one["memory"]["peak"] / own for name, one in results.items() if name != OURS and "memory" in one}


def least(values: dict[str, float], names: tuple[str, ...]) -> float | None:
    """The smallest of those that are there."""
    return min((values[name] for name in names if name in values), default=None)


def goals(cases: list[dict[str, Any]]) -> list[Goal]:
    """What was promised of a step."""
    by_name = {case["name"]: case for case in cases}
    mission = by_name["mission"]
    memory = least(mission["memory_ratios"], (EAGER, CHANNELS_LAST, COMPILED, COMPILED_LAST))
    found = [
        Goal("step: faster than PyTorch eager", mission["ratios"].get(EAGER), 8.0),
        Goal("step: faster than the best of channels_last, torch.compile, JAX", least(mission["ratios"], BEST), 3.0),
        Goal("step: peak memory, of PyTorch's least", None if memory is None else 1 / memory, 0.5, at_least=False),
    ]
    if "float64" in by_name:
        rate = by_name["float64"]["results"][OURS]["gflops"] / mission["results"][OURS]["gflops"]
        found.append(Goal("step: rate in float64, of that in float32", rate, 0.45))
    for case in cases:
        if case is not mission:
            text = f"step, {case['name']}: faster than channels_last"
            found.append(Goal(text, case["ratios"].get(CHANNELS_LAST), 1.0))
    return found


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each framework in each case."""
    made = table("a training step", "case", "framework", "median ms", "quartiles", "GFLOP/s", "x our time", "peak MB",
                 "after import", "with data", texts=2)
    for case in document["cases"]:
        words = title(case)
        for name, one in case["results"].items():
            if "median" in one:
                made.add_row(words, name, *_cells(one, case["ratios"].get(name)))
                words = ""
    return [caption(made, (skipped(case["results"]) for case in document["cases"]))]


def _cells(one: dict[str, Any], ratio: float | None) -> list[str]:
    return [*times(one), f"{one['gflops']:.1f}", optional(ratio),
            *(f"{one['memory'][name] / 1e6:.0f}" for name in ("peak", "imported", "with_data"))]


def draw(document: dict[str, Any], folder: Path) -> list[Path]:
    """Ratios of time and memory."""
    return [pictures.step(document, folder / "step.png")]
