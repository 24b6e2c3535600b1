# SPDX-License-Identifier: MIT
"""Contestants take turns: each in a process of its own, one at a time, in alternating order.

While one works the others are stopped (SIGSTOP), so that their waiting threads take nothing from it. Rounds go there
and back (a b c, c b a, ...), so that a machine that becomes slower in between is no one's advantage.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.frameworks.cpu import ENVIRONMENT, OURS
from benchmarks.harness import processors
from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.timing import summary

ROOT = Path(__file__).resolve().parents[2]
#: A turn lasts so long at least, if it is not one call
TURN_SECONDS = 0.1
#: Shorter calls are made once more before the clock starts: their data was pushed out of the caches
WARM_BELOW = 0.3
#: Contestants in float32 add in different orders
AGREEMENT = {"float32": 1e-3, "float64": 1e-6}


class Contestant:
    """The process of a contestant; a context manager.

    Parameters
    ----------
    name : of `benchmarks.frameworks.cpu`
    threads : how many, on as many processors
    """

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cpu.worker", name, str(threads)], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._messages,
            env=processors.environment(threads) | ENVIRONMENT.get(name, {}))

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Wake the process, ask, put it to sleep.

        Raises
        ------
        BenchmarkError
            If the process ends instead.
        """
        self._signal("SIGCONT")
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"do": do, **request}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise BenchmarkError(f"{self.name}: {self._last_words()}")
        self._signal("SIGSTOP")
        return json.loads(line)

    def _signal(self, name: str) -> None:
        if hasattr(signal, name):
            self._process.send_signal(getattr(signal, name))

    def _last_words(self) -> str:
        """Exit status and the end of what it printed."""
        status = self._process.wait()
        self._messages.seek(0)
        lines = self._messages.read().decode("utf-8", "replace").split("\n")
        return f"ended with status {status}: " + (next((x.strip() for x in reversed(lines) if x.strip()), "silent"))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._messages.close()

    def __enter__(self) -> Contestant:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


@contextlib.contextmanager
def contestants(names: Sequence[str], threads: int) -> Iterator[list[Contestant]]:
    """Some processes, which import their libraries at the same time."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Contestant(name, threads)) for name in names]


def compete(taking_part: Sequence[Contestant], task: dict[str, Any], rounds: int,
            between: Callable[[], None] = lambda: None) -> dict[str, dict[str, Any]]:
    """Let contestants do the same work in turns.

    Parameters
    ----------
    taking_part : processes
    task : as in `benchmarks.frameworks.cpu.build`
    rounds : turns of each
    between : called once in every round, for what is to be measured at the same time

    Returns
    -------
    results : by name, in seconds for one call as `benchmarks.harness.timing.summary` has them, with ``calls`` in a
        turn, ``memory`` in bytes and ``checksum``; or ``{"skipped": reason}``

    Raises
    ------
    BenchmarkError
        If our own library fails, or a contestant computes something else.
    """
    results: dict[str, dict[str, Any]] = {one.name: _ask(one, "build", task=task) for one in taking_part}
    check_agreement(results, task)
    times: dict[str, list[float]] = {name: [] for name in results}
    for number in range(rounds):
        between()
        for one in taking_part if number % 2 == 0 else reversed(taking_part):
            known = results[one.name]
            if "skipped" in known:
                continue
            known["calls"] = max(1, math.ceil(TURN_SECONDS / known["seconds"]))
            turn = _ask(one, "run", calls=known["calls"], warm=known["seconds"] < WARM_BELOW)
            if "skipped" in turn:
                results[one.name] = turn
            else:
                times[one.name].append(turn["seconds"])
    for name, one in results.items():
        if "skipped" not in one:
            del one["seconds"]
            results[name] = summary(times[name]) | one
    return results


def _ask(one: Contestant, do: str, **request: Any) -> dict[str, Any]:
    """A peer that fails is skipped; we may not fail."""
    try:
        found = one.ask(do, **request)
    except BenchmarkError as error:
        if one.name.startswith(OURS):
            raise
        return {"skipped": str(error)}
    if "skipped" in found and one.name.startswith(OURS):
        raise BenchmarkError(f"{one.name}: {found['skipped']}")
    return found


def check_agreement(results: dict[str, dict[str, Any]], task: dict[str, Any]) -> None:
    """Who computes something else is not compared.

    Raises
    ------
    BenchmarkError
        With the two that differ.
    """
    numbers = {name: one["checksum"] for name, one in results.items() if "checksum" in one}
    dtype = (task.get("net") or task["conv"])["dtype"]
    for name, number in numbers.items():
        first_name, first = next(iter(numbers.items()))
        if not math.isclose(number, first, rel_tol=AGREEMENT[dtype]):
            raise BenchmarkError(f"{name} computes {number:.9g}, {first_name} {first:.9g}: not the same work")
