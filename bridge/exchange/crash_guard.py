# SPDX-License-Identifier: MIT
"""Find out in a child process whether the HDF5 library survives a file.

A few damaged bytes in the structure of a file can crash the library, let it run in a circle for ever, or make it fill
gigabytes. None of that can be caught in the process where it happens, and an exit code of a crash would say nothing.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import time
import warnings
from contextlib import suppress

from bridge.common.errors import FileError
from bridge.exchange.file import ExchangeFile
from bridge.exchange.hdf5_values import NO_MEMORY

#: What a check may take, and how fast a file is at least walked through
SECONDS, BYTES_PER_SECOND = 8.0, 100e6
#: What the library may need for the structure of a file, and for texts of at most 1 MiB
ROOM = 2**29
#: What the child says of a file that it came through, and of one whose structure needs too much memory
FINE, TOO_LARGE = b".", b"M"


def check_readable(*paths: str | os.PathLike[str], seconds: float = SECONDS) -> None:
    """Touch everything in exchange files that a comparison may touch, in a child process.

    Called by programs before they open a file, never by library functions: it forks. Does nothing where a system
    cannot. What is merely wrong with a file is left to `ExchangeFile`, which says it better.

    Raises
    ------
    FileError
        If the library crashes on a file, does not come to an end, or wants more memory than a structure can need.
    """
    files = [os.fspath(path) for path in paths if os.path.isfile(path)]
    if not files or not hasattr(os, "fork"):
        return
    allowed = seconds + sum(os.path.getsize(path) for path in files) / BYTES_PER_SECOND
    status, said = _in_child(files, allowed)
    if TOO_LARGE in said:
        path = files[said.index(TOO_LARGE)]
        raise FileError(f"{path}: damaged, the HDF5 library wants more than {ROOM >> 20} MiB for its structure")
    if len(said) == len(files):
        return
    if status is None:
        raise FileError(f"{files[len(said)]}: damaged, the HDF5 library did not get through it in {allowed:.0f} s")
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        raise FileError(f"{files[len(said)]}: damaged, the HDF5 library crashed on it ({name})")


def _in_child(files: list[str], allowed: float) -> tuple[int | None, bytes]:
    """Status of the child as waitpid gives it, None when it took too long; and what it said, a byte a file."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns of other threads' locks; the child takes none but h5py's, and that is free here
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        # Not one line of the parent's may run in the child, whatever happens
        try:
            _keep_modest()
            for path in files:
                os.write(writing, _touched(path))
        finally:
            os._exit(0)
    os.close(writing)
    ended, said = False, b""
    try:
        ended, said = _listen(reading, time.monotonic() + allowed)
    finally:
        os.close(reading)
        if not ended:
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    return status if ended else None, said


def _listen(reading: int, end: float) -> tuple[bool, bytes]:
    """Until the child closes its end of the pipe, by whatever end."""
    said = b""
    while select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
        got = os.read(reading, 1)
        if not got:
            return True, said
        said += got
    return False, said


def _keep_modest() -> None:
    """Silent, and without more memory than it needs; where there is no /proc, nothing limits it."""
    import resource

    faulthandler.disable()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    with suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _touched(path: str) -> bytes:
    """`FINE` also of a file that is wrong in some other way."""
    try:
        _touch(path)
    except MemoryError:
        return TOO_LARGE
    except Exception as error:
        return TOO_LARGE if NO_MEMORY in str(error) else FINE
    return FINE


def _touch(path: str) -> None:
    """All that leads to values. They themselves are only copied, and need no reading."""
    with ExchangeFile(path) as file:
        for name in file.datasets():
            with suppress(Exception):
                dataset = file.file[name]
                file.tensor(name, dataset.shape)
                list(dataset.attrs)
                if dataset.chunks:
                    dataset.id.get_num_chunks()
