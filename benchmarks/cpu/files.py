# SPDX-License-Identifier: MIT
"""HDF5: a full fixture read and written by this project, beside plain h5py on the same tensors and file options.

Three ways that tensors take: the reference's writer, the comparison's reader, and ``cnn_step``, which reads a fixture
and writes a result. Of the last the same training steps without files are subtracted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cpu.tools.runs import call
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.interleaved import warm_summaries
from benchmarks.harness.tables import optional, table, times
from bridge import Network
from bridge.common.progress import stage
from bridge.engine.library import extension
from bridge.exchange.file import ExchangeFile
from bridge.validate.workspace import workspace

Tensors = dict[str, np.ndarray]
#: What h5py is told; that of `reference.files.writer`
FILE_OPTIONS = {"libver": ("earliest", "v110")}
#: Of h5py's throughput
WANTED = 0.8
#: Tensors of an image's size that a default step keeps, in images; fixture, result, and copies of both
IMAGES_KEPT = 140 * 4
WRITE, PLAIN_WRITE = "reference.writer", "h5py, the same write"
READ, PLAIN_READ = "bridge.exchange", "h5py, the same read"
RUN, STEPS, PLAIN_RUN = "cnn_step, whole", "cnn_step, without files", "h5py, cnn_step's tensors"


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """In a process of its own with both processors."""
    threads = 1 if options.quick else 2
    with stage(console, "files"):
        found = call("benchmarks.cpu.files:time_files", threads, size=48 if options.quick else 1024,
                     rounds=options.rounds(5))
    found["ratios"] = throughputs(found["results"])
    return found | {"threads": threads}, [
        Goal(f"files: {name}, of h5py's throughput", found["ratios"].get(name), WANTED, unit="")
        for name in (WRITE, READ, RUN)]


def throughputs(results: dict[str, Any]) -> dict[str, float]:
    """Ours over h5py's: the quotient of the times of h5py and of us. Without `RUN` where its files take no time.

    Examples
    --------
    >>> times = dict.fromkeys((PLAIN_WRITE, PLAIN_READ, PLAIN_RUN), {"median": 1.0})
    >>> times |= {WRITE: {"median": 2.0}, READ: {"median": 1.0}, RUN: {"median": 5.0}, STEPS: {"median": 3.0}}
    >>> throughputs(times)
    {'reference.writer': 0.5, 'bridge.exchange': 1.0, 'cnn_step, whole': 0.5}
    """
    median = {name: one["median"] for name, one in results.items()}
    found = {WRITE: median[PLAIN_WRITE] / median[WRITE], READ: median[PLAIN_READ] / median[READ]}
    files_only = median[RUN] - median[STEPS]
    return found | {RUN: median[PLAIN_RUN] / files_only} if files_only > 0 else found


def time_files(size: int, rounds: int) -> dict[str, Any]:
    """Everything interleaved, in the process that is asked.

    Parameters
    ----------
    size : of the fixture's images in pixels; a batch of 2, one step of the default network
    rounds : runs

    Returns
    -------
    results : seconds, by name
    """
    with workspace(None, IMAGES_KEPT * 2 * size * size * 4) as folder:
        work, content = _work(folder, size)
        timed = {name: partial(_seconds, function, folder) for name, function in work.items()}
        return content | {"size": size, "in_memory": str(folder).startswith("/dev/shm"),
                          "results": warm_summaries(timed, rounds)}


def _seconds(function: Callable[[], object], folder: Path) -> float:
    """Of one call, where nothing new is in the folder."""
    for path in folder.glob("new*"):
        path.unlink()
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def _work(folder: Path, size: int) -> tuple[dict[str, Callable[[], object]], dict[str, Any]]:
    """Functions by name, and how many bytes they read and write."""
    # Only here: the process that draws tables needs no PyTorch
    from reference.export import export
    from reference.settings import ExportSettings

    fixture, result, new = folder / "fixture.h5", folder / "result.h5", folder / "new.h5"
    settings = ExportSettings(height=size, width=size, steps=1, oracle_steps=0)
    export(fixture, settings)
    extension.run_file(fixture, result)
    whole, written = _tensors(fixture), _tensors(result)
    given = [name for name in whole if name.startswith(("batches/", "steps/0/weights/"))]
    sgd = {"lr": settings.lr}

    def plain_run() -> None:
        _read(fixture, given)
        _write(new, written)

    content = {"bytes": {WRITE: _bytes(whole), READ: _bytes(whole),
                         RUN: _bytes(written) + _bytes({name: whole[name] for name in given})}}
    return {
        WRITE: _reference_writer(new, whole), PLAIN_WRITE: lambda: _write(new, whole),
        READ: lambda: _exchange_read(fixture, whole), PLAIN_READ: lambda: _read(fixture, list(whole)),
        RUN: lambda: extension.run_file(fixture, new),
        STEPS: lambda: Network.from_file(fixture).step(whole["batches/0/input"], whole["batches/0/target"], **sgd),
        PLAIN_RUN: plain_run,
    }, content


def _bytes(tensors: Tensors) -> int:
    return sum(one.nbytes for one in tensors.values())


def _tensors(path: Path) -> Tensors:
    """All tensors of a file."""
    with ExchangeFile(path) as file:
        names = [name for name in file.datasets() if name != "model"]
        return {name: file.read(name, file.shape(name)) for name in names}


def _reference_writer(path: Path, tensors: Tensors) -> Callable[[], None]:
    import torch

    from reference.files.writer import new_file, write_tensor

    torch_tensors = {name: torch.from_numpy(one) for name, one in tensors.items()}

    def write() -> None:
        with new_file(path) as file:
            for name, one in torch_tensors.items():
                write_tensor(file, name, one)

    return write


def _exchange_read(path: Path, tensors: Tensors) -> None:
    with ExchangeFile(path) as file:
        for name, one in tensors.items():
            file.read(name, one.shape)


def _write(path: Path, tensors: Tensors) -> None:
    """To the disk, as ours."""
    with h5py.File(path, "w", **FILE_OPTIONS) as file:
        for name, one in tensors.items():
            file.create_dataset(name, data=one)
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(path: Path, names: list[str]) -> None:
    with h5py.File(path, "r") as file:
        for name in names:
            file[name][()]


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each way, h5py's below it."""
    where = "in memory" if document["in_memory"] else "on a disk"
    made = table(f"files of 2 x {document['size']}², {where}", "way", "MB", "median ms", "quartiles",
                 "of h5py's throughput")
    ways = ((WRITE, PLAIN_WRITE), (READ, PLAIN_READ), (RUN, STEPS, PLAIN_RUN))
    for name in (one for way in ways for one in way):
        one, ratio = document["results"][name], document["ratios"].get(name)
        size = document["bytes"].get(name)
        made.add_row(name, "" if size is None else f"{size / 1e6:.1f}", *times(one),
                     optional(ratio))
    return [made]
