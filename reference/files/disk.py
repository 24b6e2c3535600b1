# SPDX-License-Identifier: MIT
"""What a new file asks of the disk: a place, room, and that it stays."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reference.errors import InputError, one_line


def check_separate(path: str | Path, inputs: dict[str, Path | None]) -> None:
    """Refuse to replace a file that is read, whatever names it has.

    Parameters
    ----------
    path : path
        Of the file to write.
    inputs : dict
        What is read, by the names of the options.

    Raises
    ------
    InputError
    """
    for name, read in inputs.items():
        with contextlib.suppress(OSError):
            if read is not None and os.path.samefile(path, read):
                raise InputError(f"cannot write {path}: it would replace {name} {read}, expected another file")


def check_place(path: str | Path, expected_bytes: int = 0) -> Path:
    """Refuse a file that cannot be written there, or not so many bytes.

    Returns
    -------
    goal : path
        The file that will be written, where `path` leads through symbolic links.

    Raises
    ------
    InputError
    """
    goal = Path(os.path.realpath(path))
    if not goal.parent.is_dir():
        raise InputError(f"cannot write {goal}: the folder {goal.parent} does not exist")
    if os.path.lexists(goal) and not goal.is_file():
        raise InputError(f"cannot write {goal}: it is there and is not a regular file")
    if goal.exists() and not os.access(goal, os.W_OK):
        raise InputError(f"cannot write {goal}: it is there and is write-protected")
    if not os.access(goal.parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {goal}: no permission to write into {goal.parent}")
    disk = shutil.disk_usage(goal.parent)
    # Some that can be written to say nothing of their size, and some that cannot
    if disk.total == 0:
        _try_to_write(goal)
    elif disk.free < expected_bytes:
        raise InputError(
            f"cannot write {goal}: {size_text(expected_bytes)} needed, {size_text(disk.free)} free "
            "(--size, --batch, --steps and --oracle-steps make it smaller)"
        )
    return goal


def _try_to_write(goal: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=goal.parent) as file:
            file.write(b"1")
    except OSError as error:
        raise InputError(f"cannot write {goal}: {goal.parent} takes no files ({error.strerror})") from None


def size_text(size: float) -> str:
    """Return a number of bytes with three digits, in the unit that has them.

    >>> size_text(4_980_000_000), size_text(621_000_000), size_text(1500), size_text(0)
    ('4.98 GB', '621 MB', '1.50 kB', '0 bytes')
    """
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= 0.9995 * factor:
            return f"{size / factor:.{2 - (size >= 9.995 * factor) - (size >= 99.95 * factor)}f} {unit}"
    return f"{size:.0f} bytes"


@contextlib.contextmanager
def disk_errors(goal: Path) -> Iterator[None]:
    """What the disk refuses, as one sentence."""
    try:
        yield
    except OSError as error:
        # The number says "no space left on device"; HDF5's own text is addresses and offsets.
        reason = os.strerror(error.errno) if error.errno else one_line(error)
        raise InputError(f"cannot write {goal}: {reason}") from error
