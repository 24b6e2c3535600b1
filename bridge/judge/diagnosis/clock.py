# SPDX-License-Identifier: MIT
"""The time that a search takes: where other programs have the processor, it is not used up by waiting for it."""

from __future__ import annotations

import time

#: Share of the time of this thread; the rest is time that passes, so that waiting for a slow disk has an end, too
WORK = 0.75


def now() -> float:
    """Return seconds of a clock that runs at a quarter of its speed while this thread waits.

    What is named hangs on how far a search comes. On a machine that is busy otherwise it comes as far as on a quiet
    one, in at most four times its time. Only differences mean something, and those of one thread alone.

    Examples
    --------
    >>> start = now()
    >>> now() >= start
    True
    """
    return WORK * time.thread_time() + (1 - WORK) * time.monotonic()
