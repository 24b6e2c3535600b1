# SPDX-License-Identifier: MIT
"""Operations that only move numbers, forward and backward, beside PyTorch and the bandwidth of a triad."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from benchmarks.cpu import operations
from benchmarks.cpu.operations import Case
from benchmarks.harness.document import Goal, Options


def cases(quick: bool) -> list[Case]:
    """Images larger than caches, as in the first level of a U-Net.

    Each pass must write its result, and read as many numbers; what repeats numbers reads fewer.
    """
    n, c, h, w = large = (1, 4, 16, 16) if quick else (8, 32, 256, 256)
    row, column = (n, c, h, 1), (n, c, 1, w)
    side = {"padding": (1, 1, 1, 1)}
    chosen: list[tuple[str, str, dict[str, Any]]] = [
        *(("transpose", f"{one}, {other}", {"dim0": one, "dim1": other}) for one, other in ((1, 2), (1, 3), (2, 3))),
        ("permute", "channels last", {"dims": (0, 2, 3, 1)}),
        *(("flip", str(dim), {"dims": (dim,)}) for dim in (2, 3)),
        *(("roll", str(dim), {"shifts": (5,), "dims": (dim,)}) for dim in (2, 3)),
        ("pixel_shuffle", "", {"upscale_factor": 2}), ("pixel_unshuffle", "", {"downscale_factor": 2}),
        *((kind, "", side) for kind in ("zero_pad2d", "reflection_pad2d", "replication_pad2d")),
        ("constant_pad", "", {"pad": (1, 1, 1, 1), "value": 0.5}), ("circular_pad", "", {"pad": (1, 1, 1, 1)}),
    ]
    return [
        *(Case(kind, ("xy", "dg"), (large,), given, note) for kind, note, given in chosen),
        Case("slice", ("yy", "dg"), (large,), {"dim": 1, "start": 0, "stop": c // 2}, "channels"),
        Case("slice", ("yy", "dg"), (large,), {"dim": 3, "start": 1, "step": 2}, "every second"),
        Case("index_select", ("yy", "dg"), (large,), {"dim": 1, "indices": tuple(range(c - 1, -1, -2))}),
        *(Case("expand", ("xy", "dg"), (one,), {"shape": (c, h, w)}, note)
          for one, note in ((row, "along rows"), (column, "along columns"))),
        Case("concat", ("xy", "dg"), (large, large)),
    ]


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """Every one with each number of threads and precision."""
    return operations.measured("moves", cases(options.quick), options, console)


tables = operations.tables
