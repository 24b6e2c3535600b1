# SPDX-License-Identifier: MIT
"""What is checked of device memory before its address goes to Fortran."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError
from bridge.engine.arrays.operand import ITEM_BYTES, Operand
from bridge.engine.library import extension
from bridge.engine.library.device_spec import DeviceSpec

#: Of addresses, in bytes: cuDNN reads up to four float32 at once
ALIGNMENT = 16


def check_on_cuda(name: str, operand: Operand, index: int) -> None:
    """Refuse memory of another device or of the host, gaps, and odd addresses.

    Raises
    ------
    ArgumentError
        Naming the argument, what was found and what was expected.
    """
    extension.check_shape(name, operand.shape)
    if not operand.contiguous:
        raise ArgumentError(f"{name}: strides {operand.strides} (in elements) for the shape {operand.shape}, expected "
                            "a C-contiguous array (contiguous() or ascontiguousarray() makes a copy that is)")
    found = operand.index
    if operand.origin != "bridge":
        found = int(extension.call("device_of", operand.address)) if operand.address else -1
        if found < 0:
            raise ArgumentError(f"{name}: the address {operand.address:#x} is not memory of a CUDA device, expected "
                                f"memory of cuda:{index}")
    if found != index or operand.index != index:
        raise ArgumentError(f"{name}: on cuda:{found if found != index else operand.index}, expected cuda:{index}")
    if operand.address % ALIGNMENT:
        raise ArgumentError(f"{name}: the address {operand.address:#x}, expected a multiple of {ALIGNMENT} bytes "
                            "(that of a copy is)")


def dtype_code(dtype: str) -> int:
    """Return the code of an element type that device memory may have."""
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ArgumentError(f"dtype: {dtype!r}, expected one of {', '.join(ITEM_BYTES)}")
    return extension.ALL_DTYPES[dtype]


def cuda_device(device: str) -> DeviceSpec:
    """Return a device's text that must name a CUDA device."""
    spec = DeviceSpec.parse(device)
    if not spec.on_gpu:
        raise ArgumentError(f"device: {device!r}, expected a CUDA device such as 'cuda:0'; on the host numpy arrays "
                            "serve")
    return spec


def checked_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return a shape that device memory may have: at most eight lengths from 1.

    >>> checked_shape(3), checked_shape([2, 5])
    ((3,), (2, 5))
    """
    lengths = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in lengths):
        raise ArgumentTypeError(f"shape: {shape!r}, expected int")
    if len(lengths) > extension.DIMENSIONS[-1] or any(n < 0 for n in lengths):
        raise ArgumentError(f"shape: {shape!r}, expected at most {extension.DIMENSIONS[-1]} lengths from 1")
    extension.check_shape("shape", lengths)
    return tuple(int(n) for n in lengths)
