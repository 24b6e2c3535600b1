# SPDX-License-Identifier: MIT
"""A process of its own for a contestant: ``python -m benchmarks.cpu.worker NAME THREADS``, which `.runs` starts.

It reads one JSON object a line from standard input and answers each with one on standard output:

``{"do": "build", "task": ...}``
    make data and function, call it (the first call compiles and fills caches): seconds of a later call, a
    number that all contestants must agree on, and memory
``{"do": "run", "calls": N}``
    call it N times: the median of their seconds, because in some of many short calls a thread has to wait for a
    processor that somebody else has. With ``"warm": true`` once more before, without counting
``{"do": "function", "name": "module:function", "arguments": {...}}``
    what that function returns
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from benchmarks.frameworks import cpu as contestants
from benchmarks.harness import processors
from benchmarks.harness.errors import NotHere

Answer = dict[str, Any]
#: prctl's option: send a signal when the parent ends
PR_SET_PDEATHSIG = 1
#: Calls below so many seconds are made a few times to know how long one takes
SHORT, FEW = 0.05, 5


def memory(field: str) -> int:
    """Bytes of memory of this process: ``VmRSS`` now, ``VmHWM`` at most until now.

    The kernel counts both from the start of this program. ``ru_maxrss`` begins with the memory of the parent, and is
    taken only where there is no /proc.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def checksum(result: Any) -> float:
    """A number that right contestants agree on: the loss, or the sum of the absolute values of a tensor."""
    if isinstance(result, float):
        return result
    if hasattr(result, "detach"):
        return float(result.detach().abs().double().sum())
    return float(abs(result).astype("float64").sum())


class Worker:
    """The state between two requests.

    Parameters
    ----------
    name : contestant
    threads : how many
    """

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.missing = ""
        try:
            contestants.prepare(name, threads)
        except NotHere as why:
            self.missing = str(why)
        self.imported = memory("VmRSS")
        self.call: Callable[[], Any] | None = None

    def answer(self, request: dict[str, Any]) -> Answer:
        """One request of those in this module's head."""
        if self.missing:
            return {"skipped": self.missing}
        try:
            return getattr(self, "do_" + request.pop("do"))(**request)
        except NotHere as why:
            return {"skipped": str(why)}
        except MemoryError:
            return {"skipped": "not enough memory"}

    def do_build(self, task: dict[str, Any]) -> Answer:
        """Data, function, first calls."""
        self.call = None
        self.call = contestants.build(self.name, task)
        with_data = memory("VmRSS")
        found = checksum(self.call())
        seconds = self.do_run(1)["seconds"]
        if seconds < SHORT:
            seconds = self.do_run(FEW)["seconds"]
        return {"seconds": seconds, "checksum": found,
                "memory": {"imported": self.imported, "with_data": with_data, "peak": memory("VmHWM")}}

    def do_run(self, calls: int, warm: bool = False) -> Answer:
        """The median of the seconds of some calls."""
        if self.call is None:
            raise ValueError("run before build")
        if warm:
            self.call()
        seconds = []
        for _ in range(calls):
            begin = time.perf_counter()
            self.call()
            seconds.append(time.perf_counter() - begin)
        return {"seconds": statistics.median(seconds)}

    def do_function(self, name: str, arguments: dict[str, Any]) -> Answer:
        """For what is no contest of the same work."""
        module, _, function = name.partition(":")
        try:
            return {"value": getattr(importlib.import_module(module), function)(**arguments)}
        except ModuleNotFoundError as error:
            raise NotHere(f"{error.name} is not installed") from None


def serve(worker: Worker, requests: TextIO, answers: TextIO) -> None:
    """Until the requests end."""
    for line in requests:
        print(json.dumps(worker.answer(json.loads(line))), file=answers, flush=True)


def end_with_parent() -> None:
    """Also while this process is stopped; only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _end_first() -> None:
    """Where memory runs out, this process is to be killed and no other one."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def main() -> int:
    """What a library prints goes to standard error, and cannot be taken for an answer."""
    end_with_parent()
    _end_first()
    threads = int(sys.argv[2])
    # Before any library counts processors
    processors.restrict(threads)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        serve(Worker(sys.argv[1], threads), sys.stdin, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
