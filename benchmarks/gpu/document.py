# SPDX-License-Identifier: MIT
"""The JSON: what was found, on which GPU, with which versions, and the goals."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

from benchmarks.frameworks.gpu import OURS
from benchmarks.harness.document import Goal

Found = dict[str, Any]
JSON_VERSION = 2
#: At the mission's size, beside the best of PyTorch; everywhere; of the roofline bound
FASTER, NEVER_SLOWER, OF_ROOFLINE = 1.5, 1.0, 0.6
#: The last has another name in newer drivers, and is left out where nvidia-smi does not know it
SMI = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.draw", "power.limit",
       "temperature.gpu", "clocks_throttle_reasons.active")


def clocks(index: int) -> dict[str, str]:
    """What nvidia-smi says of the GPU now; nothing where there is no such program. It only asks."""
    for names in (SMI, SMI[:-1]):
        command = ["nvidia-smi", f"--id={index}", f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
        except (OSError, subprocess.SubprocessError):
            continue
        values = done.stdout.strip().split(", ")
        if len(values) == len(names):
            return dict(zip(names, values, strict=True))
    return {}


def cell_of(cells: list[Found], size: int, batch: int, precision: str) -> Found | None:
    """The one of a size, or None."""
    return next((one for one in cells if (one["size"], one["batch"], one["precision"]) == (size, batch, precision)),
                None)


def mine(cell: Found | None, key: str = "ratio") -> float | None:
    """Of our framework that the goals are about: its "ratio" to the best of PyTorch, or "of_roofline"."""
    if cell is None:
        return None
    if key == "ratio":
        return cell.get("ratios", {}).get(OURS)
    return cell["results"].get(OURS, {}).get(key)


def goals(cells: list[Found], mission: tuple[int, int], precisions: Sequence[str]) -> list[Goal]:
    """What was promised, for each precision."""
    found = []
    for precision in precisions:
        case = cell_of(cells, *mission, precision)
        ratios = [value for one in cells if one["precision"] == precision and (value := mine(one)) is not None]
        found += [
            Goal(f"{precision}: {mission[0]} x {mission[0]}, faster than the best of PyTorch", mine(case), FASTER),
            Goal(f"{precision}: everywhere, the least ratio to the best of PyTorch", min(ratios, default=None),
                 NEVER_SLOWER),
            Goal(f"{precision}: {mission[0]} x {mission[0]}, share of the roofline bound", mine(case, "of_roofline"),
                 OF_ROOFLINE, unit=""),
        ]
    return found


def faults(cells: list[Found], mission: tuple[int, int], precisions: Sequence[str]) -> list[str]:
    """What makes a run a failure: no figure of ours for the mission, none where PyTorch has one, another result."""
    found = []
    for precision in precisions:
        case = cell_of(cells, *mission, precision)
        if mine(case) is None:
            own = {} if case is None else case["results"].get(OURS, {})
            why = own.get("disqualified") or own.get("failed") or own.get("skipped") or "not measured"
            found.append(f"{precision}: {OURS}: {'no figure of PyTorch' if 'median' in own else why}")
    for cell in cells:
        where = f"{cell['batch']} x 1 x {cell['size']} x {cell['size']}, {cell['precision']}"
        found += [f"{where}: {name}: {one['disqualified']}" for name, one in cell["results"].items()
                  if name.startswith(OURS) and "disqualified" in one]
        own = cell["results"].get(OURS, {})
        if "failed" in own and "best_torch" in cell and (cell["size"], cell["batch"]) != mission:
            found.append(f"{where}: {OURS}: {own['failed']}")
    return list(dict.fromkeys(found))
