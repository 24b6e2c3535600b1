# SPDX-License-Identifier: MIT
"""Read ahead in threads: results in order, a bounded number of them, and no thread that outlives its use."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from bridge.common.errors import ArgumentError

Made = TypeVar("Made")

#: How the names of threads begin
THREADS = "bridge-data"


def read_ahead(make: Callable[[int], Made], steps: Iterable[int], depth: int,
               threads: int) -> Generator[Made, None, None]:
    """Yield ``make(step)`` for each step, while threads make those that follow.

    At most `depth` results are ready or being made besides the one that was yielded last: who takes none stops the
    threads. They end when the generator does: after the last step, with an exception of `make`, which is raised in the
    place of its step, with ``close()``, or when nobody refers to it any more; what is being made then is waited for.

    Parameters
    ----------
    make : called in threads
    steps : in order; may have no end
    depth, threads : 1 or more

    Examples
    --------
    >>> list(read_ahead(abs, [-1, -2, -3], depth=2, threads=2))
    [1, 2, 3]
    """
    for name, value in (("depth", depth), ("threads", threads)):
        if value < 1:
            raise ArgumentError(f"{name}: {value}, expected 1 or more")
    return _read_ahead(make, steps, depth, threads)


def _read_ahead(make: Callable[[int], Made], steps: Iterable[int], depth: int,
                threads: int) -> Generator[Made, None, None]:
    coming: deque[Future[Made]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix=THREADS)
    try:
        for step in steps:
            coming.append(pool.submit(make, step))
            if len(coming) > depth:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    finally:
        # A thread of ours may have collected a forgotten generator; it cannot wait for its own end
        mine = threading.current_thread().name.startswith(THREADS)
        pool.shutdown(wait=not mine, cancel_futures=True)
