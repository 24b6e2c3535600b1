# SPDX-License-Identifier: MIT
"""Frameworks do the same work in interleaved runs, each in a process of its own, which is stopped while others work."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.frameworks.cpu import ENVIRONMENT, OURS
from benchmarks.harness import processors
from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.interleaved import interleaved
from benchmarks.harness.processes import Process
from benchmarks.harness.timing import summary
from benchmarks.harness.workloads import Conv, Net, OperationPass, Training

#: A run lasts so long at least, if it is not one call
RUN_SECONDS = 0.1
#: Shorter calls are made once more before the clock starts: their data was pushed out of the caches
WARM_BELOW = 0.3
#: Frameworks add in different orders in float32
AGREEMENT = {"float32": 1e-3, "float64": 1e-6}
Work = Net | Training | Conv | OperationPass
#: Their names in a task
KINDS: dict[type, str] = {Net: "net", Training: "training", Conv: "conv", OperationPass: "operation"}


def worker(name: str, threads: int) -> Process:
    """The process of a framework, with as many processors as threads."""
    return Process(("-m", "benchmarks.cpu.tools.worker", name, str(threads)),
                   processors.environment(threads) | ENVIRONMENT.get(name, {}), pausing=True)


@contextlib.contextmanager
def workers(names: Sequence[str], threads: int) -> Iterator[dict[str, Process]]:
    """Some processes by name, which import their libraries at the same time."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(worker(name, threads)) for name in names}


def compare(processes: Mapping[str, Process], work: Work, rounds: int, which: str = "",
            between: Callable[[], None] = lambda: None) -> dict[str, dict[str, Any]]:
    """Let frameworks do the same work in interleaved runs.

    Parameters
    ----------
    processes : by name
    work : a training step of a net or of another network, or a pass of a convolution or of another operation
    rounds : runs of each
    which : the pass of a convolution, of `benchmarks.harness.workloads.PASSES`
    between : called once in every round, for what is to be measured at the same time

    Returns
    -------
    results : by name, in seconds for one call as `benchmarks.harness.timing.summary` has them, with ``gflops``,
        ``calls`` in a run, ``checksum``, of a step ``memory`` in bytes, and of what must move bytes
        ``gigabytes_per_second``; or ``{"skipped": reason}``

    Raises
    ------
    BenchmarkError
        If our own library fails, or a framework computes something else.
    """
    task = {KINDS[type(work)]: work.as_dict()} | ({"pass": which} if isinstance(work, Conv) else {})
    results = {name: _ask(name, one, "build", task=task) for name, one in processes.items()}
    check_agreement(results, work.dtype)

    def run(name: str) -> float | None:
        known = results[name]
        if "skipped" in known:
            return None
        known["calls"] = max(1, math.ceil(RUN_SECONDS / known["seconds"]))
        found = _ask(name, processes[name], "run", calls=known["calls"], warm=known["seconds"] < WARM_BELOW)
        if "skipped" in found:
            results[name] = found
        return found.get("seconds")

    times = interleaved({name: partial(run, name) for name in results}, rounds, between)
    for name, one in results.items():
        if "skipped" not in one:
            del one["seconds"]
            if not isinstance(work, Net | Training):
                # That of a process which has done other work before
                del one["memory"]
            found = summary(times[name])
            results[name] = found | one | {"gflops": work.flop / found["median"] / 1e9}
            if isinstance(work, OperationPass):
                results[name]["gigabytes_per_second"] = work.bytes / found["median"] / 1e9
    return results


def call(function: str, threads: int, **arguments: Any) -> Any:
    """What a function ``module:name`` gives in a process of ours, for what is no comparison of the same work."""
    with worker(OURS, threads) as process:
        return _ask(OURS, process, "function", name=function, arguments=arguments)["value"]


def _ask(name: str, process: Process, do: str, /, **request: Any) -> dict[str, Any]:
    """A peer that fails is skipped; we may not fail."""
    try:
        found = process.ask(do, **request)
        why = found.get("skipped")
    except BenchmarkError as error:
        why = str(error)
        found = {"skipped": f"{name}: {why}"}
    if why is not None and name.startswith(OURS):
        raise BenchmarkError(f"{name}: {why}")
    return found


def check_agreement(results: dict[str, dict[str, Any]], dtype: str) -> None:
    """Who computes something else is not compared.

    Raises
    ------
    BenchmarkError
        With the two that differ, or the one that is not finite, which no JSON can hold.
    """
    numbers = {name: one["checksum"] for name, one in results.items() if "checksum" in one}
    for name, number in numbers.items():
        first_name, first = next(iter(numbers.items()))
        if not math.isfinite(number):
            raise BenchmarkError(f"{name} computes {number:g}, expected a finite number")
        if not math.isclose(number, first, rel_tol=AGREEMENT[dtype]):
            raise BenchmarkError(f"{name} computes {number:.9g}, {first_name} {first:.9g}: not the same work")
