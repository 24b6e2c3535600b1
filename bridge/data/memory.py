# SPDX-License-Identifier: MIT
"""Whether what is to be filled fits into memory."""

from __future__ import annotations

from contextlib import suppress

from bridge.common.command_files import size_text
from bridge.common.errors import ArgumentError

#: Where Linux says how much there is for a new process, and what groups of processes may take and have taken
MEMORY = "/proc/meminfo"
GROUPS = (("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
          ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"))
#: Bytes that nobody asks for
SMALL = 1 << 28


def check_memory(name: str, needed: int) -> None:
    """Refuse what does not fit; where nobody says how much there is, nothing.

    Raises
    ------
    ArgumentError
        Begins with `name`, which is what is to be smaller.

    Examples
    --------
    >>> check_memory("batch: 2", 1000)
    """
    if needed > SMALL and needed > (free := available()):
        raise ArgumentError(f"{name} needs {size_text(needed)} of memory, expected at most {size_text(free)}, which is "
                            "free")


def available() -> float:
    """Return the bytes that this process may still take; infinite where nobody says."""
    found = [float("inf")]
    with suppress(OSError, ValueError, StopIteration), open(MEMORY, encoding="ascii") as lines:
        found.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    for limit, usage in GROUPS:
        with suppress(OSError, ValueError), open(limit, encoding="ascii") as most, open(usage, encoding="ascii") as now:
            found.append(int(most.read()) - int(now.read()))
    return min(found)
