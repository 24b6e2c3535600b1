# SPDX-License-Identifier: MIT
"""Ranks that torchrun has started, by torch.distributed with gloo: between processors, whatever computes the steps."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

import numpy as np

from bridge.common.errors import EngineError
from bridge.common.optional_packages import require
from bridge.train.ranks.communicator import Communicator, RankError

#: Rank of who tells what everybody knows
NOBODY = -1
#: How long a rank waits for the others, before it takes them for gone: longer than any step or validation
PATIENCE = timedelta(minutes=30)


class TorchDistributed(Communicator):
    """All processes of a torchrun.

    Raises
    ------
    BridgeError
        If PyTorch is not installed.
    EngineError
        If the processes do not find each other.
    """

    def __init__(self) -> None:
        require("torch", "torchrun has started this process")
        import torch
        from torch import distributed

        self._distributed, self._tensor, self._lost = distributed, torch.from_numpy, False
        try:
            distributed.init_process_group("gloo", timeout=PATIENCE)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"torch.distributed: {error}, expected the variables of torchrun") from None
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def gather(self, sent: np.ndarray) -> np.ndarray:
        """Return what every rank has sent."""
        received = np.empty((self.size, sent.size), np.uint8)
        self._call(lambda: self._distributed.all_gather(list(self._tensor(received)), self._tensor(sent)))
        return received

    def exchange(self, sent: np.ndarray) -> np.ndarray:
        """Return what every rank has sent to this one."""
        received = np.empty_like(sent)
        self._call(lambda: self._distributed.all_to_all_single(self._tensor(received), self._tensor(sent)))
        return received

    def broadcast(self, array: np.ndarray) -> None:
        """Give all ranks what rank 0 has."""
        self._call(lambda: self._distributed.broadcast(self._tensor(array), 0))

    def abort(self, code: int) -> NoReturn:
        """End this process without a farewell, which the others would have to answer; torchrun ends them."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)

    def leave(self) -> None:
        """Close the connections."""
        self._distributed.destroy_process_group()

    def end(self, code: int) -> None:
        """Leave at the end of the process."""
        if self._lost:
            self.abort(code)
        super().end(code)

    def _call(self, function: Callable[[], object]) -> None:
        try:
            function()
        except RuntimeError as error:
            # Which process has ended, and how, torchrun tells; of one that hangs it does not know
            self._lost, words = True, " ".join(str(error).split())
            self.settle(0 if "timed out" in words.lower() else NOBODY)
            raise RankError(f"another rank does not answer: {words}") from None
