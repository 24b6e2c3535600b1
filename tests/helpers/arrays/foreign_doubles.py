# SPDX-License-Identifier: MIT
"""Doubles of torch, cupy and others over memory of `bridge.DeviceArray`: what they show of an array, and nothing more.

They say what the real libraries say of theirs, and can be told to say something else.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bridge import DeviceArray


def row_major(shape: tuple[int, ...], step: int = 1) -> tuple[int, ...]:
    """Strides of C order."""
    found = []
    for length in reversed(shape):
        found.append(step)
        step *= length
    return tuple(reversed(found))


class TorchTensor:
    """A CUDA tensor of torch; `said` replaces attributes."""

    def __init__(self, memory: DeviceArray, index: int = 0, **said: Any) -> None:
        self.memory, self.shape, self._strides = memory, memory.shape, said.pop("strides", row_major(memory.shape))
        self._offset = said.pop("offset", 0)
        self.is_cuda, self.device = True, SimpleNamespace(type="cuda", index=index)
        self.dtype, self.layout, self.requires_grad = f"torch.{memory.dtype}", "torch.strided", False
        vars(self).update(said)

    def data_ptr(self) -> int:
        return self.memory.operand.address + self._offset

    def stride(self) -> tuple[int, ...]:
        return self._strides


class CupyArray:
    """An array of cupy."""

    def __init__(self, memory: DeviceArray, **said: Any) -> None:
        self.memory, self.shape = memory, memory.shape
        self.dtype = SimpleNamespace(name=memory.dtype)
        self.data = SimpleNamespace(ptr=memory.operand.address)
        self.device = SimpleNamespace(id=0)
        self.strides = row_major(memory.shape, {"float64": 8, "float32": 4}.get(memory.dtype, 2))
        vars(self).update(said)


class Interface:
    """Anything with ``__cuda_array_interface__``, as dictionary `said` makes it differ from version 3's."""

    def __init__(self, memory: DeviceArray, **said: Any) -> None:
        self.memory = memory
        self.shown = {"version": 3, "data": (memory.operand.address, False), "shape": memory.shape, "strides": None,
                      "stream": None, "typestr": np.dtype(memory.dtype).str} | said

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.shown


class Capsules:
    """Anything with DLPack and nothing else.

    Attributes
    ----------
    asked : the streams that it was asked to be ready on
    """

    def __init__(self, memory: DeviceArray, *, versions: bool = True, device: tuple[int, int] = (2, 0)) -> None:
        self.memory, self.versions, self.device, self.asked = memory, versions, device, []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int | None = None, **given: Any) -> Any:
        if given and not self.versions:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.asked.append(stream)
        return self.memory.__dlpack__(stream=-1, **given)


class Streams:
    """The current stream of torch or cupy."""

    def __init__(self, number: int) -> None:
        self.number = number

    def of_torch(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(cuda_stream=self.number)

    def of_cupy(self) -> SimpleNamespace:
        return SimpleNamespace(ptr=self.number)


def put_torch(monkeypatch: pytest.MonkeyPatch, number: int = 0) -> Streams:
    """A module "torch" with tensors of ours, until the end of the test; its current stream."""
    streams, module = Streams(number), ModuleType("torch")
    module.Tensor, module.cuda = TorchTensor, SimpleNamespace(current_stream=streams.of_torch)
    for name in ("float32", "float64", "float16", "bfloat16"):
        setattr(module, name, name)
    module.empty = lambda shape, dtype, device: TorchTensor(DeviceArray.empty(tuple(shape), dtype), device.index)
    monkeypatch.setitem(sys.modules, "torch", module)
    return streams


def put_cupy(monkeypatch: pytest.MonkeyPatch, number: int = 0) -> Streams:
    """The same of "cupy"."""
    streams, module = Streams(number), ModuleType("cupy")

    @contextlib.contextmanager
    def chosen(index: int) -> Iterator[None]:
        yield

    module.ndarray = CupyArray
    module.cuda = SimpleNamespace(Device=chosen, get_current_stream=streams.of_cupy)
    module.empty = lambda shape, dtype: CupyArray(DeviceArray.empty(tuple(shape), dtype.name))
    monkeypatch.setitem(sys.modules, "cupy", module)
    return streams
