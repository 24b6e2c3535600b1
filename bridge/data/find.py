# SPDX-License-Identifier: MIT
"""From what a user names to files: paths, folders, patterns, datasets of HDF5 files, in one order on every machine."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable

from bridge.common.errors import ArgumentTypeError, FileError
from bridge.data.sources.formats import FORMATS, suffix

StrPath = str | os.PathLike[str]
#: One name, or several
Sources = StrPath | Iterable[StrPath]

_WITH_DATASET = re.compile(r"(?P<file>.+\.(?:h5|hdf5)):(?P<dataset>/.+)", re.IGNORECASE)


def find(sources: Sources) -> list[tuple[str, str | None]]:
    """Return the files that are meant, each with the name of a dataset where one was given.

    Parameters
    ----------
    sources : a path, or several, in their order
        A folder stands for the files in it (not in folders below) whose names end as one of `FORMATS`; a pattern
        (``*``, ``?``, ``[...]``, ``**``) for what it matches. Both in natural order: 2 before 10.
        ``FILE.h5:/dataset`` names a dataset, also of each file of a pattern.

    Raises
    ------
    FileError
        If a folder or a pattern stands for nothing.
    ArgumentTypeError
        If it is no path.
    """
    given = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    if not given:
        raise FileError("no files are named, expected at least one")
    return [one for source in given for one in _find_one(source)]


def _find_one(source: object) -> list[tuple[str, str | None]]:
    if not isinstance(source, str | os.PathLike) or not isinstance(text := os.fspath(source), str):
        raise ArgumentTypeError(f"sources: {source!r} found, expected paths")
    path, dataset = file_and_dataset(text)
    if os.path.isdir(path):
        found = [os.path.join(path, name) for name in os.listdir(path)
                 if suffix(name) in FORMATS and not name.startswith(".")]
        found = [one for one in found if not os.path.isdir(one)]
        expected = f"files that end in {', '.join(FORMATS)}"
    elif glob.has_magic(path) and not os.path.lexists(path):
        found, expected = glob.glob(path, recursive=True), "files that it matches"
    else:
        return [(path, dataset)]
    if not found:
        raise FileError(f"{path}: nothing found, expected {expected}")
    return [(one, dataset) for one in sorted(found, key=natural)]


def file_and_dataset(name: str) -> tuple[str, str | None]:
    """Return the two parts of a name.

    >>> file_and_dataset("a/b.h5:/images"), file_and_dataset("a/b.mrc")
    (('a/b.h5', '/images'), ('a/b.mrc', None))
    """
    match = _WITH_DATASET.fullmatch(name)
    return (match["file"], match["dataset"]) if match else (name, None)


def natural(path: str) -> tuple[list[str | int], str]:
    """Return what sorts numbers in names by their value, on every machine alike.

    >>> sorted(["b10", "b9", "b09", "a"], key=natural)
    ['a', 'b09', 'b9', 'b10']
    """
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(r"([0-9]+)", path))], path
