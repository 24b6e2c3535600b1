# SPDX-License-Identifier: MIT
"""Files that are either the old one or the new one, whatever happens in between.

A new file is written as ``.NAME.PID.part`` beside the one that it will replace (of a long name its first bytes and a
checksum), and takes its name when it is complete
and on the disk. The writer holds a lock (flock) on it, which the kernel drops with its process: so the next writer of
the same file can tell what a dead one left, and removes it. reference/files/part_file.py and fortran/core/part_file.c
do the same; the three agree on name and lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

#: Bytes that a name may have, and of a name in that of its part
LONGEST_NAME, LONGEST_STEM = 255, 238

StrPath = str | os.PathLike[str]


def target(path: StrPath) -> str:
    """Return the file that a name leads to: a symbolic link stays, what it points to is replaced."""
    return os.path.realpath(path)


@contextmanager
def replacing(path: StrPath) -> Iterator[str]:
    """Yield the name of an empty file to write to; it takes the place of `path` unless the block raises.

    The permissions of a file that was there before are kept.

    Raises
    ------
    OSError
        If it cannot be written, or another thread is writing the same file. An older file of that name is then still
        there.
    """
    goal = target(path)
    with _named(goal), opened_part(goal) as part:
        yield part
        # Who writes by name may have made a new file there
        flush(part)
        with suppress(FileNotFoundError):
            os.chmod(part, stat.S_IMODE(os.stat(goal).st_mode))
        os.replace(part, goal)
        with suppress(OSError):
            flush(os.path.dirname(goal))


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Errors without a file's name, as of a full disk, get this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise type(error)(error.errno, error.strerror, path) from None
        raise


def flush(path: StrPath) -> None:
    """Let what is written to a file, or the names in a folder, be on the disk."""
    with _opened(path) as handle:
        os.fsync(handle)


@contextmanager
def opened_part(goal: str) -> Iterator[str]:
    """Yield the name of a new, locked part; it is gone at the end, unless it was renamed."""
    _sweep(goal)
    folder, name = os.path.split(goal)
    part = os.path.join(folder, f".{_stem(name)}.{os.getpid()}.part")
    try:
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise OSError(errno.EBUSY, "another thread is writing it", goal) from None
    try:
        _lock(handle)
        yield part
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
        os.close(handle)


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


def _sweep(goal: str) -> None:
    """Remove what dead processes left of this file."""
    folder, name = os.path.split(goal)
    ours = re.compile(rf"\.{re.escape(_stem(name))}\.([1-9][0-9]{{0,9}})\.part")
    with suppress(OSError):
        for found in os.listdir(folder):
            match = ours.fullmatch(found)
            if match and not _lives(int(match[1])):
                _remove_abandoned(os.path.join(folder, found))


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


def _remove_abandoned(part: str) -> None:
    """Unless somebody holds its lock, or this file system has none."""
    with suppress(OSError), _opened(part, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK) as handle:
        if stat.S_ISREG(os.fstat(handle).st_mode) and _lock(handle):
            os.unlink(part)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def _opened(path: StrPath, flags: int = os.O_RDONLY) -> Iterator[int]:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def write_text(path: StrPath, text: str) -> None:
    """Write a UTF-8 file; what UTF-8 cannot hold becomes a question mark.

    Raises
    ------
    OSError
        If it cannot be written. An older file of that name is then still there.
    """
    with replacing(path) as part, open(part, "w", encoding="utf-8", errors="replace") as stream:
        stream.write(text)


def write_json(path: StrPath, document: Any) -> None:
    """Write a JSON file; NaN and infinity are refused, JSON has none."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
