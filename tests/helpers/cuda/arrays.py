# SPDX-License-Identifier: MIT
"""What the tests of CUDA arrays share: tensors on the device, allocations that are alive, streams that are not ours."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bridge
from bridge import DeviceArray
from bridge.engine.arrays import dlpack
from bridge.engine.library import extension
from tests.helpers.arrays.foreign_doubles import Capsules, CupyArray, Interface, TorchTensor
from tests.helpers.cases import Case, tensors

CASE = Case("device arrays", (2, 3, 6, 7), (4, 3, 2, 5), padding=(1, 2))


def on_device(case: Case, dtype: str = "float32") -> dict[str, DeviceArray]:
    """The tensors of a case."""
    return {name: DeviceArray.from_numpy(array) for name, array in tensors(case, dtype).items()}


@functools.cache
def warm_up() -> None:
    """What a device allocates once for all: buffers, and a workspace."""
    t = on_device(CASE)
    bridge.conv2d(t["x"], t["w"], t["b"], padding=(1, 2))
    bridge.conv2d_backward(t["dy"], t["x"], t["w"], padding=(1, 2))


def live(*, collect: bool = True) -> int:
    """Allocations alive on the device."""
    warm_up()
    if collect:
        gc.collect()
    dlpack.drop_untaken()
    return int(extension.call("devices_live"))


#: The same memory as the array of each kind of library
LIBRARIES: dict[str, Callable[[DeviceArray], Any]] = {
    "bridge": lambda a: a, "torch": TorchTensor, "cupy": CupyArray, "interface 3": Interface,
    "interface 2": lambda a: Interface(a, version=2, strides=None),
    "interface with strides": lambda a: Interface(a, strides=a.__cuda_array_interface__["strides"] or tuple(
        4 * int(np.prod(a.shape[i + 1:])) for i in range(a.ndim))),
    "dlpack": Capsules, "dlpack 0": lambda a: Capsules(a, versions=False),
    "managed": lambda a: Capsules(a, device=(13, 0)),
}


def read(array: Any) -> np.ndarray:
    """Values of any of the doubles."""
    return array.numpy() if isinstance(array, DeviceArray) else array.memory.numpy()


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What happens to streams from now on, and when work is queued: numbers, "wait", and names of calls."""
    seen: list[Any] = []
    real = extension.call

    def record(name: str, *given: Any) -> Any:
        if name == "device_stream":
            seen.append(given[1])
        elif name == "device_wait":
            seen.append("wait")
        elif name.startswith(("conv2d_f", "conv2d_b", "network_")) and name != "network_address":
            seen.append(name)
        return real(name, *given)

    monkeypatch.setattr(extension, "call", record)
    return seen


@functools.cache
def runtime() -> ctypes.CDLL:
    """The CUDA runtime that the library uses, for work that it does not know of."""
    folders = os.pathsep.join(os.environ.get(name, "") for name in ("CNN_CUDA_PATH", "CNN_CUDA_WHEELS"))
    versions = ("libcudart.so.13", "libcudart.so.12")
    names = [os.path.join(folder, name) for name in versions for folder in folders.split(os.pathsep) if folder]
    return ctypes.CDLL(next((name for name in names if os.path.isfile(name)), versions[0]))


def new_stream() -> int:
    """A CUDA stream that is not ours."""
    handle = ctypes.c_void_p()
    assert runtime().cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
    return int(handle.value or 0)


def zero_on(stream: int, array: DeviceArray) -> None:
    """Somebody else's work: zeros, queued on a stream."""
    place, size, queue = ctypes.c_void_p(array.operand.address), ctypes.c_size_t(array.nbytes), ctypes.c_void_p(stream)
    assert runtime().cudaMemsetAsync(place, 0, size, queue) == 0


def wait_for(stream: int) -> None:
    assert runtime().cudaStreamSynchronize(ctypes.c_void_p(stream)) == 0
