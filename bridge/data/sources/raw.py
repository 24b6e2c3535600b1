# SPDX-License-Identifier: MIT
"""Images that lie in a file as in memory: MRC, npy, and TIFF without compression.

Windows are read at their positions (pread) and not through a mapping of the file: a file that somebody cuts meanwhile
is an error then and not the end of the process (SIGBUS), and no page of the file counts as memory of this process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bridge.common.errors import FileError
from bridge.data.sources.buffers import empty
from bridge.data.sources.stack import Reader

#: Bytes that are read at once, and looked at while they are in a core's cache
BLOCK = 1 << 19
#: Bytes between the parts of two rows that are read along with them: faster than to read each row by itself, from
#: a disk and from memory
GAP = 1 << 15


@dataclass(frozen=True)
class RawLayout:
    """Where images lie in a file.

    Attributes
    ----------
    path : of the file
    offsets : bytes before each image
    shape : channels, height, width of each image, in C order
    dtype : with the byte order of the file
    """

    path: str
    offsets: Sequence[int]
    shape: tuple[int, int, int]
    dtype: np.dtype

    @property
    def image_bytes(self) -> int:
        """Of one image; more than a machine's integers hold where a header says so."""
        channels, height, width = self.shape
        return channels * height * width * self.dtype.itemsize

    def open(self) -> RawReader:
        """Return a reader of the images."""
        return RawReader(self)


def images_in_a_row(path: str, offset: int, extents: tuple[int, int, int, int], dtype: np.dtype) -> RawLayout:
    """Return the layout of images that follow each other without gaps.

    Parameters
    ----------
    path : of the file
    offset : bytes before the first image
    extents : count, channels, height, width
    dtype : with the byte order of the file

    Raises
    ------
    ValueError
        If the file is shorter.
    """
    count, *shape = extents
    size = shape[0] * shape[1] * shape[2] * dtype.itemsize
    expected, found = offset + count * size, os.stat(path).st_size
    if found < expected:
        raise ValueError(f"truncated: {found} bytes found, its header announces {expected}")
    return RawLayout(path, range(offset, expected, size), (shape[0], shape[1], shape[2]), dtype)


class RawReader(Reader):
    """Reads a `RawLayout`."""

    def __init__(self, layout: RawLayout) -> None:
        self._layout = layout
        self._file = open(layout.path, "rb", buffering=0)  # noqa: SIM115  closed by `close`

    def close(self) -> None:
        self._file.close()

    def parts(self, rows: slice) -> Sequence[slice]:
        step = max(1, BLOCK // (self._layout.shape[2] * self._layout.dtype.itemsize))
        return [slice(first, min(first + step, rows.stop)) for first in range(rows.start, rows.stop, step)]

    def read(self, image: int, rows: slice, columns: slice, out: np.ndarray) -> None:
        _, height, width = self._layout.shape
        size = self._layout.dtype.itemsize
        for channel, part in enumerate(out):
            start = self._layout.offsets[image] + (channel * height + rows.start) * width * size
            if (width - part.shape[1]) * size > GAP:
                self._read_rows(start + columns.start * size, width * size, part)
            else:
                self._read_band(start, width, columns, part)

    def _read_rows(self, start: int, step: int, part: np.ndarray) -> None:
        raw = part if part.dtype == self._layout.dtype else np.empty(part.shape, self._layout.dtype)
        for number, row in enumerate(raw):
            self._fill(start + number * step, row)
        if raw is not part:
            part[...] = raw

    def _read_band(self, start: int, width: int, columns: slice, part: np.ndarray) -> None:
        """All of each row."""
        if part.dtype == self._layout.dtype and part.shape[1] == width and part.flags.c_contiguous:
            self._fill(start, part)
            return
        raw = empty((part.shape[0], width), self._layout.dtype)
        self._fill(start, raw)
        part[...] = raw[:, columns]

    def _fill(self, start: int, array: np.ndarray) -> None:
        """Read the bytes of a contiguous array; the system may give them in several pieces."""
        left = array.reshape(-1).view(np.uint8).data
        while left:
            got = os.preadv(self._file.fileno(), [left], start)
            if got == 0:
                raise FileError(f"{self._layout.path}: ends at byte {start}, where more was when it was scanned")
            start, left = start + got, left[got:]
