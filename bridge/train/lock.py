# SPDX-License-Identifier: MIT
"""One training at a time in a folder: a file that says who it is, and that is locked as long as it lives.

The lock is one of the kernel (flock), which drops it with its process, on the machine that died, too, where the file
system carries locks between machines. Where it has none, the file's time is set every few seconds by a thread: one that
is older than `STALE` is nobody's.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bridge.common.errors import FileError
from bridge.exchange.hdf5_values import clipped

NAME = ".lock"
#: Seconds between two signs of life, and after the last of which nobody is there
SIGN, STALE = 15.0, 120.0
#: What flock says where somebody else has it; all else is a file system without locks
TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which exists.

    Raises
    ------
    FileError
        If another process has it; names that process, its machine and when it began.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with locked(Path(folder)):
    ...         try:
    ...             with locked(Path(folder)):
    ...                 pass
    ...         except FileError as error:
    ...             print(str(error)[len(folder):][:38])
    : another training is at work in it, p
    """
    path = folder / NAME
    try:
        handle = _taken(path)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}, expected a folder that can be written") from None
    done = threading.Event()
    sign = threading.Thread(target=_signs, args=(handle, done), daemon=True)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname(),
                                      "since": time.strftime("%Y-%m-%d %H:%M:%S")}).encode(), 0)
        sign.start()
        yield
    finally:
        done.set()
        sign.join()
        with suppress(OSError):
            os.unlink(path)
        os.close(handle)


def _taken(path: Path) -> int:
    """The file, which is ours from now on."""
    while True:
        try:
            handle, new = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), True
        except FileExistsError:
            try:
                handle, new = os.open(path, os.O_RDWR | os.O_CLOEXEC), False
            except FileNotFoundError:
                continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except OSError as error:
            free = error.errno not in TAKEN and (new or _is_stale(path, handle))
        if not free:
            said = _said(handle)
            os.close(handle)
            raise FileError(f"{path.parent}: another training is at work in it, {said}; expected one at a time")
        with suppress(FileNotFoundError):
            # Who had it may have removed it in between
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return handle
        os.close(handle)


def _is_stale(path: Path, handle: int) -> bool:
    """Whether who has written it is dead, by its number on this machine, on another by its signs of life."""
    found = _content(handle)
    if found.get("host") == socket.gethostname() and isinstance(found.get("pid"), int):
        return found["pid"] == os.getpid() or not os.path.exists(f"/proc/{found['pid']}")
    # The time of the file system's machine
    with tempfile.TemporaryFile(dir=path.parent) as now:
        return os.fstat(now.fileno()).st_mtime - os.fstat(handle).st_mtime > STALE


def _said(handle: int) -> str:
    found = _content(handle)
    return clipped(f"process {found.get('pid', '?')} on {found.get('host', '?')} since {found.get('since', '?')}", 200)


def _content(handle: int) -> dict[str, object]:
    with suppress(ValueError, OSError):
        found = json.loads(os.pread(handle, 4096, 0))
        if isinstance(found, dict):
            return found
    return {}


def _signs(handle: int, done: threading.Event) -> None:
    while not done.wait(SIGN):
        with suppress(OSError):
            os.utime(handle)
