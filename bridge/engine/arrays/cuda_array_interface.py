# SPDX-License-Identifier: MIT
"""``__cuda_array_interface__``, versions 2 and 3: a dictionary with which libraries show their device memory.

Source: Numba's documentation, "CUDA Array Interface (Version 3)".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError
from bridge.engine.arrays.operand import ITEM_BYTES, Operand


def operand_of(name: str, array: Any, interface: Any, index: int) -> Operand:
    """Return the array that an interface describes.

    Parameters
    ----------
    name : how messages call it
    array : the object that has the interface
    index : the CUDA device that its memory lies on

    Raises
    ------
    ArgumentTypeError, ArgumentError
        If the interface is of another version or not one, has a mask, or another element type.

    Examples
    --------
    >>> shown = {"version": 3, "data": (512, False), "shape": (2, 3), "typestr": "<f4", "stream": 7}
    >>> one = operand_of("x", object(), shown, 0)
    >>> one.address, one.shape, one.dtype, one.stream
    (512, (2, 3), 'float32', 7)
    """
    try:
        version, shape, typestr = interface["version"], tuple(map(int, interface["shape"])), interface["typestr"]
        address, read_only = interface["data"]
    except (TypeError, KeyError, ValueError):
        raise ArgumentTypeError(f"{name}: __cuda_array_interface__ is {interface!r}, expected a dictionary with shape, "
                                "typestr, data and version") from None
    if version not in (2, 3):
        raise ArgumentTypeError(f"{name}: __cuda_array_interface__ of version {version!r}, expected 2 or 3")
    if interface.get("mask") is not None:
        raise ArgumentTypeError(f"{name}: __cuda_array_interface__ with a mask, expected none")
    dtype = _dtype(name, typestr)
    stream = interface.get("stream")
    if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int) or stream < 1):
        raise ArgumentError(f"{name}: __cuda_array_interface__ with the stream {stream!r}, expected None, 1, 2 or a "
                            "CUDA stream")
    steps = interface.get("strides")
    return Operand(array, int(address or 0), shape, dtype, "other", index, _in_elements(name, steps, shape, dtype),
                   bool(read_only), stream, interface)


def first_address(interface: Any) -> int | None:
    """Return the address in an interface, or None where there is none."""
    try:
        return int(interface["data"][0])
    except (TypeError, KeyError, ValueError, IndexError):
        return None


def _dtype(name: str, typestr: Any) -> str:
    try:
        found = np.dtype(typestr)
    except TypeError:
        found = None
    if found is None or found.name not in ITEM_BYTES or not found.isnative:
        raise ArgumentTypeError(f"{name}: {typestr!r} in __cuda_array_interface__, expected a native float16, float32 "
                                "or float64")
    return found.name


def _in_elements(name: str, steps: Any, shape: tuple[int, ...], dtype: str) -> tuple[int, ...] | None:
    """Strides in elements; those in bytes that are no multiple of an element fit no order."""
    if steps is None:
        return None
    size = ITEM_BYTES[dtype]
    if len(steps) != len(shape) or any(int(step) % size for step in steps):
        raise ArgumentError(f"{name}: strides {tuple(steps)} bytes for the shape {shape} of {dtype}, expected one "
                            "multiple of the element's size for each dimension")
    return tuple(int(step) // size for step in steps)
