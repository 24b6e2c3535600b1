# SPDX-License-Identifier: MIT
"""Which processors are used, and the environment that gives everybody the same number of threads."""

from __future__ import annotations

import os
import platform
from pathlib import Path

#: Everybody's names for the same number
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def available() -> list[int]:
    """Processors that this process may use, one of every core first, so that two threads share no core."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(os.cpu_count() or 1))
    allowed = sorted(os.sched_getaffinity(0))
    first, rest, seen = [], [], set()
    for one in allowed:
        core = _siblings(one)
        (rest if core in seen else first).append(one)
        seen.add(core)
    return first + rest


def _siblings(processor: int) -> str:
    try:
        return Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list").read_text(encoding="ascii")
    except OSError:
        return str(processor)


def model_name() -> str:
    """What the processor calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_left() -> int:
    """Bytes that can be used without swapping; a large number where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 2**62


def environment(threads: int) -> dict[str, str]:
    """For a child process.

    Waiting threads behave as each library wants: a peer that is made to wait otherwise would be another peer.
    """
    ours = dict.fromkeys(THREAD_VARIABLES, str(threads))
    # torch.compile's helpers would live, and be counted, beside the runs
    return os.environ | ours | {"JAX_PLATFORMS": "cpu", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def restrict(threads: int) -> None:
    """Let this process use only as many processors as it has threads: libraries that count processors see that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, available()[:threads])
