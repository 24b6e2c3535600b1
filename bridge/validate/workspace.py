# SPDX-License-Identifier: MIT
"""A folder for the large files of a validation, removed afterwards."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from bridge.common.command_files import size_text
from bridge.common.errors import BridgeError

#: Memory that the comparison itself needs, left free when files are kept in memory
RESERVE = 8 * 2**30
#: How temporary folders begin, and the seconds in which a new one is locked for certain
PREFIX, NEW = "bridge-validate-", 60


@contextmanager
def workspace(keep: str | None, needed: int) -> Iterator[Path]:
    """A folder with room for `needed` bytes.

    With `keep` it is that folder, and stays. Otherwise a temporary one: in memory (/dev/shm) when there is plenty,
    so that nobody waits for a disk, else where temporary files go. Those that a killed process left there are removed.

    Raises
    ------
    BridgeError
        If there is no room, or `keep` cannot be made.
    """
    if keep is not None:
        folder = Path(keep)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BridgeError(f"--keep {keep}: {error.strerror}") from None
        _check_room(folder, needed)
        yield folder
        return
    for place in ("/dev/shm", tempfile.gettempdir()):
        _remove_abandoned(Path(place))
    parent = "/dev/shm" if _fits_in_memory(needed) else tempfile.gettempdir()
    _check_room(Path(parent), needed)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        with _locked(folder):
            yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """A folder of large files, each by a thread: to give the memory of one back takes half a second."""
    def unlink(path: Path) -> None:
        with suppress(OSError):
            path.unlink()

    with ThreadPoolExecutor() as pool, suppress(OSError):
        list(pool.map(unlink, folder.iterdir()))
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Others see by the lock that somebody works there; it goes with the process, however that ends."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Folders whose process was killed: in /dev/shm they would be memory that nobody gives back."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime < NEW or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _check_room(folder: Path, needed: int) -> None:
    disk = shutil.disk_usage(folder)
    if disk.total == 0:
        # One that says nothing of its size is tried; /proc and the like take no files
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise BridgeError(f"{folder}: takes no files ({error.strerror}); choose another with --keep") from None
    elif disk.free < needed:
        raise BridgeError(f"{folder}: {size_text(disk.free)} free, expected {size_text(needed)} for the fixture and "
                          "the result; choose another folder with --keep, or a smaller --size")


def _fits_in_memory(needed: int) -> bool:
    if not os.access("/dev/shm", os.W_OK):
        return False
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return False
    return available > needed + RESERVE and shutil.disk_usage("/dev/shm").free > needed
