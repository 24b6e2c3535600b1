# SPDX-License-Identifier: MIT
"""Convolutions of volumes as 3-D U-Nets of cryo-electron tomograms have them, beside PyTorch: the output, and all
gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cpu.tools.runs import compare, workers
from benchmarks.frameworks.cpu import CHANNELS_LAST, COMPILED, EAGER, OURS
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.tables import caption, optional, skipped, table, threads, times
from benchmarks.harness.timing import ratios
from benchmarks.harness.workloads import OperationPass
from bridge.common.progress import stage
from bridge.operations import Conv3d, ConvTranspose3d
from bridge.operations.hyperparameters import numbers

PEERS = (EAGER, CHANNELS_LAST, COMPILED)
THREADS = (1, 2)


def layers(quick: bool) -> dict[str, tuple[Conv3d | ConvTranspose3d, int]]:
    """By what they are: the layer, and the side of its cubic input."""
    c, side = (4, 8) if quick else (32, 64)
    return {
        "first level": (Conv3d("it", c, c, (3, 3, 3), padding=(1, 1, 1)), side),
        "down": (Conv3d("it", c, 2 * c, (3, 3, 3), (2, 2, 2), (1, 1, 1)), side),
        "second level": (Conv3d("it", 2 * c, 2 * c, (3, 3, 3), padding=(1, 1, 1)), side // 2),
        "up": (ConvTranspose3d("it", 2 * c, c, (2, 2, 2), (2, 2, 2)), side // 2),
    }


def passes(layer: Conv3d | ConvTranspose3d, side: int) -> Iterator[OperationPass]:
    """The output, and the gradients of input, weight and bias."""
    shape = (1, layer.in_channels, side, side, side)
    output = layer.output_shape(shape)
    options = {name: one if len(one) > 1 else one[0] for name, one in numbers(layer).items()}
    of_pixel = math.prod(layer.kernel_size), layer.in_channels, layer.out_channels
    forward = OperationPass(
        layer.kind, False, (shape,), output, tuple(layer.parameter_shapes().values()), options,
        products=((math.prod((shape if isinstance(layer, ConvTranspose3d) else output)[2:]), of_pixel[2],
                   of_pixel[0] * of_pixel[1]),))
    yield forward
    yield replace(forward, backward=True, products=forward.products * 2)


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """Every layer with each number of threads."""
    cases: list[dict[str, Any]] = []
    counts = THREADS[:1] if options.quick else THREADS
    without = options.left_out(PEERS, slow=(EAGER, COMPILED))
    with stage(console, "volumes") as report:
        for done, number in enumerate(counts):
            report(done, len(counts))
            with workers([name for name in (OURS, *PEERS) if name not in without], number) as processes:
                for what, (layer, side) in layers(options.quick).items():
                    for work in passes(layer, side):
                        results = compare(processes, work, options.rounds(5)) | without
                        cases.append({
                            "name": f"{what} {'backward' if work.backward else 'forward'}, {threads(number)}",
                            "threads": number, "operation": work.as_dict(), "gflop": work.flop / 1e9,
                            "results": results, "ratios": ratios(results, OURS)})
    return {"cases": cases}, goals(cases)


def goals(cases: list[dict[str, Any]]) -> list[Goal]:
    """No slower than the fastest of the others."""
    return [Goal(f"volumes: {case['name']}, the fastest other / ours",
                 min((case["ratios"][name] for name in PEERS if case["ratios"].get(name) is not None), default=None),
                 1.0, unit="") for case in cases]


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each framework in each case."""
    made = table("convolutions of volumes", "layer and pass", "framework", "median ms", "quartiles", "GFLOP/s",
                 "x our time", texts=2)
    for case in document["cases"]:
        title = case["name"]
        for name, one in case["results"].items():
            if "median" in one:
                made.add_row(title, name, *times(one), f"{one['gflops']:.1f}", optional(case["ratios"].get(name)))
                title = ""
    return [caption(made, (skipped(case["results"]) for case in document["cases"]))]
