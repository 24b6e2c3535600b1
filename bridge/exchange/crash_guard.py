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
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import h5py

from bridge.common.errors import FileError
from bridge.exchange.file import ExchangeFile
from bridge.exchange.hdf5_values import NO_MEMORY

#: How long a check may be silent: its time goes by the number of objects, and each of them takes a moment
SECONDS = 8.0
#: Bytes of a file for each object in it, at least: a library that goes in a circle finds more, which are silence
OBJECT = 64
#: What the library may need for the structure of a file, and for texts of at most 1 MiB
ROOM = 2**29
#: What the child says of a file that it came through, of one whose structure needs too much memory, and meanwhile
FINE, TOO_LARGE, ALIVE = b".", b"M", b" "


def check_readable(*paths: str | os.PathLike[str], seconds: float = SECONDS) -> None:
    """Touch everything in exchange files that a comparison may touch, in a child process.

    Called by programs before they open a file, never by library functions: it forks. Does nothing where a system
    cannot. What is merely wrong with a file is left to `ExchangeFile`, which says it better.

    Parameters
    ----------
    seconds : in which the child must say that it has come to another object

    Raises
    ------
    FileError
        If the library crashes on a file, does not come to an end, or wants more memory than a structure can need.
    """
    files = [os.fspath(path) for path in paths if os.path.isfile(path)]
    if not files or not hasattr(os, "fork"):
        return
    status, said = _in_child(files, seconds)
    if TOO_LARGE in said:
        path = files[said.index(TOO_LARGE)]
        raise FileError(f"{path}: damaged, the HDF5 library wants more than {ROOM >> 20} MiB for its structure")
    if len(said) == len(files):
        return
    if status is None:
        raise FileError(f"{files[len(said)]}: damaged, the HDF5 library was stuck in it for {seconds:g} s")
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        raise FileError(f"{files[len(said)]}: damaged, the HDF5 library crashed on it ({name})")


def _in_child(files: list[str], seconds: float) -> tuple[int | None, bytes]:
    """Status of the child as waitpid gives it, None when it was silent for too long; and what it said, a byte a file.
    """
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
                os.write(writing, _touched(path, partial(os.write, writing, ALIVE)))
        finally:
            os._exit(0)
    os.close(writing)
    ended, said = False, b""
    try:
        ended, said = _listen(reading, seconds)
    finally:
        os.close(reading)
        if not ended:
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    return status if ended else None, said


def _listen(reading: int, seconds: float) -> tuple[bool, bytes]:
    """Until the child closes its end of the pipe, by whatever end, or is silent for so long."""
    said = b""
    while select.select([reading], [], [], seconds)[0]:
        got = os.read(reading, 1 << 16)
        if not got:
            return True, said
        said += got.replace(ALIVE, b"")
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


def _touched(path: str, alive: Callable[[], object]) -> bytes:
    """`FINE` also of a file that is wrong in some other way."""
    objects = iter(range(os.path.getsize(path) // OBJECT))

    def found() -> None:
        if next(objects, None) is not None:
            alive()

    try:
        _touch(path, found)
    except MemoryError:
        return TOO_LARGE
    except Exception as error:
        return TOO_LARGE if NO_MEMORY in str(error) else FINE
    return FINE


def _touch(path: str, alive: Callable[[], object]) -> None:
    """All that leads to values. They themselves are only copied, and need no reading."""
    with ExchangeFile(path, alive) as file:
        def look(name: bytes) -> None:
            alive()
            with suppress(Exception):
                node = h5py.h5o.open(file.file.id, name)
                if isinstance(node, h5py.h5d.DatasetID):
                    _look_at(node)

        # h5py's own objects take five times as long
        h5py.h5o.visit(file.file.id, look)


def _look_at(dataset: h5py.h5d.DatasetID) -> None:
    """What `ExchangeFile.tensor` asks of a dataset."""
    plan = dataset.get_create_plist()
    for ask in (lambda: dataset.dtype, lambda: dataset.shape, dataset.get_storage_size, plan.get_nfilters,
                plan.get_external_count):
        ask()
    if h5py.h5a.get_num_attrs(dataset):
        h5py.h5a.iterate(dataset, lambda name: None)
    if plan.get_layout() == h5py.h5d.CHUNKED:
        dataset.get_num_chunks()
