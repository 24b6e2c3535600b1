# SPDX-License-Identifier: MIT
"""``python -m tests.helpers.ranks.rank_faults FAULT CONFIG ...``: ``python -m bridge.train CONFIG ...``, in which
something happens to rank 1 at step `STEP`, or momenta are no longer updated on any rank.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from typing import Any

import numpy as np

from bridge.common.errors import FileError
from bridge.data import Batch
from bridge.engine.network.network import Network
from bridge.train import __main__ as program
from bridge.train.team import Team

STEP = 3
FAULTS = ("unreadable", "diverges", "drifts", "signal", "bug")
#: Another one, of all ranks, and the steps before it
STALE, RIGHT_STEPS = "stale_momentum", 8


def plant(fault: str) -> None:
    """Let rank 1 meet it."""
    if fault == STALE:
        _forget_updates()
        return
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


def _forget_updates() -> None:
    usual = Network.update

    def update(self: Network, *arguments: Any, **options: Any) -> None:
        kept = {name: np.array(one) for name, one in self.momenta.items()}
        usual(self, *arguments, **options)
        if self.steps > RIGHT_STEPS:
            for name, one in kept.items():
                self.momenta[name][...] = one

    Network.update = update  # type: ignore[method-assign]


if __name__ == "__main__":
    plant(sys.argv[1])
    sys.exit(program.main(sys.argv[2:]))
