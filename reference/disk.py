# SPDX-License-Identifier: MIT
"""What a new file asks of the disk: a place, room, and that it stays."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from reference.errors import InputError, one_line


def check_place(goal: Path, expected_bytes: int) -> None:
    """Refuse a file that cannot be written there, or not so many bytes.

    Raises
    ------
    InputError
    """
    if not goal.parent.is_dir():
        raise InputError(f"cannot write {goal}: the folder {goal.parent} does not exist")
    if goal.exists() and not goal.is_file():
        raise InputError(f"cannot write {goal}: it is there and is not a regular file")
    if not os.access(goal.parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {goal}: no permission to write into {goal.parent}")
    free = shutil.disk_usage(goal.parent).free
    if free < expected_bytes:
        raise InputError(
            f"cannot write {goal}: {expected_bytes / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free "
            "(--size, --batch, --steps and --oracle-steps make it smaller)"
        )


@contextlib.contextmanager
def disk_errors(goal: Path) -> Iterator[None]:
    """What the disk refuses, as one sentence."""
    try:
        yield
    except OSError as error:
        # The number says "no space left on device"; HDF5's own text is addresses and offsets.
        reason = os.strerror(error.errno) if error.errno else one_line(error)
        raise InputError(f"cannot write {goal}: {reason}") from error


def to_disk(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
