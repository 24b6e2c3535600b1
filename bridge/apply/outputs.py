# SPDX-License-Identifier: MIT
"""Files that outputs are written to, part by part, in the format of the file that the images came from.

All formats hold images at fixed places. So a file is made first, with its header, and parts are written by position:
nothing is held, or mapped into memory.
"""

from __future__ import annotations

import io
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from types import TracebackType
from typing import ClassVar

import h5py
import numpy as np

from bridge.apply.mrc_header import MrcHeader
from bridge.common.command_files import image_file
from bridge.common.errors import DivergenceError
from bridge.common.optional_packages import require
from bridge.data.sources.formats import suffix
from bridge.data.sources.stack import Stack

Shape = tuple[int, int, int]


class ImageOutput(ABC):
    """A file of images, all written in parts. A context manager, which finishes the file unless the block raises.

    Parameters
    ----------
    path : of the file, which exists and is replaced
    source : the file that its images are made of
    shape : (channels, height, width) of each image
    dtype : of the network's numbers
    scales : pixels of an output for each of an image, along the height and the width

    Attributes
    ----------
    dtype : of the numbers in the file
    offsets : bytes before each image
    most_channels : that the format holds
    """

    most_channels: ClassVar[float] = math.inf
    dtype: np.dtype
    offsets: Sequence[int]

    def __init__(self, path: str, source: Stack, shape: Shape, dtype: np.dtype,
                 scales: Sequence[Fraction] = (Fraction(1), Fraction(1))) -> None:
        self.path, self.source, self.shape, self.scales = path, source, shape, scales
        self._create(dtype.newbyteorder("<"))
        self._file = open(path, "r+b", buffering=0)  # noqa: SIM115  closed by `__exit__`

    @abstractmethod
    def _create(self, dtype: np.dtype) -> None:
        """Make the file; set `dtype` and `offsets`."""

    def _header_at_end(self) -> bytes:
        """What the file begins with, where that is known only at the end."""
        return b""

    def write(self, image: int, rows: slice, columns: slice, part: np.ndarray) -> None:
        """Write a part (channels, rows, columns) of an image."""
        _, height, width = self.shape
        try:
            with np.errstate(over="raise"):
                found = np.ascontiguousarray(part, self.dtype)
        except FloatingPointError:
            raise DivergenceError(f"outputs too large for {self.dtype.name}") from None
        for channel, block in enumerate(found):
            # Whole rows lie one behind the other
            pieces = block.reshape(1, -1) if block.shape[1] == width else block
            for number, piece in enumerate(pieces):
                at = (channel * height + rows.start + number) * width + columns.start
                self._write(piece.view(np.uint8).data, self.offsets[image] + at * self.dtype.itemsize)

    def _write(self, data: bytes | memoryview, position: int) -> None:
        left = memoryview(data)
        while left:
            done = os.pwrite(self._file.fileno(), left, position)
            position, left = position + done, left[done:]

    def __enter__(self) -> ImageOutput:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._write(self._header_at_end(), 0)
        finally:
            self._file.close()

    def _images_in_a_row(self, offset: int) -> None:
        """Set the offsets of images without gaps."""
        size = math.prod(self.shape) * self.dtype.itemsize
        self.offsets = range(offset, offset + self.source.count * size, size)

    def _behind(self, header: bytes) -> None:
        """Let the file be a header, and the images behind it."""
        self._images_in_a_row(len(header))
        with open(self.path, "wb") as file:
            file.write(header)
            file.truncate(self.offsets[-1] + math.prod(self.shape) * self.dtype.itemsize)


class NpyOutput(ImageOutput):
    """npy, with as many dimensions as the source; (n, k, h, w) where several channels come of one."""

    def _create(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        rank = np.load(self.source.name, mmap_mode="r").ndim
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {
            "descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False,
            "shape": in_dimensions(rank, self.source.count, self.shape)})
        self._behind(header.getvalue())


class MrcOutput(ImageOutput):
    """MRC in mode 2, float32, with the whole header of the source."""

    most_channels = 1

    def _create(self, dtype: np.dtype) -> None:
        self._header = MrcHeader(self.source.name, self.shape[1:], self.scales)
        self.dtype = self._header.dtype
        self._behind(self._header.data)

    def write(self, image: int, rows: slice, columns: slice, part: np.ndarray) -> None:
        super().write(image, rows, columns, part)
        self._header.count(part)

    def _header_at_end(self) -> bytes:
        return self._header.data


class Hdf5Output(ImageOutput):
    """HDF5 with a dataset of the same name, of as many dimensions, with the same attributes, of any size."""

    def _create(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        path = image_file(self.source.name) or ""
        name = self.source.name[len(path) + 1:]
        kept = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        kept.set_layout(h5py.h5d.CONTIGUOUS)
        # The place of the numbers is known at once, and nothing is written there twice
        kept.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        kept.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        linked = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        linked.set_create_intermediate_group(True)
        with h5py.File(path, "r") as source, h5py.File(
                self.path, "w", libver=("v108", "v110"), locking=False) as file:
            shape = in_dimensions(source[name].ndim, self.source.count, self.shape)
            made = h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(dtype), h5py.h5s.create_simple(shape),
                                   kept, linked)
            attributes = h5py.Dataset(made).attrs
            for key, value in source[name].attrs.items():
                kind = source[name].attrs.get_id(key).dtype
                # References would lead nowhere in another file
                if not kind.hasobject or h5py.check_string_dtype(kind):
                    attributes[key] = value
            offset = made.get_offset()
        self._images_in_a_row(offset)


class TiffOutput(ImageOutput):
    """TIFF without compression, a page for each image, channels in planes; BigTIFF where it is large."""

    def _create(self, dtype: np.dtype) -> None:
        require("tifffile", "TIFF files are written by it")
        from tifffile import TiffFile, imwrite

        self.dtype = dtype
        channels, *size = self.shape
        shape = (self.source.count, *self.shape) if channels > 1 else (self.source.count, *size)
        imwrite(self.path, shape=shape, dtype=dtype, byteorder="<", photometric="minisblack", metadata=None,
                planarconfig="separate" if channels > 1 else None)
        with TiffFile(self.path) as file:
            self.offsets = [page.dataoffsets[0] for page in file.pages]


def in_dimensions(rank: int, count: int, shape: Shape) -> tuple[int, ...]:
    """Return the shape of an array of images in so many dimensions, or more where it needs more.

    >>> in_dimensions(2, 1, (1, 5, 4)), in_dimensions(3, 7, (1, 5, 4)), in_dimensions(3, 7, (2, 5, 4))
    ((5, 4), (7, 5, 4), (7, 2, 5, 4))
    """
    if shape[0] > 1 or rank == 4:
        return count, *shape
    return shape[1:] if rank == 2 else (count, *shape[1:])


#: By the ending of the source's name
OUTPUTS: dict[str, type[ImageOutput]] = {".mrc": MrcOutput, ".mrcs": MrcOutput, ".npy": NpyOutput, ".h5": Hdf5Output,
                                    ".hdf5": Hdf5Output, ".tif": TiffOutput, ".tiff": TiffOutput}


def output_of(source: Stack) -> type[ImageOutput]:
    """Return what writes the format of a source."""
    return OUTPUTS[suffix(image_file(source.name) or "")]
