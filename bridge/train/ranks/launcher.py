# SPDX-License-Identifier: MIT
"""Who has started this process, and how its ranks speak with each other."""

from __future__ import annotations

import os
from collections.abc import Mapping

from bridge.common.errors import ArgumentError
from bridge.train.ranks.communicator import Alone, Communicator
from bridge.train.ranks.mpi import Mpi
from bridge.train.ranks.torch_distributed import TorchDistributed

#: Who carries messages
KINDS = ("none", "mpi", "torch")
#: Variables with the number of ranks: of Open MPI, of MPICH and Intel MPI, of MVAPICH
MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
#: All of them are set by torchrun
TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def found(environment: Mapping[str, str]) -> tuple[str, int | None]:
    """Return what a launcher's variables say: one of `KINDS`, and the number of ranks.

    Raises
    ------
    ArgumentError
        If there are those of two launchers.

    Examples
    --------
    >>> found({"OMPI_COMM_WORLD_SIZE": "4"}), found({})
    (('mpi', 4), ('none', 1))
    """
    sizes = [int(environment[name]) for name in MPI_SIZES if environment.get(name, "").isdigit()]
    torchrun = all(name in environment for name in TORCHRUN)
    if sizes and torchrun:
        raise ArgumentError("ranks: the variables of an MPI launcher and of torchrun are both there, expected --ranks "
                            "mpi or --ranks torch")
    if torchrun:
        return "torch", int(environment["WORLD_SIZE"])
    return ("mpi", sizes[0]) if sizes else ("none", 1)


def join(kind: str | None = None) -> Communicator:
    """Return all ranks of this training.

    Parameters
    ----------
    kind : one of `KINDS`, or None
        None: as the launcher's variables say. A single rank imports nothing.

    Raises
    ------
    ArgumentError
        If `kind` is none of them, or None and there are two launchers.
    BridgeError
        If a package is missing, or the ranks do not find each other.

    Examples
    --------
    >>> join("none").size
    1
    """
    if kind not in (None, *KINDS):
        raise ArgumentError(f"ranks: {kind!r}, expected one of {', '.join(KINDS)}")
    if kind is None:
        kind, size = found(os.environ)
        kind = kind if size != 1 else "none"
    if kind == "torch":
        return TorchDistributed()
    if kind == "mpi":
        sizes = [os.environ[name] for name in MPI_SIZES if os.environ.get(name, "").isdigit()]
        return Mpi(int(sizes[0]) if sizes else None)
    return Alone()
