# SPDX-License-Identifier: MIT
"""A file on its way: ``.NAME.PID.part`` beside the one that it will replace.

Its writer holds a lock (flock) on it, HDF5's own or ours, which the kernel drops with the process: so the next writer
of the same file can tell what a dead one left, and removes it. bridge/common/atomic_file.py and
fortran/core/part_file.c do the same; the three agree on name and lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import zlib
from pathlib import Path
from types import TracebackType

from reference.errors import InputError

#: Bytes that a name may have, and of a name in that of its part
LONGEST_NAME, LONGEST_STEM = 255, 238


class PartFile:
    """Context manager of a part; what was not put in its place is gone at the end.

    Parameters
    ----------
    goal : path
        The file that it will replace, no symbolic link.

    Attributes
    ----------
    path : path
        Where to write; nothing is there yet.

    Raises
    ------
    InputError
        On entry, if another thread of this process is writing the same file.
    """

    def __init__(self, goal: Path) -> None:
        self.goal = goal
        self.path = goal.with_name(f".{_stem(goal.name)}.{os.getpid()}.part")
        self._handle: int | None = None

    def __enter__(self) -> PartFile:
        _sweep(self.goal)
        if os.path.lexists(self.path):
            raise InputError(f"cannot write {self.goal}: another thread is writing it")
        return self

    def hold(self) -> None:
        """Lock it, unless HDF5 does."""
        if self._handle is None:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        _lock(self._handle)

    def put_in_place(self) -> None:
        """Force it to the disk, and give it its name and the permissions of the file that it replaces."""
        self.hold()
        assert self._handle is not None
        os.fsync(self._handle)
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(self._handle, stat.S_IMODE(self.goal.stat().st_mode))
        os.replace(self.path, self.goal)
        folder = os.open(self.goal.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.path.unlink(missing_ok=True)
        if self._handle is not None:
            os.close(self._handle)


def _stem(name: str) -> str:
    """Return a name that still is one with what stands around it in a part."""
    letters = os.fsencode(name)
    # A name that no file may have is left to the system, which says so
    if not LONGEST_STEM < len(letters) <= LONGEST_NAME:
        return name
    kept = LONGEST_STEM - 9
    # No letter of UTF-8 is cut: some file systems refuse that
    while kept > 0 and letters[kept] & 0xC0 == 0x80:
        kept -= 1
    return os.fsdecode(letters[:kept]) + f"~{zlib.crc32(letters):08x}"


def _sweep(goal: Path) -> None:
    """Remove what dead processes left of this file."""
    ours = re.compile(rf"\.{re.escape(_stem(goal.name))}\.([1-9][0-9]{{0,9}})\.part")
    with contextlib.suppress(OSError):
        for name in os.listdir(goal.parent):
            match = ours.fullmatch(name)
            if match and not _lives(int(match[1])):
                _remove_abandoned(goal.parent / name)


def _lives(pid: int) -> bool:
    """Return whether another process of this number is there. Our own number may be that of a dead one, before this one
    began.
    """
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _remove_abandoned(part: Path) -> None:
    """Unless somebody holds its lock, or this file system has none."""
    with contextlib.suppress(OSError):
        handle = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode) and _lock(handle):
                part.unlink()
        finally:
            os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
