# SPDX-License-Identifier: MIT
"""Settings for programs that make and drop arrays of 100 MB by the hundred, and pass over them in threads."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController, threadpool_limits

# <malloc.h> of glibc
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8
#: Looks for work before a thread of OpenMP sleeps: about 0.1 ms, a few times what waking it costs
_SPINS = 2000


def keep_freed_memory() -> None:
    """Let this process use freed memory again instead of giving it back to the kernel.

    Every fresh array of this size would be page-faulted and zeroed anew, which took half of a comparison's time.
    One arena, because the others give large blocks back at once. Called by programs, never by library functions;
    does nothing where the C library is not glibc.
    """
    _set_malloc((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1))


def return_freed_memory() -> None:
    """Let this process give every large array back to the kernel when it is freed.

    By default glibc keeps up to 64 MB of freed arrays, in which those of other sizes find no room: the peak of a
    program with arrays of several sizes is then up to twice of what it needs. Called by programs, never by library
    functions; does nothing where the C library is not glibc.
    """
    _set_malloc((_MMAP_THRESHOLD, 1 << 20))


def _set_malloc(*settings: tuple[int, int]) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    for parameter, value in settings:
        mallopt(parameter, value)


def brief_waits() -> None:
    """Let OpenMP's threads sleep soon after the work that they shared, in this process and those that it starts.

    By default they look for more work for several milliseconds, on a core that the next pass over memory needs: up to a
    quarter of a comparison's time. Called by programs before the library is loaded, which reads this once; a user's own
    setting stays, and only GNU's OpenMP knows it.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPINS))


def child_environment() -> dict[str, str]:
    """Return the environment for programs that make large arrays: glibc asks the kernel for huge pages, where it can.

    Fresh memory is most of such a program's time; its results are the same. A user's own setting stays.
    """
    return {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} | os.environ


@contextmanager
def one_core() -> Iterator[None]:
    """Let BLAS work on one thread: for thousands of small products, which threads that wait for each other only slow
    down.
    """
    with threadpool_limits(1, user_api="blas"):
        yield


@contextmanager
def shared_cores(workers: int) -> Iterator[None]:
    """Let `workers` threads share the cores: the BLAS of each gets its part instead of all of them."""
    with threadpool_limits(max(1, (os.cpu_count() or 1) // workers), user_api="blas"):
        yield


@contextmanager
def numpy_on_one_core() -> Iterator[None]:
    """Let numpy's BLAS, and no other, work on one thread: parts of arrays are computed by threads already."""
    with ThreadpoolController().select(prefix="libscipy_openblas").limit(limits=1):
        yield
