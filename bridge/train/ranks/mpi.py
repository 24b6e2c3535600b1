# SPDX-License-Identifier: MIT
"""Ranks that an MPI launcher has started, by mpi4py."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from bridge.common.errors import EngineError
from bridge.common.optional_packages import require
from bridge.train.ranks.communicator import Communicator, RankError


class Mpi(Communicator):
    """All processes of MPI's world.

    Parameters
    ----------
    size : int or None
        How many the launcher says there are; None: it says nothing.

    Raises
    ------
    BridgeError
        If mpi4py is not installed.
    EngineError
        If it finds no MPI library, or another one than the launcher's.
    """

    def __init__(self, size: int | None = None) -> None:
        require("mpi4py", "an MPI launcher has started this process")
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise EngineError(f"mpi4py finds no MPI library ({error}), expected that of the launcher, mpirun") from None
        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        if size is not None and size != self.size:
            raise EngineError(f"mpi4py: a world of {self.size} with {MPI.Get_library_version().split(',')[0]}, and the "
                              f"launcher has started {size}; expected mpi4py to use the launcher's MPI library")

    def gather(self, sent: np.ndarray) -> np.ndarray:
        """Return what every rank has sent."""
        received = np.empty((self.size, sent.size), np.uint8)
        self._call("Allgather", sent, received)
        return received

    def exchange(self, sent: np.ndarray) -> np.ndarray:
        """Return what every rank has sent to this one."""
        received = np.empty_like(sent)
        self._call("Alltoall", sent, received)
        return received

    def broadcast(self, array: np.ndarray) -> None:
        """Give all ranks what rank 0 has."""
        self._call("Bcast", array)

    def abort(self, code: int) -> NoReturn:
        """End all processes of the world."""
        self._world.Abort(code)
        raise SystemExit(code)

    def _call(self, name: str, *arrays: np.ndarray) -> None:
        try:
            getattr(self._world, name)(*arrays)
        except self._mpi.Exception as error:
            raise RankError(f"another rank does not answer: MPI says {error}") from None
