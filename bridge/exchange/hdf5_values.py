# SPDX-License-Identifier: MIT
"""What h5py hands out and raises, as plain values and one-line texts."""

from __future__ import annotations

import os
from collections.abc import Sequence

import h5py
import numpy as np

from bridge.common.parallel import in_order

#: What h5py raises for damaged or strange objects; UnicodeDecodeError is a ValueError
HDF5_ERRORS = (OSError, RuntimeError, KeyError, TypeError, ValueError, OverflowError, NotImplementedError)
#: What the library says when it cannot get the memory that a file asks for
NO_MEMORY = "memory allocation failed"
#: Longest text that is read, in bytes; the Fortran reader has the same limit
LONGEST_TEXT = 2**20
#: Names in a message
NAMED = 3
#: Bytes that a thread reads at a time
PIECE = 1 << 22


def one_line(error: BaseException) -> str:
    """Return HDF5's messages, which may have several lines, as one that can be printed."""
    return clipped(" ".join(str(error).split()), 400) or type(error).__name__


def printable(text: str | bytes) -> str:
    r"""Return a text with escapes for what a terminal would act on, and for what cannot be encoded. A name that is no
    UTF-8 comes as bytes.

    >>> printable("conv\x1b[2J\udc80"), printable(b"gro\xffps")
    ('conv\\x1b[2J\\udc80', 'gro\\xffps')
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def clipped(text: str, length: int) -> str:
    """Return a text for a message: printable, and not longer than `length`, whatever a file holds.

    >>> clipped("x" * 100, 8)
    'xxxxx...'
    """
    text = printable(text[:length + 1])
    return text if len(text) <= length else text[:length - 3] + "..."


def shortened(value: object) -> str:
    """Return a value for a message."""
    return clipped(repr(value), 60)


def several(names: Sequence[str]) -> str:
    """Return the first of some names in words, and how many more there are.

    >>> several(["a", "b"]), several([*"abcdef"])
    ('a, b', 'a, b, c and 3 more')
    """
    more = f" and {len(names) - NAMED} more" * (len(names) > NAMED)
    return ", ".join(names[:NAMED]) + more


def plain(attributes: h5py.AttributeManager, name: str) -> str | float | int | None:
    """Return an attribute as a text or a number; None when it is neither, unreadable, or too long.

    Raises
    ------
    MemoryError
        If it asks for more memory than there is.
    """
    try:
        found = attributes.get_id(name)
        if found.get_storage_size() > LONGEST_TEXT:
            return None
        value = attributes[name]
    except HDF5_ERRORS as error:
        if NO_MEMORY in str(error):
            raise MemoryError(f"attribute {printable(name)}: {one_line(error)}") from None
        return None
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())[()]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.rstrip("\0 ")
    if isinstance(value, (bool, np.bool_, np.integer, int)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    return None


def read_bytes(handle: int, start: int, values: np.ndarray) -> None:
    """Fill an array from a place in an open file, in several threads: the kernel's copy is all there is to do.

    Raises
    ------
    OSError
        If the file is shorter.
    """
    data = values.reshape(-1).view(np.uint8).data
    pieces = range(0, len(data), PIECE)
    in_order(lambda first: _fill(handle, start + first, data[first : first + PIECE]), pieces)


def holds_bytes(handle: int, start: int, values: np.ndarray) -> bool:
    """Return whether a place in an open file holds the bytes of a contiguous array, read piece by piece.

    Raises
    ------
    OSError
        If the file is shorter.
    """
    numbers = values.reshape(-1).view(f"u{values.itemsize}")
    length = max(1, PIECE // values.itemsize)

    def same(first: int) -> bool:
        expected = numbers[first : first + length]
        found = np.empty_like(expected)
        _fill(handle, start + first * values.itemsize, found.view(np.uint8).data)
        return bool(np.array_equal(found, expected))

    return all(in_order(same, range(0, numbers.size, length)))


def _fill(handle: int, start: int, data: memoryview) -> None:
    done = 0
    while done < len(data):
        count = os.preadv(handle, [data[done:]], start + done)
        if count == 0:
            raise OSError("the file ends before the tensor does")
        done += count
