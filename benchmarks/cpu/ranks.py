# SPDX-License-Identifier: MIT
"""A training step on several ranks: what adding up its gradients takes against their bytes, and what follows for many.

Measured on this machine, between two processes under mpirun: the sum of `bridge.train.ranks.sums`, beside MPI's own
allreduce; steps of `bridge.train.Trainer` on one rank with one thread and with two, and on two ranks. From the least
times of these a model computes steps on many ranks, which nobody has measured: processes that wait for each other are
made much slower by what else is at work on their processors.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import bridge
from benchmarks.harness import processors
from benchmarks.harness.document import Goal, Options
from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.tables import milliseconds, skipped, table, times
from benchmarks.harness.timing import summary
from benchmarks.harness.workloads import Net
from bridge.common.progress import stage
from bridge.common.threads import keep_freed_memory
from bridge.data import Batches, Pairs
from bridge.train import Trainer, TrainSettings
from bridge.train.ranks.communicator import Alone
from bridge.train.ranks.launcher import join
from bridge.train.ranks.mpi import Mpi
from bridge.train.ranks.sums import RankParts, add_up

OURS, ALLREDUCE = "add_up", "MPI's allreduce"
#: Bytes of the gradients
SIZES = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23)
STEPS = {"1 rank, 1 thread": (1, 1), "1 rank, 2 threads": (1, 2), "2 ranks, 1 thread each": (2, 1)}
READING = "reading"
#: How many ranks the model is asked for, and the images that they share: one each at the most
MANY, IMAGES = (1, 2, 4, 8, 16, 32, 64, 128), 128
#: Networks between machines, nothing of which is measured here: seconds of a message and of a byte, which are added to
#: those of two processes
ASSUMED = {"25 Gbit/s Ethernet": (2e-5, 1 / 2.5e9)}


def measure(options: Options, console: Console) -> tuple[dict[str, Any], list[Goal]]:
    """Both processors; without mpirun and mpi4py everything is skipped."""
    missing = ["mpirun"] * (shutil.which("mpirun") is None) + ["mpi4py"] * (find_spec("mpi4py") is None)
    missing += ["a second processor"] * (len(processors.available()) < 2)
    if missing:
        return {"results": {OURS: {"skipped": f"{missing[0]} is not there"}}, "threads": 2}, []
    sizes, net = SIZES[:2] if options.quick else SIZES, Net(batch=4, size=32 if options.quick else 512)
    with stage(console, "ranks: sums"):
        sums = _ranks(2, 1, f"time_sums({sizes}, {options.rounds(15)})")
    with stage(console, "ranks: steps"), tempfile.TemporaryDirectory() as folder:
        _write_images(Path(folder), net)
        steps: dict[str, list[float]] = {name: [] for name in (*STEPS, READING)}
        for _ in range(options.rounds(3)):
            for name, (ranks, threads) in STEPS.items():
                for key, seconds in _ranks(ranks, threads, f"time_steps({folder!r}, {net.size}, 6)").items():
                    if key == "step" or ranks == threads == 1:
                        steps[name if key == "step" else READING].append(seconds)
    results = {f"{name}, {size} bytes": one for name, found in sums.items() for size, one in found.items()}
    results |= {name: summary(seconds) for name, seconds in steps.items()}
    latency, per_byte = fitted({int(size): one["least"] for size, one in sums[OURS].items()})
    return {"results": results, "size": net.size, "batch": net.batch, "threads": 2,
            "fitted": {"latency": latency, "seconds_per_byte": per_byte}}, []


def fitted(seconds: dict[int, float]) -> tuple[float, float]:
    """Return the seconds of a message and those of a byte, from times of sums on two ranks by their bytes.

    >>> fitted({1024: 2e-5, 1 << 20: 2e-5 + 1e-9 * 2**20})
    (1e-05, 1e-09)
    """
    least, most = min(seconds), max(seconds)
    latency = seconds[least] / 2
    return latency, max((seconds[most] - 2 * latency) / most, 0.0)


def predicted(ranks: int, compute: float, reading: float, size: int, latency: float, per_byte: float) -> float:
    """Return the seconds of a step on many ranks, each on a processor of its own, which share one batch.

    Forward and backward are divided by the ranks. A sum is two rounds in which each rank sends ``size / ranks`` bytes
    to every other one. Reading goes on meanwhile, and counts where it takes longer; files are as fast for many as for
    one.

    Parameters
    ----------
    compute, reading : seconds of a step on one rank
    size : bytes of the gradients
    latency, per_byte : seconds of a message, and of a byte that is sent and added up

    Examples
    --------
    >>> predicted(1, 0.5, 0.1, 1000, 1e-5, 1e-9)
    0.5
    >>> round(predicted(4, 0.4, 0.1, 10**6, 1e-5, 1e-9), 6)
    0.10156
    """
    rounds = 2 * (ranks - 1)
    return max(compute / ranks + rounds * (latency + size / ranks * per_byte), reading / ranks)


def _ranks(ranks: int, threads: int, call: str) -> dict[str, Any]:
    """What a function of this module prints on rank 0."""
    command = [sys.executable, "-c", f"from benchmarks.cpu.ranks import *; {call}"]
    variables = processors.environment(threads) | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_hwloc_base_binding_policy": "none",
        # Who waits does not take a processor from who is at work, if they have to share one
        "OMPI_MCA_mpi_yield_when_idle": "1"}
    if ranks > 1:
        command = ["mpirun", "-n", str(ranks), *command]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode:
        raise BenchmarkError(f"{call} on {ranks} ranks: {(done.stderr.strip() or 'nothing').splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def time_sums(sizes: tuple[int, ...], rounds: int) -> None:
    """Print the times of both sums by their bytes; called on all ranks."""
    # As the program that trains does
    keep_freed_memory()
    ranks = join("mpi")
    assert isinstance(ranks, Mpi)
    parts, found = RankParts((1,) * ranks.size, (1.0,) * ranks.size, float(ranks.size)), {OURS: {}, ALLREDUCE: {}}
    for size in sizes:
        mine, total = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
        ways: dict[str, Callable[[], object]] = {
            OURS: lambda mine=mine: add_up(ranks, [{"w": mine}], parts, np.zeros(2)),
            ALLREDUCE: lambda mine=mine, total=total: ranks._world.Allreduce(mine, total)}
        calls = max(1, min(20, (1 << 24) // size))
        for name, way in ways.items():
            way()
            found[name][size] = summary([_seconds(way, calls, ranks) for _ in range(rounds)])
    if ranks.rank == 0:
        print(json.dumps(found))


def _seconds(way: Callable[[], object], calls: int, ranks: Mpi) -> float:
    ranks.gather(np.zeros(1, np.uint8))
    begin = time.perf_counter()
    for _ in range(calls):
        way()
    return (time.perf_counter() - begin) / calls


def time_steps(folder: str, size: int, steps: int) -> None:
    """Print the median time of a step after the first, and of reading its batch; called on all ranks."""
    ranks = join()
    # Not at the top: the module belongs to the worker's side
    from benchmarks.frameworks.bridge_cpu import network_of

    network = network_of(Net(batch=4, size=size))
    batches = Batches(Pairs(f"{folder}/inputs.npy", f"{folder}/targets.npy"), 4, (size, size), flips=False,
                      rotations=False, crops=2)
    settings, ends = TrainSettings(steps=steps + 1, optimizer=bridge.Sgd(2.0**-10)), list[float]()
    Trainer(network, batches, settings, report=lambda record: ends.append(time.perf_counter()), ranks=ranks).run()
    begin = time.perf_counter()
    for step in range(steps):
        batches.at(step)
    reading = (time.perf_counter() - begin) / steps
    if ranks.rank == 0:
        print(json.dumps({"step": float(np.median(np.diff(ends))), "reading": reading}))
    if not isinstance(ranks, Alone):
        ranks.end(0)


def _write_images(folder: Path, net: Net) -> None:
    rng = np.random.default_rng(0)
    for name in ("inputs", "targets"):
        np.save(folder / f"{name}.npy", rng.standard_normal((8, net.size, net.size), dtype=np.float32))


def tables(document: dict[str, Any]) -> list[Table]:
    """What was measured, and what the model says."""
    results = document["results"]
    made = table("sums between two processes, and steps on two processors", "what", "median ms", "quartiles", "least")
    for name, one in results.items():
        if "median" in one:
            made.add_row(name, *times(one), milliseconds(one["least"]))
    if reason := skipped(results):
        made.caption = reason
        return [made]
    return [made, _model(document)]


def _model(document: dict[str, Any]) -> Table:
    """Seconds of a step and its efficiency, for this network and one of a hundred thousand times the parameters."""
    near = tuple(document["fitted"].values())
    links = {"as between these two processes": near} | {
        name: (near[0] + latency, near[1] + per_byte) for name, (latency, per_byte) in ASSUMED.items()}
    compute, reading = (document["results"][name]["least"] / document["batch"] * IMAGES
                        for name in (next(iter(STEPS)), READING))
    title = f"the model: a step of {IMAGES} images on many ranks, ms, and the share of it that computes"
    sizes = {"10.8 kB": 10_800, "100 MB": 10**8}
    made = table(title, "ranks", *(f"{size}, {link}" for size in sizes for link in links))
    for ranks in MANY:
        found = [predicted(ranks, compute, reading, size, *link) for size in sizes.values() for link in links.values()]
        made.add_row(str(ranks), *(f"{milliseconds(one)} ({compute / ranks / one:.2f})" for one in found))
    return made
