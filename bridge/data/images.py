# SPDX-License-Identifier: MIT
"""Images of many files under one number each; only windows of them are read."""

from __future__ import annotations

import math
import weakref
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from types import TracebackType
from typing import Literal

import numpy as np

from bridge.common.errors import ArgumentError, BridgeError, FileError
from bridge.common.progress import Report
from bridge.data.bad_file import BadFile as BadFile
from bridge.data.bad_file import ValuesError
from bridge.data.find import Sources, find
from bridge.data.open_files import OpenFiles
from bridge.data.sources.buffers import empty
from bridge.data.sources.formats import reason, scan_file
from bridge.data.sources.stack import Stack

#: What becomes of a file that is none, truncated, or does not fit the others
OnBad = Literal["refuse", "skip"]
#: Files that stay open
OPEN_FILES = 64
#: All rows, or all columns
ALL = slice(None)


class Images:
    """The images of files, numbered through: those of the first file, then those of the second, ...

    Of each file only the header is read at first. Windows are read by `read`, by any number of threads; h5py lets one
    thread work at a time. A context manager; otherwise the files are closed when it is no longer used.

    Parameters
    ----------
    sources : see `bridge.data.find.find`
        Paths, folders, patterns; MRC, HDF5 (``FILE.h5:/dataset``), TIFF, npy.
    on_bad : what becomes of files that are missing, truncated, of an unknown type or of another number of channels
        "refuse" is an error, "skip" lists them in `bad`.
    open_files : how many stay open; one more for each thread that reads
    report : called with (files done, files) while headers are read

    Attributes
    ----------
    stacks : tuple of Stack
        What is known of each file: name, count, channels, height, width, dtype.
    bad : tuple of BadFile

    Raises
    ------
    FileError
        With the name of each bad file and the reason; if none is left, too.
    BridgeError
        If the package that reads a format is not installed.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(os.path.join(folder, "stack.npy"), np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
    ...     with Images(folder) as images:
    ...         print(len(images), images.shape(1), images.read(1, slice(0, 2), slice(1, 3)).tolist())
    2 (1, 3, 4) [[[13.0, 14.0], [17.0, 18.0]]]
    """

    def __init__(self, sources: Sources, *, on_bad: OnBad = "refuse", open_files: int = OPEN_FILES,
                 report: Report | None = None) -> None:
        self._take(*refused(scan(sources, report), on_bad), open_files)

    @classmethod
    def of_stacks(cls, stacks: Iterable[Stack], bad: Iterable[BadFile] = (), open_files: int = OPEN_FILES) -> Images:
        """Return the images of files that were scanned before."""
        made = cls.__new__(cls)
        made._take(tuple(stacks), tuple(bad), open_files)
        return made

    def _take(self, stacks: tuple[Stack, ...], bad: tuple[BadFile, ...], open_files: int) -> None:
        if not stacks:
            raise FileError(f"no images are left: {'; '.join(one.reason for one in bad)}")
        self.stacks, self.bad = stacks, bad
        #: The number of the first image of each file, and of all
        self._firsts = [0, *accumulate(stack.count for stack in stacks)]
        self._open = OpenFiles(open_files)
        self.close = weakref.finalize(self, self._open.close)

    def __len__(self) -> int:
        return self._firsts[-1]

    def __enter__(self) -> Images:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def place(self, image: int) -> tuple[int, int]:
        """Return the number of an image's file in `stacks`, and the image's number in it.

        Raises
        ------
        ArgumentError
            If there is no such image.
        """
        if not 0 <= image < len(self):
            raise ArgumentError(f"image: {image}, expected 0 to {len(self) - 1}")
        file = bisect_right(self._firsts, image) - 1
        return file, image - self._firsts[file]

    def shape(self, image: int) -> tuple[int, int, int]:
        """Return channels, height and width of an image."""
        return self.stacks[self.place(image)[0]].shape

    def dtype(self, image: int) -> np.dtype:
        """Return the type that `read` gives: float64 for float64, else float32, which holds every value exactly."""
        return self.stacks[self.place(image)[0]].read_dtype

    def name(self, image: int) -> str:
        """Return the file of an image, with its number there where the file has several."""
        file, number = self.place(image)
        stack = self.stacks[file]
        return f"{stack.name}, image {number}" if stack.count > 1 else stack.name

    def read(self, image: int, rows: slice = ALL, columns: slice = ALL, out: np.ndarray | None = None) -> np.ndarray:
        """Read a window of an image, in the file's own units.

        Parameters
        ----------
        image : from 0
        rows, columns : bounds of the window, in pixels
        out : of the type of `dtype`, shape (channels, rows, columns): what to read into; None makes it

        Returns
        -------
        window : float32 or float64, shape (channels, rows, columns)

        Raises
        ------
        ArgumentError
            If the window is empty or not inside of the image, or `out` has another shape or type.
        FileError
            If a value is NaN or infinite, with its position in the image; if the file cannot be read.
        """
        file, number = self.place(image)
        stack = self.stacks[file]
        high, wide = window(rows, stack.height, "rows"), window(columns, stack.width, "columns")
        shape = (stack.channels, high.stop - high.start, wide.stop - wide.start)
        if out is None:
            out = empty(shape, stack.read_dtype)
        elif out.shape != shape or out.dtype != stack.read_dtype:
            raise ArgumentError(f"out: {out.dtype} {out.shape}, expected {stack.read_dtype} {shape}")
        try:
            with self._open.borrowed(file, stack.open) as reader:
                for part in reader.parts(high):
                    block = out[:, part.start - high.start:part.stop - high.start]
                    reader.read(number, part, wide, block)
                    if stack.dtype.kind == "f" and not finite(block):
                        raise ValuesError(f"{self.name(image)}: {_first_wrong(block, part.start, wide.start)}")
        except BridgeError:
            raise
        except Exception as error:  # four libraries, each with exceptions of its own
            raise FileError(f"{self.name(image)}: cannot be read: {reason(error)}") from error
        return out


def scan(sources: Sources, report: Report | None = None) -> list[Stack | BadFile]:
    """Return what is known of each file, in order. Bad is also a file of another number of channels than the first."""
    found: list[Stack | BadFile] = []
    first: Stack | None = None
    files = find(sources)
    for number, (path, dataset) in enumerate(files):
        try:
            stack = scan_file(path, dataset)
            first = first or stack
            if stack.channels != first.channels:
                raise FileError(f"{stack.name}: {stack.channels} channels found, {first.name} has {first.channels}")
            found.append(stack)
        except FileError as error:
            found.append(BadFile(f"{path}:{dataset}" if dataset else path, str(error)))
        if report:
            report(number + 1, len(files))
    return found


def refused(found: Iterable[Stack | BadFile], on_bad: OnBad) -> tuple[tuple[Stack, ...], tuple[BadFile, ...]]:
    """Return good files and bad ones.

    Raises
    ------
    FileError
        If there are bad ones that are not to be skipped.
    """
    if on_bad not in ("refuse", "skip"):
        raise ArgumentError(f"on_bad: {on_bad!r}, expected 'refuse' or 'skip'")
    both = list(found)
    bad = tuple(one for one in both if isinstance(one, BadFile))
    if bad and on_bad == "refuse":
        raise FileError("; ".join(one.reason for one in bad))
    return tuple(one for one in both if isinstance(one, Stack)), bad


def window(bounds: slice, extent: int, name: str) -> slice:
    """Return bounds as two numbers.

    Raises
    ------
    ArgumentError
        If nothing lies between them, or something outside of the image.

    Examples
    --------
    >>> window(slice(2, None), 5, "rows")
    slice(2, 5, None)
    """
    start = 0 if bounds.start is None else int(bounds.start)
    stop = extent if bounds.stop is None else int(bounds.stop)
    if not 0 <= start < stop <= extent or bounds.step not in (None, 1):
        raise ArgumentError(f"{name}: {start} to {stop}{f' by {bounds.step}' * (bounds.step not in (None, 1))} found, "
                            f"expected a part of 0 to {extent}")
    return slice(start, stop)


def finite(block: np.ndarray) -> bool:
    """Return whether nothing is NaN or infinite: the extremes are numbers then, and three times faster had than all.

    >>> finite(np.array([3e38, -3e38], np.float32)), finite(np.array([1.0, np.nan]))
    (True, False)
    """
    return math.isfinite(block.min()) and math.isfinite(block.max())


def _first_wrong(block: np.ndarray, row: int, column: int) -> str:
    channel, i, j = (int(k) for k in np.argwhere(~np.isfinite(block))[0])
    return (f"{block[channel, i, j]} at channel {channel}, row {row + i}, column {column + j}, "
            "expected finite values")
