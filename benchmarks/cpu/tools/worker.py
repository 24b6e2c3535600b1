# SPDX-License-Identifier: MIT
"""The process of a framework on the CPU: ``python -m benchmarks.cpu.tools.worker NAME THREADS``, which `.runs` starts.

Its requests:

``{"do": "build", "task": ...}``
    make data and function, call it (the first call compiles and fills caches): seconds of a later call, a
    number that all frameworks must agree on, and memory
``{"do": "run", "calls": N}``
    call it N times: the median of their seconds, because in some of many short calls a thread has to wait for a
    processor that somebody else has. With ``"warm": true`` once more before, without counting
``{"do": "function", "name": "module:function", "arguments": {...}}``
    what that function returns
"""

from __future__ import annotations

import contextlib
import importlib
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.frameworks import cpu as frameworks
from benchmarks.harness import processors
from benchmarks.harness.errors import NotHere
from benchmarks.harness.worker import handle, main

Answer = dict[str, Any]
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
    """A number that right frameworks agree on: the loss, or the sum of the absolute values of a tensor."""
    if isinstance(result, float):
        return result
    if hasattr(result, "detach"):
        return float(result.detach().abs().double().sum())
    return float(abs(result).astype("float64").sum())


class Worker:
    """The state between two requests.

    Parameters
    ----------
    name : of a framework
    threads : how many
    """

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.missing = ""
        try:
            frameworks.prepare(name, threads)
        except NotHere as why:
            self.missing = str(why)
        self.imported = memory("VmRSS")
        self.call: Callable[[], Any] | None = None

    def answer(self, request: dict[str, Any]) -> Answer:
        """One request of those in this module's head."""
        if self.missing:
            return {"skipped": self.missing}
        try:
            return handle(self, request)
        except NotHere as why:
            return {"skipped": str(why)}
        except MemoryError:
            return {"skipped": "not enough memory"}

    def do_build(self, task: dict[str, Any]) -> Answer:
        """Data, function, first calls."""
        self.call = None
        self.call = frameworks.build(self.name, task)
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
        """For what is no comparison of the same work."""
        module, _, function = name.partition(":")
        try:
            return {"value": getattr(importlib.import_module(module), function)(**arguments)}
        except ModuleNotFoundError as error:
            raise NotHere(f"{error.name} is not installed") from None


def make() -> Worker:
    """The one that the command line names."""
    threads = int(sys.argv[2])
    # Before any library counts processors
    processors.restrict(threads)
    return Worker(sys.argv[1], threads)


if __name__ == "__main__":
    sys.exit(main(make))
