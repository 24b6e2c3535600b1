# SPDX-License-Identifier: MIT
"""Which module reads a file, by the ending of its name; and what goes wrong in a library, as one clear reason."""

from __future__ import annotations

import os
from collections.abc import Callable

from bridge.common.errors import BridgeError, FileError
from bridge.data.sources import hdf5, mrc, npy, tiff
from bridge.data.sources.stack import Stack

#: Endings of names, each with what scans such a file: ``scan(path, dataset)``
FORMATS: dict[str, Callable[[str, str | None], Stack]] = {
    ".mrc": mrc.scan, ".mrcs": mrc.scan, ".h5": hdf5.scan, ".hdf5": hdf5.scan, ".tif": tiff.scan, ".tiff": tiff.scan,
    ".npy": npy.scan}


def suffix(path: str) -> str:
    """
    >>> suffix("a/B.MRC")
    '.mrc'
    """
    return os.path.splitext(path)[1].lower()


def scan_file(path: str, dataset: str | None = None) -> Stack:
    """Return what is in a file, from its header.

    Raises
    ------
    FileError
        If it is missing, no regular file, of an unknown format, empty, truncated, or not what its header says.
    BridgeError
        If the package that reads it is not installed.
    """
    if not os.path.exists(path):
        file, colon, rest = path.rpartition(":")
        hint = f", expected {file}:/{rest} for a dataset of {file}" if colon and os.path.isfile(file) else ""
        raise FileError(f"{path}: no such file{hint}")
    # A pipe would be waited for
    if not os.path.isfile(path):
        raise FileError(f"{path}: not a file")
    if suffix(path) not in FORMATS:
        raise FileError(f"{path}: a name that ends in {suffix(path) or 'nothing'}, expected {', '.join(FORMATS)}")
    if os.path.getsize(path) == 0:
        raise FileError(f"{path}: empty")
    try:
        return FORMATS[suffix(path)](path, dataset)
    except BridgeError:
        raise
    except Exception as error:  # four libraries, each with exceptions of its own, on files that may hold anything
        raise FileError(f"{path}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return what a library says, in one line.

    >>> reason(ValueError("first\\nsecond")), reason(MemoryError())
    ('first second', 'MemoryError')
    """
    return " ".join(str(error).split()) or type(error).__name__
