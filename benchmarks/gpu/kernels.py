# SPDX-License-Identifier: MIT
"""What PyTorch's profiler sees of a call on a GPU, and the programs that print it: `.networks` and `.layers`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu import rates
from benchmarks.gpu.document import clocks
from benchmarks.harness.document import versions
from benchmarks.harness.gpu_device import PACKAGES, skip
from bridge.common.cli import Output
from bridge.common.command_files import check_files

DEVICE = "cuda:0"


def kernels(call: Callable[[], object], calls: int) -> dict[str, list[float]]:
    """Microseconds and launches of each kernel in a call, the longest first.

    Parameters
    ----------
    call : queues its work
    calls : how many are made
    """
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    rows = [(one.key, one.device_time_total / calls, one.count / calls) for one in seen.key_averages()]
    return {name: [round(microseconds, 1), round(count, 1)]
            for name, microseconds, count in sorted(rows, key=lambda row: -row[1]) if microseconds}


def add_output(p: ArgumentParser) -> None:
    """The option --output."""
    p.add_argument("--output", metavar="FILE", type=Path, required=True, help="the JSON, written after each line")


def head(program: str, a: Namespace) -> dict[str, Any]:
    """The begin of a JSON: GPU, driver and versions. Nothing, and one line that says why, where there is no GPU.

    Raises
    ------
    BridgeError
        If the JSON cannot be written.
    """
    check_files([], [("--output", a.output)])
    facts = rates.facts(DEVICE)
    if not facts["usable"]:
        skip(program, facts["why"], Output())
        return {}
    return {"gpu": facts, "clocks": clocks(0), "packages": versions(PACKAGES)}
