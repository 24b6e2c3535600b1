# SPDX-License-Identifier: MIT
"""What a command reads and what it writes: known before any work, so that no file is lost to a slip in a name.

Every command names all its files to `check_files`. What it then writes goes through `bridge.common.atomic_file`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Hashable, Iterable

from bridge.common.atomic_file import opened_part, target
from bridge.common.errors import BridgeError

StrPath = str | os.PathLike[str]

#: Files with what each is to the command, an option or a positional argument; None is no file
Named = Iterable[tuple[str, StrPath | None]]

#: An image may be a dataset of an HDF5 file, as in reference.batches.images
_H5_WITH_DATASET = re.compile(r"(?P<file>.+\.(?:h5|hdf5)):/.+", re.IGNORECASE)


def check_files(reads: Named, writes: Named) -> None:
    """Refuse, before any work, a file that cannot be written, that is read too, or that is written twice.

    Two names are one file also through symbolic links, hard links and relative paths.

    Parameters
    ----------
    reads : what the command reads
    writes : what it makes or replaces

    Raises
    ------
    BridgeError
        With the option and the path as they were given, and what else has this file.

    Examples
    --------
    >>> check_files([("FIXTURE", "f.h5")], [("--json", "v.json"), ("--report", None)])
    >>> check_files([("FIXTURE", "f.h5")], [("--json", "./f.h5")])
    Traceback (most recent call last):
    bridge.common.errors.BridgeError: --json ./f.h5: would replace FIXTURE f.h5, expected another file
    """
    taken = {_identity(path): f"{name} {os.fspath(path)}" for name, path in reads if path is not None}
    taken |= _streams()
    for name, path in writes:
        if path is None:
            continue
        _check_writable(name, path)
        found = _identity(path)
        if found in taken:
            raise BridgeError(f"{name} {os.fspath(path)}: would replace {taken[found]}, expected another file")
        taken[found] = f"{name} {os.fspath(path)}"


def image_file(image: str | None) -> str | None:
    """Return the file of an image, which may be a dataset in it.

    >>> image_file("stack.h5:/data"), image_file("one.mrc"), image_file(None)
    ('stack.h5', 'one.mrc', None)
    """
    match = _H5_WITH_DATASET.fullmatch(image) if image else None
    return match["file"] if match else image


def size_text(size: float) -> str:
    """Return a number of bytes with three digits, in the unit that has them; as in reference.files.disk.

    >>> size_text(4_980_000_000), size_text(621_000_000), size_text(1500), size_text(0)
    ('4.98 GB', '621 MB', '1.50 kB', '0 bytes')
    """
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= 0.9995 * factor:
            return f"{size / factor:.{2 - (size >= 9.995 * factor) - (size >= 99.95 * factor)}f} {unit}"
    return f"{size:.0f} bytes"


def _check_writable(name: str, path: StrPath) -> None:
    """The very file that will be needed is made, and removed."""
    given, goal = f"{name} {os.fspath(path)}", target(path)
    if not os.path.isdir(os.path.dirname(goal)):
        raise BridgeError(f"{given}: no such folder")
    if os.path.isdir(goal) or not os.path.basename(os.fspath(path)):
        raise BridgeError(f"{given}: not the name of a file")
    if os.path.lexists(goal) and not os.path.isfile(goal):
        raise BridgeError(f"{given}: not a regular file, expected one, or a new name")
    if os.path.exists(goal) and not os.access(goal, os.W_OK):
        raise BridgeError(f"{given}: write-protected")
    try:
        with opened_part(goal):
            pass
    except OSError as error:
        raise BridgeError(f"{given}: {error.strerror}") from None


def _identity(path: StrPath) -> Hashable:
    """Equal for all names of a file; of one that is not there yet, for all paths to it."""
    try:
        found = os.stat(path)
    except OSError:
        return target(path)
    return found.st_dev, found.st_ino


def _streams() -> dict[Hashable, str]:
    """Files that the output is led to: a replaced one would lose what was printed."""
    found: dict[Hashable, str] = {}
    for name, number in (("the standard output", 1), ("the standard error", 2)):
        try:
            stream = os.fstat(number)
        except OSError:
            continue
        if stat.S_ISREG(stream.st_mode):
            found[stream.st_dev, stream.st_ino] = name
    return found
