# SPDX-License-Identifier: MIT
"""Start the ranks of a training, or threads that are some to each other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from bridge.train.ranks.communicator import Communicator
from tests import ROOT

#: Seconds that a launch may take
LIMIT = 240
#: So that Open MPI starts more ranks than processors, and for root, as in a container; without the system calls that
#: containers forbid
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def environment(**more: str) -> dict[str, str]:
    """That of a launcher: none of its variables is there yet, in case that the tests are ranks themselves."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI", "PRTE_"))}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | OPEN_MPI | more


def command(launcher: str, count: int, module: str, *arguments: object) -> list[str]:
    """``python -m MODULE ARGUMENTS`` on so many ranks; skips the test where the launcher is not there."""
    given = list(map(str, arguments))
    if launcher == "none":
        return [sys.executable, "-m", module, *given]
    if launcher == "torch":
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "-m",
                module, *given]
    if shutil.which("mpirun") is None:
        pytest.skip("skipped, because mpirun is not on the search path")
    pytest.importorskip("mpi4py")
    return ["mpirun", "-n", str(count), sys.executable, "-m", module, *given]


def launch(launcher: str, count: int, module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(command(launcher, count, module, *arguments), cwd=ROOT, env=environment(), text=True,
                          capture_output=True, timeout=LIMIT)


def start(launcher: str, count: int, output: Path, module: str, *arguments: object) -> subprocess.Popen[str]:
    """Start it; what it prints goes to a file."""
    with output.open("w", encoding="utf-8") as file:
        return subprocess.Popen(command(launcher, count, module, *arguments), cwd=ROOT,
                                env=environment(RANKS_OF=str(output)), text=True, stdout=file, stderr=file)


def process(output: Path, rank: int) -> int | None:
    """The number of a rank's process among those that `start` has started, None where it is not there."""
    for folder in Path("/proc").iterdir():
        try:
            found = dict(part.split("=", 1) for part in (folder / "environ").read_text("utf-8", "replace").split("\0")
                         if "=" in part)
        except (OSError, ValueError):
            continue
        mine = found.get("OMPI_COMM_WORLD_RANK", found.get("RANK"))
        if found.get("RANKS_OF") == str(output) and mine == str(rank):
            return int(folder.name)
    return None


class _Thread(Communicator):
    """A rank that is a thread; all of them share a table and meet at a barrier."""

    def __init__(self, rank: int, size: int, table: dict[int, np.ndarray], barrier: threading.Barrier) -> None:
        self.rank, self.size, self._table, self._barrier = rank, size, table, barrier

    def _all(self, sent: np.ndarray) -> list[np.ndarray]:
        assert sent.dtype == np.uint8
        self._table[self.rank] = sent.copy()
        self._barrier.wait()
        found = [self._table[rank] for rank in range(self.size)]
        self._barrier.wait()
        return found

    def gather(self, sent: np.ndarray) -> np.ndarray:
        return np.stack(self._all(sent))

    def exchange(self, sent: np.ndarray) -> np.ndarray:
        return np.stack([one[self.rank] for one in self._all(sent)])

    def broadcast(self, array: np.ndarray) -> None:
        array[...] = self._all(array)[0]

    def abort(self, code: int) -> NoReturn:
        self._barrier.abort()
        raise SystemExit(code)


def in_threads(size: int, work: Callable[[Communicator], Any]) -> list[Any]:
    """What work gives on each of so many ranks, or the exception that it raises."""
    table, barrier, found = dict[int, np.ndarray](), threading.Barrier(size, timeout=20), [None] * size

    def run(rank: int) -> None:
        try:
            found[rank] = work(_Thread(rank, size, table, barrier))
        except Exception as error:
            found[rank] = error  # type: ignore[call-overload]
            if isinstance(error, AssertionError | threading.BrokenBarrierError):
                barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return found
