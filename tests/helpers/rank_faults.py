# SPDX-License-Identifier: MIT
"""``python -m tests.helpers.rank_faults FAULT CONFIG ...``: ``python -m bridge.train CONFIG ...``, in which something
happens to rank 1 at step `STEP`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from typing import Any

from bridge.common.errors import FileError
from bridge.data import Batch
from bridge.train import __main__ as program
from bridge.train.team import Team

STEP = 3
FAULTS = ("unreadable", "diverges", "drifts", "signal", "bug")


def plant(fault: str) -> None:
    """Let rank 1 meet it."""
    usual = Team.stream

    def stream(self: Team, first: int, stop: int) -> Generator[Batch, None, None]:
        for batch in usual(self, first, stop):
            if self.ranks.rank == 1 and batch.step == STEP:
                _meet(fault, self, batch)
            yield batch

    Team.stream = stream  # type: ignore[method-assign]


def _meet(fault: str, team: Team, batch: Any) -> None:
    if fault == "unreadable":
        raise FileError("movie.mrcs: not there any more")
    if fault == "diverges":
        batch.target[...] = 3e38
    elif fault == "drifts":
        team.network.parameters[next(iter(team.network.parameters))][...] += 1e-6
    elif fault == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
    elif fault == "bug":
        raise AssertionError("nobody has thought of this")


if __name__ == "__main__":
    plant(sys.argv[1])
    sys.exit(program.main(sys.argv[2:]))
