# SPDX-License-Identifier: MIT
"""Numbers on their way between numpy and device memory, bfloat16 among them, which numpy does not have."""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError

Array = np.ndarray

#: What holds the bits of each element type in host memory
STORAGE = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": np.uint16}


def readable(host: Array, dtype: str) -> Array:
    """Return the bits of the element type `dtype` as numbers; bfloat16 as float32, which holds it exactly.

    >>> readable(np.array([0x3F80], np.uint16), "bfloat16")
    array([1.], dtype=float32)
    """
    return (host.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else host


def rounded(name: str, value: Any, shape: tuple[int, ...], dtype: str) -> Array:
    """Return a number or an array as C-contiguous memory of a shape and an element type, rounded once.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        If it holds no numbers, or its shape cannot be broadcast.

    Examples
    --------
    >>> rounded("value", 1.00390625, (1,), "bfloat16") == 0x3F80
    array([ True])
    """
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise ArgumentTypeError(f"{name}: {array.dtype}, expected real numbers")
    try:
        array = np.broadcast_to(array, shape)
    except ValueError:
        raise ArgumentError(f"{name}: shape {array.shape}, expected {shape} or one that broadcasts to it") from None
    if dtype == "bfloat16":
        return _bfloat16(array)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return np.ascontiguousarray(array, STORAGE[dtype])


def _bfloat16(array: Array) -> Array:
    """Bits of the nearest bfloat16, ties to even; NaN stays NaN."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        single = np.ascontiguousarray(array, np.float32)
        exact = single.astype(np.float64) == array
        bits = single.view(np.uint32)
        # A number between two float32 is rounded to odd first, or it would be rounded twice
        beyond = np.abs(single.astype(np.float64)) > np.abs(np.asarray(array, np.float64))
        odd = np.where(exact | np.isnan(single), bits, np.where(beyond, bits - np.uint32(1), bits) | np.uint32(1))
        odd = np.where(np.isinf(single), bits, odd).astype(np.uint64)
    nearest = (odd + 0x7FFF + ((odd >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(single), np.uint64(0x7FC0), nearest).astype(np.uint16)
