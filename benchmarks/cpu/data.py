# SPDX-License-Identifier: MIT
"""Batches from files: bytes a second, beside dd on the same files, and the memory that it takes whatever their size.

Once with the files in the system's cache and once from the disk; dd is one process, batches are read ahead by two
threads. dd reads into one buffer: of 1 MiB, which stays in a core's cache, or as large as an image, so that the bytes
go through the memory as those of a batch must. Beside the time stands the processors' time, which others on the machine
change less. The memory is that of a process of its own, over stacks of 259 GB that take no room on the disk. Beside
steps of one thread another one decompresses batches: how much of the shorter of both is hidden behind the other.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks.cpu.tools.runs import call
from benchmarks.cpu.tools.worker import memory
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.interleaved import warm_summaries
from benchmarks.harness.tables import milliseconds, optional, table, times
from bridge import Conv2d, Model, Network, Relu
from bridge.common.progress import stage
from bridge.common.threads import keep_freed_memory
from bridge.data import Batches, Consecutive, Pairs
from bridge.data.batches import Batch

#: Of dd's throughput, where crops are whole images
WANTED = 0.8
#: Of the shorter of steps and reading, each on a processor of its own
HIDDEN = 0.8
STEPS, BATCHES, BOTH = "steps alone", "batches alone", "steps on batches that are read meanwhile"
#: MiB that a process may grow by, after its first steps
MOST_GROWTH = 16.0
#: Of the stack that does not fit anywhere
LARGE_COUNT, LARGE_SIZE = 3860, 4096
DD, DD_KEPT, COLD_DD = "dd, into 1 MiB", "dd, into an image", "dd, from the disk"
NPY, MRC = "npy, whole images", "MRC, whole images"
COLD_NPY = "npy, whole images, from the disk"
NORMALIZED = "npy, whole images, normalised"
ORIENTED = "npy, whole images, normalised, flipped and turned"
QUARTERS = "npy, crops of a quarter, four of each image"
#: What each is a share of
BASE = {DD_KEPT: DD, NPY: DD, MRC: DD, COLD_NPY: COLD_DD, NORMALIZED: DD, ORIENTED: DD, QUARTERS: DD}
#: For which a share was promised
PROMISED = (NPY, MRC, COLD_NPY)


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """Times in a process with both processors, the memory in another one."""
    with stage(console, "data"):
        found = call("benchmarks.cpu.data:time_batches", 2, size=64 if options.quick else 4096,
                     count=2 if options.quick else 8, rounds=options.rounds(9))
        found["memory"] = {kind: call("benchmarks.cpu.data:growth", 2, kind=kind, steps=20 if options.quick else 500)
                           for kind in ("npy", "h5")}
        found["beside_steps"] = call("benchmarks.cpu.data:beside_steps", 2, size=64 if options.quick else 1024,
                                     steps=2 if options.quick else 16, rounds=options.rounds(9))
    median = {name: one["median"] for name, one in found["results"].items()}
    found["ratios"] = {name: median[base] / median[name] for name, base in BASE.items()}
    found["processor_ratios"] = {name: found["processor_seconds"][base] / found["processor_seconds"][name]
                                 for name, base in BASE.items()}
    shares = [Goal(f"data: {name}, of dd's throughput", found["ratios"][name], WANTED, unit="") for name in PROMISED]
    growths = [Goal(f"data: growth of the memory over 259 GB of {kind}", one["growth"] / 2**20, MOST_GROWTH,
                    at_least=False, unit="MiB") for kind, one in found["memory"].items()]
    overlap = Goal("data: of the shorter of steps and reading, hidden behind the other",
                   found["beside_steps"]["hidden"], HIDDEN, unit="")
    return found | {"threads": 2}, [*shares, *growths, overlap]


def time_batches(size: int, count: int, rounds: int) -> dict[str, Any]:
    """Everything interleaved, in the process that is asked.

    Parameters
    ----------
    size, count : pixels of a row and of a column, and images, of inputs and of targets, float32
    rounds : runs

    Returns
    -------
    results : seconds to deliver as many bytes as the files have, by name
    processor_seconds : medians of the processors' time for the same, of this process and dd
    bytes : of the files
    """
    # As the program that trains does
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        npy, mrc = (_written(folder, suffix, size, count) for suffix in ("npy", "mrc"))
        plain: dict[str, Any] = {"flips": False, "rotations": False}
        scaled = {"normalization": (0.5, 2.0)}
        work: dict[str, Callable[[], object]] = {
            DD: partial(_dd, npy, 1 << 20), DD_KEPT: partial(_dd, npy, 4 * size**2),
            NPY: partial(_deliver, npy, size, plain), MRC: partial(_deliver, mrc, size, plain),
            NORMALIZED: partial(_deliver, npy, size, plain | scaled), ORIENTED: partial(_deliver, npy, size, scaled),
            QUARTERS: partial(_deliver, npy, size // 2, plain | {"crops": 4})}
        used: dict[str, list[float]] = {}
        timed = {name: partial(_seconds, function, used.setdefault(name, [])) for name, function in work.items()}
        results = warm_summaries(timed, rounds)
        cold = {name: partial(_cold_seconds, npy, work[warm], used.setdefault(name, []))
                for name, warm in ((COLD_DD, DD), (COLD_NPY, NPY))}
        results |= warm_summaries(cold, rounds)
    return {"size": size, "count": count, "bytes": 2 * count * size * size * 4, "results": results,
            "processor_seconds": {name: statistics.median(times) for name, times in used.items()}}


def beside_steps(size: int, steps: int, rounds: int) -> dict[str, Any]:
    """Let one thread train while another one reads ahead, and each of them alone, interleaved.

    Parameters
    ----------
    size, steps : pixels of a row and of a column of compressed images, and how many pairs of them
    rounds : runs

    Returns
    -------
    results : seconds for all of them, by name
    hidden : of the shorter of steps and reading, what it does not add to the longer: 1 is all
    pause : seconds for which another thread of Python stood still during a step, at most, as a share of the step
    """
    import tifffile

    keep_freed_memory()
    rng = np.random.default_rng(0)
    images = rng.integers(0, 200, (2 * steps, size, size)).astype(np.float32)
    layers = (Conv2d("1", 1, 8, (3, 3), padding=(1, 1)), Relu("r"), Conv2d("2", 8, 1, (3, 3), padding=(1, 1)))
    net = Network(Model(layers), keep_activations=False)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        path = Path(folder, "images.tif")
        tifffile.imwrite(path, images, compression="zlib", photometric="minisblack")
        batches = Batches(Consecutive(path), 1, (size, size), flips=False, rotations=False)

        def stream() -> Iterator[Batch]:
            return batches.stream(0, steps, depth=2, threads=1)

        held = next(iter(stream()))

        def train() -> None:
            for batch in stream():
                net.step(batch.input, batch.target, lr=1e-9)

        work: dict[str, Callable[[], object]] = {
            STEPS: lambda: [net.step(held.input, held.target, lr=1e-9) for _ in range(steps)],
            BATCHES: lambda: [None for _ in stream()], BOTH: train}
        results = warm_summaries({name: partial(_seconds, one, []) for name, one in work.items()}, rounds)
        pause = _pause(lambda: net.step(held.input, held.target, lr=1e-9))
    alone = [results[name]["median"] for name in (STEPS, BATCHES)]
    return {"size": size, "steps": steps, "results": results, "pause": pause,
            "hidden": (sum(alone) - results[BOTH]["median"]) / min(alone)}


def _pause(step: Callable[[], object]) -> float:
    """The longest time in which another thread did not run, of that of the step."""
    ends: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.001):
            ends.append(time.perf_counter())

    other = threading.Thread(target=tick)
    other.start()
    begin = time.perf_counter()
    step()
    end = time.perf_counter()
    done.set()
    other.join()
    seen = [begin, *(one for one in ends if begin < one < end), end]
    return max(later - earlier for earlier, later in pairwise(seen)) / (end - begin)


def growth(kind: str, steps: int) -> dict[str, Any]:
    """Return what this process has in memory, in bytes, and by how much it grows after the first tenth of some steps.

    Parameters
    ----------
    kind : "npy", of which all but the header is a hole in the file, or "h5", compressed chunks that were never written
    steps : batches of 2 pairs of 512 x 512, with normalisation
    """
    keep_freed_memory()
    shape = (LARGE_COUNT, LARGE_SIZE, LARGE_SIZE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"large.{kind}")
        if kind == "npy":
            with path.open("wb") as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                file.truncate(file.tell() + 4 * LARGE_COUNT * LARGE_SIZE**2)
        else:
            with h5py.File(path, "w") as file:
                file.create_dataset("images", shape, np.float32, chunks=(1, 512, 512), compression="gzip")
        used = os.stat(path).st_blocks * 512
        batches = Batches(Consecutive(path), 2, (512, 512), normalization=(0.0, 1.0))
        seen = [memory("VmRSS") for _ in batches.stream(0, steps)]
    first = max(1, steps // 10)
    return {"steps": steps, "logical_bytes": 4 * LARGE_COUNT * LARGE_SIZE**2, "disk_bytes": used,
            "at_first": max(seen[:first]), "at_last": seen[-1], "growth": max(seen[first:]) - max(seen[:first])}


def _written(folder: Path, suffix: str, size: int, count: int) -> tuple[Path, Path]:
    """Inputs and targets, on the disk."""
    made = folder / f"inputs.{suffix}", folder / f"targets.{suffix}"
    images = np.random.default_rng(0).standard_normal((count, size, size), dtype=np.float32)
    for path in made:
        if suffix == "npy":
            np.save(path, images)
        else:
            import mrcfile

            with mrcfile.new(path) as file:
                file.set_data(images)
                file.set_image_stack()
        _fsync(path)
    return made


def _fsync(path: Path) -> None:
    """Pages that are not on the disk cannot be dropped."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _dd(paths: tuple[Path, Path], block: int) -> None:
    for path in paths:
        subprocess.run(["dd", f"if={path}", "of=/dev/null", f"bs={block}"], check=True, stderr=subprocess.DEVNULL)


def _deliver(paths: tuple[Path, Path], crop: int, settings: dict[str, Any]) -> None:
    """An epoch, in batches of one pair."""
    with Pairs(*paths) as pairs:
        batches = Batches(pairs, 1, (crop, crop), **settings)
        for batch in batches.stream(0, batches.samples):
            assert batch.input.shape[2:] == (crop, crop)


def _seconds(function: Callable[[], object], used: list[float]) -> float:
    """Of one call; what the processors had to do for it is added to `used`."""
    before, begin = _processor_time(), time.perf_counter()
    function()
    seconds = time.perf_counter() - begin
    used.append(_processor_time() - before)
    return seconds


def _processor_time() -> float:
    """Of this process and of those that it has started."""
    return sum(one.ru_utime + one.ru_stime for one in map(resource.getrusage, (resource.RUSAGE_SELF,
                                                                              resource.RUSAGE_CHILDREN)))


def _cold_seconds(paths: tuple[Path, Path], function: Callable[[], object], used: list[float]) -> float:
    """After the system has forgotten these files, and no others; it may keep what other processes use."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
    return _seconds(function, used)


def tables(document: dict[str, Any]) -> list[Table]:
    """A row for each way, and for the memory of each kind of stack."""
    made = table(f"batches from 2 x {document['count']} images of {document['size']}², float32", "way", "GB/s",
                 "median ms", "quartiles", "of dd's throughput", "processors' ms", "dd's over it")
    for name, one in document["results"].items():
        made.add_row(name, f"{document['bytes'] / one['median'] / 1e9:.2f}", *times(one),
                     optional(document["ratios"].get(name)), milliseconds(document["processor_seconds"][name]),
                     optional(document["processor_ratios"].get(name)))
    sizes = table("memory over a stack of 259 GB", "kind", "steps", "MiB at first", "MiB at last", "growth")
    for kind, one in document["memory"].items():
        mebibytes = (f"{one[key] / 2**20:.1f}" for key in ("at_first", "at_last", "growth"))
        sizes.add_row(kind, str(one["steps"]), *mebibytes)
    beside = document["beside_steps"]
    overlap = table(f"{beside['steps']} steps on one processor, {beside['size']}² of compressed TIFF read on another",
                    "work", "median ms", "quartiles")
    for name, one in beside["results"].items():
        overlap.add_row(name, *times(one))
    overlap.add_row("of the shorter, hidden behind the other", f"{beside['hidden']:.2f}", "")
    overlap.add_row("longest pause of another thread, in a step", f"{beside['pause']:.2f} of it", "")
    return [made, sizes, overlap]
