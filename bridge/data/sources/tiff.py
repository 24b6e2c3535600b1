# SPDX-License-Identifier: MIT
"""TIFF, by the package tifffile: each page is an image; samples of a page are its channels."""

from __future__ import annotations

import logging
import math
import os
import struct
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bridge.common.optional_packages import require
from bridge.data.sources.raw import RawLayout
from bridge.data.sources.stack import Reader, Stack, check_dtype, extents

if TYPE_CHECKING:
    from tifffile import TiffFile, TiffPage

#: Axes of a page that are read: grey, channels beside each other, channels after each other
AXES = ("YX", "YXS", "SYX")
#: Values of a tag: indices into a table of colours
PALETTE = 3


def scan(path: str, _: str | None) -> Stack:
    """Return what the pages' headers say, each of which is read.

    Raises
    ------
    ValueError
        If pages differ in shape or type, lie outside of the file, or are fewer than the file says.
    """
    require("tifffile", "TIFF files are read by it")
    from tifffile import TiffFile

    # What it logs of a damaged file is said by us, in one line; who has handlers of their own sees it still
    logging.getLogger("tifffile").addHandler(logging.NullHandler())
    size = os.stat(path).st_size
    with TiffFile(path) as file:
        offsets: list[int] = []
        kinds: list[tuple[Any, ...]] = []
        raw = True
        for number in range(len(file.pages)):
            page: Any = file.pages[number]
            kinds.append(_kind(page, number, kinds))
            _check_inside(page, number, size)
            raw = raw and page.is_final and page.axes != "YXS"
            if not page.is_final:
                _check_codec(page, number)
            offsets.append(page.dataoffsets[0])
        _check_all_pages(file)
        shape, axes, dtype = kinds[0]
        dtype = dtype.newbyteorder(file.byteorder)
    found = extents((len(kinds), *_image_shape(shape, axes)))
    if raw:
        return Stack(path, *found, dtype, RawLayout(path, tuple(offsets), (found[1], found[2], found[3]), dtype).open)
    return Stack(path, *found, dtype, lambda: TiffReader(path, axes))


def _kind(page: Any, number: int, before: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Shape, axes and type of a page, the same as of those before it."""
    if page.dtype is None:
        raise ValueError(f"page {number} has values of {page.bitspersample} bits of an unknown kind")
    check_dtype(page.dtype)
    found = page.shape, page.axes, page.dtype
    if page.axes not in AXES or page.photometric == PALETTE:
        table = " of colours in a table" * (page.photometric == PALETTE)
        raise ValueError(f"page {number} has axes {page.axes}{table}, expected {', '.join(AXES)}")
    if before and found != before[0]:
        raise ValueError(f"page {number} is {page.dtype} {page.shape}, page 0 is {before[0][2]} {before[0][0]}")
    return found


def _image_shape(shape: tuple[int, ...], axes: str) -> tuple[int, int, int]:
    """Channels, height, width."""
    height, width = shape[axes.index("Y")], shape[axes.index("X")]
    return shape[axes.index("S")] if "S" in axes else 1, height, width


def _check_inside(page: Any, number: int, size: int) -> None:
    """That strips and tiles are all there; empty ones have no bytes, which some writers leave out."""
    expected = math.prod(page.chunked)
    if len(page.dataoffsets) != expected or len(page.databytecounts) != expected:
        raise ValueError(f"page {number} has {len(page.dataoffsets)} strips or tiles, expected {expected}")
    if page.is_final and sum(page.databytecounts) < page.nbytes:
        raise ValueError(f"page {number} has {sum(page.databytecounts)} bytes, expected {page.nbytes}")
    end = max(offset + count for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True))
    if end > size or min(page.dataoffsets) < 0:
        raise ValueError(f"truncated: page {number} lies at bytes up to {end}, the file has {size}")


def _check_codec(page: Any, number: int) -> None:
    """That its numbers can be unpacked: what is missing would be found out where they are read."""
    try:
        page.decode(None, 0)
        if page.bitspersample % 8:
            # Whether there is something that unpacks them shows only where it does
            page.decode(bytes(page.nbytes), 0)
    except Exception as error:
        # tifffile says as a ValueError what the package lacks
        raise ValueError(f"page {number} ({page.compression.name}, {page.bitspersample} bits) cannot be decompressed: "
                         f"{' '.join(str(error).split())}; the package imagecodecs has many codecs") from None


def _check_all_pages(file: TiffFile) -> None:
    """That the chain of pages came to its end: tifffile takes a broken one for a short one."""
    if not len(file.pages):
        raise ValueError("it has no pages")
    last, layout, handle = file.pages[-1], file.tiff, file.filehandle
    handle.seek(last.offset)
    (tags,) = struct.unpack(layout.tagnoformat, handle.read(layout.tagnosize))
    handle.seek(last.offset + layout.tagnosize + tags * layout.tagsize)
    (following,) = struct.unpack(layout.offsetformat, handle.read(layout.offsetsize))
    if following:
        raise ValueError(f"truncated or damaged: the page after page {len(file.pages) - 1} cannot be found")
    told = (file.imagej_metadata or {}).get("images", 1) if file.is_imagej else 1
    shaped = file.shaped_metadata or ()
    told = max([told, *(math.prod(one.get("shape", ())[:-2] or (1,)) for one in shaped if one.get("truncated"))])
    if told > len(file.pages):
        raise ValueError(f"{told} images behind {len(file.pages)} pages, expected a page for each "
                         "(a BigTIFF with all pages, or HDF5)")


class TiffReader(Reader):
    """Reads pages that are compressed, tiled or of interleaved channels: the strips and tiles of a window.

    Parameters
    ----------
    path : of the file
    axes : of its pages
    """

    def __init__(self, path: str, axes: str) -> None:
        from tifffile import TiffFile

        self._file, self._path, self._axes = TiffFile(path), path, axes
        # Headers of pages are read at the file's one position
        self._lock = threading.Lock()

    def close(self) -> None:
        self._file.close()

    def read(self, image: int, rows: slice, columns: slice, out: np.ndarray) -> None:
        with self._lock:
            page: Any = self._file.pages[image]
            decode = page.decode
        out[...] = 0
        for number in _segments(page, rows, columns):
            offset, count = page.dataoffsets[number], page.databytecounts[number]
            data = os.pread(self._file.filehandle.fileno(), count, offset) if count else None
            decoded, (sample, _, row, column, _), (_, length, width, _) = decode(
                data, number, **({"jpegtables": page.jpegtables} if page.jpegtables else {}))
            if decoded is not None:
                part = np.moveaxis(decoded[0, :length, :width], -1, 0)
                _paste(part, row - rows.start, column - columns.start, out[sample:sample + len(part)])


def _segments(page: TiffPage, rows: slice, columns: slice) -> Iterator[int]:
    """Numbers of the strips and tiles that have pixels of a window."""
    if page.is_tiled:
        length, width = page.tilelength, page.tilewidth
    else:
        length, width = page.rowsperstrip, page.imagewidth
    down, across = math.ceil(page.imagelength / length), math.ceil(page.imagewidth / width)
    planes = math.prod(page.chunked) // (down * across)
    for plane in range(planes):
        for i in range(rows.start // length, (rows.stop - 1) // length + 1):
            for j in range(columns.start // width, (columns.stop - 1) // width + 1):
                yield (plane * down + i) * across + j


def _paste(part: np.ndarray, row: int, column: int, out: np.ndarray) -> None:
    """Copy what of a segment lies in the window, whose first pixel the segment's is `row`, `column` away from."""
    _, height, width = out.shape
    top, left = max(row, 0), max(column, 0)
    bottom, right = min(row + part.shape[1], height), min(column + part.shape[2], width)
    out[:, top:bottom, left:right] = part[:, top - row:bottom - row, left - column:right - column]
