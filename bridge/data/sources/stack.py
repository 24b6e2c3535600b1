# SPDX-License-Identifier: MIT
"""What a scan says of a file, and what reads windows of its images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

#: Types of numbers that are read, in either byte order
DTYPES = ("uint8", "int8", "int16", "uint16", "float16", "float32", "float64")


class Reader(ABC):
    """An open file. Several threads may read from it at once."""

    @abstractmethod
    def read(self, image: int, rows: slice, columns: slice, out: np.ndarray) -> None:
        """Read a window of one image.

        Parameters
        ----------
        image : number in the file, from 0
        rows, columns : bounds of the window, inside the image
        out : float32 or float64, shape (channels, rows, columns)
        """

    @abstractmethod
    def close(self) -> None:
        """Give the file's descriptor back."""

    def parts(self, rows: slice) -> Sequence[slice]:
        """Return the rows in the parts in which they are best read; all at once where reading is not by rows."""
        return [rows]


@dataclass(frozen=True)
class Stack:
    """The images of one file, or of one dataset of it: all have one shape.

    Attributes
    ----------
    name : the file's path, with the dataset's where there is one
    count, channels, height, width : extents, each at least 1
    dtype : as it is in the file, with its byte order
    open : makes a reader
    """

    name: str
    count: int
    channels: int
    height: int
    width: int
    dtype: np.dtype
    open: Callable[[], Reader]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return self.channels, self.height, self.width

    @property
    def read_dtype(self) -> np.dtype:
        """The type that windows are read in: float64 for float64, else float32, which holds every value exactly."""
        return np.dtype(np.float64 if self.dtype.itemsize == 8 else np.float32)


def check_dtype(dtype: np.dtype) -> None:
    """
    Raises
    ------
    ValueError
        If it is none of `DTYPES`.
    """
    if dtype.newbyteorder("=").name not in DTYPES:
        raise ValueError(f"values of type {dtype.name} found, expected one of {', '.join(DTYPES)}")


def extents(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return count, channels, height and width of an array in a file: (h, w), (n, h, w) or (n, c, h, w).

    Raises
    ------
    ValueError
        If it has other dimensions, or nothing in it.

    Examples
    --------
    >>> extents((5, 4)), extents((3, 5, 4))
    ((1, 1, 5, 4), (3, 1, 5, 4))
    """
    if not 2 <= len(shape) <= 4:
        raise ValueError(f"shape {tuple(shape)} found, expected (h, w), (n, h, w) or (n, c, h, w)")
    if min(shape) < 1:
        raise ValueError(f"shape {tuple(shape)} found, expected at least one pixel")
    *front, height, width = (int(extent) for extent in shape)
    count, channels = [*front, *[1] * (2 - len(front))]
    return count, channels, height, width
