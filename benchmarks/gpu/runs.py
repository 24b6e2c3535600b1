# SPDX-License-Identifier: MIT
"""A cell is measured: frameworks are built one after the other, checked, and then run interleaved."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.frameworks.gpu import CHEAP, REFERENCE, Framework, framework
from benchmarks.gpu.agreement import verdict
from benchmarks.gpu.cells import Cell, Job, crowded
from benchmarks.harness.children import Clock
from benchmarks.harness.interleaved import interleaved
from benchmarks.harness.processes import LostError, Process, Processes, TimeUpError
from benchmarks.harness.roofline import Rates, Roofline, roofline
from benchmarks.harness.timing import summary

Found = dict[str, Any]
#: A run lasts so long at least
RUN_SECONDS = 0.05
#: Who takes its process down so often is not asked again
TRIES = 2
TIME_UP = "the time was up"
#: Processes that are started before they are needed
AHEAD = 3
#: Runs of frameworks that have to go in between
CROWDED_ROUNDS = 3


def workers(device: str, environment: Mapping[str, str]) -> Processes:
    """By name, each with its own CUDA context, of which none is started yet.

    Parameters
    ----------
    device : "cuda:0", or "cpu" where nothing is a GPU
    environment : variables of the processes
    """
    return Processes(lambda: Process(("-m", "benchmarks.gpu.worker", device), environment))


class Runs:
    """All that cells share.

    Parameters
    ----------
    processes : of the frameworks
    clock : of everything
    rates : of the machine, by precision, for the roofline bound
    memory : of the GPU, in bytes
    seconds : of a run, at least
    """

    def __init__(self, processes: Processes, clock: Clock, rates: dict[str, Rates], memory: int,
                 seconds: float = RUN_SECONDS) -> None:
        self._processes, self._clock, self._rates, self._memory = processes, clock, rates, memory
        self._seconds = seconds
        self._lost: Counter[str] = Counter()
        self._references: dict[tuple[int, int], Found] = {}

    def cell(self, job: Job, names: Sequence[str]) -> Found:
        """One cell as it stands in the JSON."""
        cell = job.cell
        taking_part = [one for one in map(framework, names) if one.cost <= job.cost]
        tight = crowded(cell, len(taking_part), self._memory)
        results = self._built(cell, taking_part, tight)
        self._run(cell, results, CROWDED_ROUNDS if tight else job.rounds, keep=not tight)
        for process in self._processes.used:
            self._quietly(process)
        return judged(cell, job, results, roofline(cell.net.layers, cell.precision, self._rates[cell.precision]))

    def driver(self, cell: Cell, names: Sequence[str], seconds: float) -> dict[str, int | None]:
        """Bytes that frameworks take from the driver, each in a process that does nothing else, for some seconds.

        Processes import their libraries while the one before works; they touch the GPU when they are asked.
        """
        found: dict[str, int | None] = {}
        clock = Clock(seconds)
        with contextlib.ExitStack() as stack:
            fresh = [stack.enter_context(self._processes.fresh()) for _ in names]
            for number, name in enumerate(names):
                if min(clock.left, self._clock.left) <= 0:
                    break
                for soon, one in zip(fresh[number:number + AHEAD], names[number:number + AHEAD], strict=True):
                    soon[framework(one).process].start()
                found[name] = self._ask(framework(name), "driver", fresh[number], task=task(cell, name)).get("driver")
                fresh[number][framework(name).process].close()
        return found

    def _built(self, cell: Cell, taking_part: Sequence[Framework], tight: bool) -> dict[str, Found]:
        reference = self._reference(cell)
        results: dict[str, Found] = {}
        for one in taking_part:
            if "failed" in reference:
                results[one.name] = {"failed": f"nothing to hold it against: {REFERENCE}: {reference['failed']}"}
            elif self._lost[one.name] >= TRIES:
                results[one.name] = {"failed": f"not tried: its process ended {TRIES} times before"}
            elif tight and one.cost > CHEAP:
                results[one.name] = {"skipped": "its memory is needed by the others"}
            else:
                found = self._ask(one, "build", task=task(cell, one.name), seconds=self._seconds)
                if "failed" not in found and "skipped" not in found:
                    found |= verdict(found, reference, cell.precision)
                    del found["losses"], found["moved"]
                results[one.name] = found
                if tight:
                    self._quietly(self._processes[one.process])
        return results

    def _reference(self, cell: Cell) -> Found:
        """PyTorch's losses and updates in float32 for this shape, computed once; a failure is tried again."""
        key, one = (cell.size, cell.batch), framework(REFERENCE)
        if key not in self._references:
            found = self._ask(one, "build", task=task(Cell(*key, "fp32"), one.name), seconds=0.0)
            if "losses" not in found:
                return {"failed": found.get("failed") or found["skipped"]}
            self._references[key] = found
        return self._references[key]

    def _run(self, cell: Cell, results: dict[str, Found], rounds: int, *, keep: bool) -> None:
        def run(name: str) -> float | None:
            known = results[name]
            if self._clock.left <= 0 or "failed" in known:
                return None
            found = self._ask(framework(name), "run", task=task(cell, name), calls=known["calls"], keep=keep)
            if "failed" in found:
                results[name] = found
            return found.get("seconds")

        ready = {name: partial(run, name) for name, one in results.items()
                 if "calls" in one and "disqualified" not in one}
        for name, seconds in interleaved(ready, rounds).items():
            if "failed" not in results[name]:
                results[name] = summary(seconds) | results[name] if seconds else {"skipped": TIME_UP}
                results[name].pop("seconds", None)

    def _ask(self, one: Framework, do: str, processes: Processes | None = None, **request: Any) -> Found:
        """A failure, and a time that is up, are results."""
        process = (processes or self._processes)[one.process]
        try:
            found = process.ask(do, one.limit, self._clock.left, **request)
        except TimeUpError:
            return {"skipped": TIME_UP}
        except LostError as lost:
            self._lost[one.name] += 1
            return {"failed": without_paths(str(lost))}
        return found | ({"failed": without_paths(found["failed"])} if "failed" in found else {})

    def _quietly(self, process: Any) -> None:
        """Empty it; one that cannot be emptied is ended, and starts anew."""
        try:
            if "failed" in process.ask("forget", 30.0):
                process.close()
        except LostError:
            process.close()


def task(cell: Cell, name: str) -> Found:
    """As the worker takes it."""
    return {"framework": name, "net": cell.net.as_dict(), "precision": cell.precision}


def without_paths(words: str) -> str:
    """Of files only the last part: what is written does not tell where this machine keeps them.

    >>> without_paths("OSError: /opt/some/where/libx.so.1 is missing, 1/2 s")
    'OSError: libx.so.1 is missing, 1/2 s'
    """
    return re.sub(r"(?<![\w.])/(?:[\w.+@~-]+/)+", "", words)


def judged(cell: Cell, job: Job, results: dict[str, Found], least: Roofline) -> Found:
    """A cell with what follows from its medians."""
    for one in results.values():
        if "median" in one:
            one |= {"gflops": least.flop / one["median"] / 1e9, "of_roofline": least.each / one["median"]}
    medians = {name: one["median"] for name, one in results.items() if "median" in one}
    ours, peers = ({name: one for name, one in medians.items() if framework(name).ours == who} for who in (True, False))
    found = {"size": cell.size, "batch": cell.batch, "precision": cell.precision, "cost": job.cost,
             "roofline": {"flop": least.flop, "bytes": least.bytes, "each": least.each, "whole": least.whole},
             "results": results}
    if peers:
        best = min(peers, key=lambda name: peers[name])
        found |= {"best_torch": best, "ratios": {name: peers[best] / value for name, value in ours.items()}}
    return found


def interrupted(found: Found) -> bool:
    """Whether a framework in a cell had no run because the time was up."""
    return any(one.get("skipped") == TIME_UP for one in found["results"].values())
