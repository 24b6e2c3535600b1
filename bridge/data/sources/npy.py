# SPDX-License-Identifier: MIT
"""npy: (h, w), (n, h, w) or (n, c, h, w) in C order."""

from __future__ import annotations

from numpy.lib.format import open_memmap

from bridge.data.sources.raw import images_in_a_row
from bridge.data.sources.stack import Stack, check_dtype, extents


def scan(path: str, _: str | None) -> Stack:
    """Return what the header says; objects are never unpickled.

    Raises
    ------
    ValueError
        If it is no npy file, truncated, or in Fortran's order.
    """
    # Only maps the file, as the header says, and is let go at once
    mapped = open_memmap(path, mode="r")
    shape, dtype, offset, in_order = mapped.shape, mapped.dtype, mapped.offset, mapped.flags.c_contiguous
    del mapped
    check_dtype(dtype)
    found = extents(shape)
    if not in_order:
        raise ValueError("saved in Fortran's order, expected C order: np.save(path, np.ascontiguousarray(array))")
    return Stack(path, *found, dtype, images_in_a_row(path, offset, found, dtype).open)
