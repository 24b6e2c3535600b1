# SPDX-License-Identifier: MIT
"""An array as Fortran takes it: an address, an element type, a shape, wherever the memory lies."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bridge.engine.library import extension

#: Bytes of an element
ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}

#: The stream of memory that only this package writes to
OWN_STREAM = -1


@dataclass(eq=False, slots=True)
class Operand:
    """An array that was given, or that is to be given back.

    Attributes
    ----------
    array : the object itself, as the caller knows it
    address : of the first element
    shape : as numpy's
    dtype : name of the element type
    origin : whose array it is: "numpy", "bridge", "torch", "cupy" or "other"
    index : the CUDA device that it says it lies on; -1 for host memory
    strides : in elements, or None for C order
    read_only : it may not be written to
    stream : the CUDA stream on which it is ready, as a number; None if it is ready for everybody. torch and cupy are
        asked for theirs when it is used
    keep : what must stay alive with it
    channels_last : shape (n, c, h, w) lies in memory as (n, h, w, c)
    """

    array: Any
    address: int
    shape: tuple[int, ...]
    dtype: str
    origin: str = "numpy"
    index: int = -1
    strides: tuple[int, ...] | None = None
    read_only: bool = False
    stream: int | None = OWN_STREAM
    keep: Any = None
    channels_last: bool = False

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Return the bytes from the first element to the last, for C order."""
        return self.size * ITEM_BYTES[self.dtype]

    def as_batch(self) -> Operand:
        """Return the same memory as a batch of one.

        >>> Operand(None, 0, (2, 3), "float32").as_batch().shape
        (1, 2, 3)
        """
        strides = None if self.strides is None else (self.size, *self.strides)
        return replace(self, shape=(1, *self.shape), strides=strides)

    @property
    def extent(self) -> np.ndarray:
        """Return the shape as `extent_of` gives it."""
        return extent_of(self.shape)

    @property
    def contiguous(self) -> bool:
        """Return whether it is in C order without gaps; the stride of a dimension of one element says nothing.

        >>> Operand(None, 0, (2, 1, 3), "float32", strides=(3, 7, 1)).contiguous
        True
        >>> Operand(None, 0, (2, 3), "float32", strides=(1, 2)).contiguous
        False
        """
        if self.strides is None:
            return True
        step = 1
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length != 1 and stride != step:
                return False
            step *= length
        return True

    def overlaps(self, other: Operand) -> bool:
        """Return whether they share a byte."""
        if self.address < other.address:
            return other.address < self.address + self.nbytes
        return self.address < other.address + other.nbytes


@functools.lru_cache(maxsize=256)
def extent_of(shape: tuple[int, ...]) -> np.ndarray:
    """Return a shape in Fortran order, with ones behind, read-only: (n, c, h, w) is [w, h, c, n, 1, 1, 1, 1].

    >>> extent_of((2, 3))
    array([3, 2, 1, 1, 1, 1, 1, 1], dtype=int32)
    """
    found = np.array(shape[::-1] + (1,) * (extension.DIMENSIONS[-1] - len(shape)), dtype=np.int32)
    # Many share it
    found.flags.writeable = False
    return found
