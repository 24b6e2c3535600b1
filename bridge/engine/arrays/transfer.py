# SPDX-License-Identifier: MIT
"""numpy arrays to a device and back, for programs and tests that run the same on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bridge.common.errors import ArgumentTypeError
from bridge.engine.arrays import interop
from bridge.engine.arrays.device_array import DeviceArray
from bridge.engine.library.device_spec import DeviceSpec

Array = np.ndarray


def to_device(array: Array, device: str) -> Any:
    """Return what an operation on `device` takes: a copy on the GPU, or for a device on the host the array itself.

    >>> x = np.ones(3)
    >>> to_device(x, "cpu") is x
    True
    """
    spec = DeviceSpec.parse(device)
    return DeviceArray.from_numpy(array, spec.memory) if spec.on_gpu else array


def to_host(array: Any) -> Array:
    """Return a numpy array: a copy of a CUDA array of any library, or the array itself.

    >>> x = np.ones(3)
    >>> to_host(x) is x
    True
    """
    if isinstance(array, np.ndarray):
        return array
    if isinstance(array, DeviceArray):
        return array.numpy()
    index = interop.cuda_index(array)
    if index is None:
        raise ArgumentTypeError(f"array: {interop.type_name(array)}, expected numpy.ndarray or a CUDA array")
    source = interop.operand_of("array", array)
    copy = DeviceArray.empty(source.shape, source.dtype, f"cuda:{index}")
    copy[...] = array
    return copy.numpy()


def with_numpy(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """Return a function of arrays and a device as one of numpy arrays: all that go in or come out are copied.

    >>> from bridge.engine.network.functional import conv2d
    >>> with_numpy(conv2d, "cpu")(np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 2))).item()
    4.0
    """
    def moved(value: Any) -> Any:
        return to_device(value, device) if isinstance(value, np.ndarray) else value

    def back(value: Any) -> Any:
        return value if value is None else to_host(value)

    def call(*given: Any, **named: Any) -> Any:
        found = function(*map(moved, given), **{name: moved(value) for name, value in named.items()}, device=device)
        return tuple(map(back, found)) if isinstance(found, tuple) else back(found)

    return call
