# SPDX-License-Identifier: MIT
"""A training step of a GPT, an LSTM and a Fourier operator beside PyTorch's: time, peak memory, and operations."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cpu import networks
from benchmarks.cpu.networks import Case
from benchmarks.frameworks.cpu import COMPILED, EAGER
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.workloads import Training

#: Nothing here has channels that could lie last
PEERS = (EAGER, COMPILED)


def cases(quick: bool) -> tuple[Case, ...]:
    """A GPT of 6 layers, 128 wide, on 8 texts of 256 bytes; two LSTMs of 128 on 256 columns of 60 levels; a Fourier
    operator of 4 layers, 32 wide, 12 frequencies each way, on 20 fields of 64 x 64.
    """
    if quick:
        return (Case("GPT", gpt(8, 2, 16), 1), Case("LSTM", lstm(8, 2, 6), 1), Case("FNO", fno(4, 1, 24), 1))
    return (Case("GPT", gpt(128, 8, 256)), Case("GPT, 1 thread", gpt(128, 8, 256), 1),
            Case("LSTM", lstm(128, 256, 60)), Case("LSTM, 1 thread", lstm(128, 256, 60), 1),
            Case("FNO", fno(32, 20, 64)), Case("FNO, 1 thread", fno(32, 20, 64), 1))


def gpt(width: int, batch: int, length: int) -> Training:
    """The next of 256 bytes at each place."""
    return Training("GPT", width, (batch, length), (batch, 256, length), "cross_entropy", words=256)


def lstm(width: int, batch: int, levels: int) -> Training:
    """What changes in each level of a column of air."""
    return Training("LSTM", width, (batch, levels, 6), (batch, levels, 6), "mse")


def fno(width: int, batch: int, side: int) -> Training:
    """A field from a field."""
    return Training("FNO", width, (batch, 1, side, side), (batch, 1, side, side), "mse")


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """All cases, one after the other."""
    return networks.measured("sequences", cases(options.quick), PEERS, options, console)


def tables(document: dict[str, Any]) -> list[Table]:
    """Those of the other networks."""
    return networks.tables(document)
