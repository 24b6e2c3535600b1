# SPDX-License-Identifier: MIT
"""Tensors in the memory of a CUDA device, for users without torch or cupy, and as views of a network's memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError
from bridge.engine.arrays import dlpack, host_conversion, interop, streams
from bridge.engine.arrays.device_checks import check_on_cuda, checked_shape, cuda_device, dtype_code
from bridge.engine.arrays.operand import ITEM_BYTES, Operand
from bridge.engine.library import extension, finalizers

Array = np.ndarray


class DeviceArray:
    """A C-contiguous tensor in the memory of a CUDA device.

    It carries memory, not arithmetic: fill it, hand it to `conv2d` or a `Network`, copy it back. Made by `from_numpy`
    and `empty`; the memory is freed with the last reference. ``net.parameters[...]`` are views that belong to the
    network. torch, cupy and others take it without a copy, through DLPack or ``__cuda_array_interface__``; what they
    write to it must be finished (their stream synchronised) before this package uses it again.

    Attributes
    ----------
    shape : tuple of at most 8 int
    dtype : "float32", "float64", "float16" or "bfloat16"
    device : "cuda:0", ...

    Examples
    --------
    >>> DeviceArray()
    Traceback (most recent call last):
    ...
    bridge.common.errors.ArgumentTypeError: DeviceArray: made by from_numpy or empty
    """

    shape: tuple[int, ...]
    dtype: str
    device: str
    _address: int
    _index: int
    _owner: object

    def __init__(self, *_: Any, **__: Any) -> None:
        raise ArgumentTypeError("DeviceArray: made by from_numpy or empty")

    @classmethod
    def empty(cls, shape: int | Sequence[int], dtype: str = "float32", device: str = "cuda") -> DeviceArray:
        """Return new memory; its values are undefined.

        Raises
        ------
        ArgumentTypeError, ArgumentError
            For a wrong shape, element type or device.
        EngineError
            If there is no such device, or no memory left.
        """
        spec = cuda_device(device)
        shape = checked_shape(shape)
        code = dtype_code(dtype)
        dlpack.drop_untaken()
        extent = Operand(None, 0, shape, dtype).extent
        place = int(extension.call("device_allocate", spec.memory, code, extent))
        array = cls.at(place, shape, dtype, spec.index, None)
        release = partial(extension.call, "device_release", spec.memory, place)
        finalizers.release_with(array, release, on_gpu=True)
        return array

    @classmethod
    def from_numpy(cls, array: Array, device: str = "cuda") -> DeviceArray:
        """Return a copy of a numpy array of any order, of float32, float64, float16 or (from ml_dtypes) bfloat16.

        Raises
        ------
        As `empty`.
        """
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise ArgumentTypeError(f"array: {interop.type_name(array)}, expected numpy.ndarray")
        if array.dtype.name not in ITEM_BYTES or not array.dtype.isnative:
            raise ArgumentTypeError(f"array: {array.dtype}, expected a native {', '.join(ITEM_BYTES)}")
        found = cls.empty(array.shape, array.dtype.name, device)
        found._copy_in(np.ascontiguousarray(array))
        return found

    @classmethod
    def at(cls, address: int, shape: tuple[int, ...], dtype: str, index: int, owner: object) -> DeviceArray:
        """Return a view of memory that belongs to `owner`, which it keeps alive."""
        array = object.__new__(cls)
        array.shape, array.dtype, array.device = shape, dtype, f"cuda:{index}"
        array._address, array._index, array._owner = address, index, owner
        return array

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Return the size of the memory in bytes."""
        return self.size * ITEM_BYTES[self.dtype]

    @property
    def operand(self) -> Operand:
        """Return the array as Fortran takes it."""
        return Operand(self, self._address, self.shape, self.dtype, "bridge", self._index)

    def numpy(self) -> Array:
        """Return a copy in host memory; waits for the device. bfloat16, which numpy does not have, comes as float32."""
        host = np.empty(self.shape, host_conversion.STORAGE[self.dtype])
        with extension.lock:
            streams.own_stream(self.device, self._index)
            extension.call("device_copy_out", self.device, dtype_code(self.dtype), self.operand.extent, self._address,
                           extension.address(host))
        return host_conversion.readable(host, self.dtype)

    def astype(self, dtype: str) -> DeviceArray:
        """Return a copy with another element type, made on the device: rounded to nearest, ties to even."""
        code = dtype_code(dtype)
        found = DeviceArray.empty(self.shape, dtype, self.device)
        with streams.working(self.device, self._index, self.operand):
            extension.call("device_convert", self.device, self.size, dtype_code(self.dtype), self._address, code,
                           found._address)
        return found

    def fill(self, value: float) -> None:
        """Set all elements to one number."""
        self[...] = value

    def __setitem__(self, key: object, value: Any) -> None:
        """``array[...] = value``: a number, a numpy array that can be broadcast, or a CUDA array of the same shape."""
        if key is not Ellipsis and not (isinstance(key, slice) and key == slice(None)):
            raise ArgumentError(f"index: {key!r}, expected [...]: a DeviceArray is filled as a whole")
        if isinstance(value, DeviceArray) or (
                not isinstance(value, (int, float, np.ndarray)) and interop.cuda_index(value) is not None):
            self._assign(on_cuda("value", value, None))
        elif isinstance(value, (int, float, np.number, np.ndarray)) and not isinstance(value, np.ma.MaskedArray):
            self._copy_in(host_conversion.rounded("value", value, self.shape, self.dtype))
        else:
            raise ArgumentTypeError(f"value: {interop.type_name(value)}, expected a number, a numpy array or a "
                                    "CUDA array")

    def _assign(self, source: Operand) -> None:
        check_on_cuda("value", source, self._index)
        extension.check_shape("value", source.shape, shape=self.shape)
        if source.address == self._address and source.dtype == self.dtype:
            return
        if source.overlaps(self.operand):
            raise ArgumentError("value: shares memory with the array, expected separate memory")
        with streams.working(self.device, self._index, source, self.operand):
            extension.call("device_convert", self.device, self.size, dtype_code(source.dtype), source.address,
                           dtype_code(self.dtype), self._address)

    def _copy_in(self, host: Array) -> None:
        with extension.lock:
            streams.own_stream(self.device, self._index)
            extension.call("device_copy_in", self.device, dtype_code(self.dtype), self.operand.extent,
                           extension.address(host), self._address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3. The stream is None: what we have queued is waited for here."""
        if self.dtype == "bfloat16":
            raise AttributeError("__cuda_array_interface__: it has no name for bfloat16; DLPack has")
        streams.wait(self.device)
        return {"version": 3, "data": (self._address, False), "shape": self.shape, "strides": None, "stream": None,
                "typestr": np.dtype(self.dtype).str}

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's number for CUDA devices, and which of them."""
        return (dlpack.CUDA, self._index)

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule with this memory, which stays alive with it.

        Parameters
        ----------
        stream : where the taker will use it: that stream waits for what we have queued; None is the legacy default
            stream, and with -1 the taker sees to it itself
        max_version, dl_device, copy : as in the DLPack specification

        Raises
        ------
        BufferError
            If another device is asked for, or a stream that there is not.
        """
        number = isinstance(stream, int) and not isinstance(stream, bool)
        if stream is not None and (not number or stream < -1 or stream == 0):
            raise BufferError(f"stream: {stream!r}, expected None, -1, 1, 2 or a CUDA stream")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"dl_device: {dl_device}, expected {self.__dlpack_device__()}: nothing is copied to "
                              "other devices")
        source = self.astype(self.dtype) if copy else self
        if stream != -1:
            streams.ready_on(self.device, self._index, 1 if stream is None else stream)
        return dlpack.give(source, source._address, self.shape, self.dtype, self.__dlpack_device__(),
                           versioned=max_version is not None and max_version[0] >= 1, copied=bool(copy))

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise ArgumentTypeError("a DeviceArray lies on a CUDA device: .numpy() copies it to the host")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a DeviceArray without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise ArgumentTypeError("a DeviceArray cannot be copied or pickled; expected .numpy() and from_numpy, or "
                                ".astype(dtype) for a copy on the device")


def on_cuda(name: str, array: Any, stream: int | None) -> Operand:
    """Return any CUDA array as an operand.

    Parameters
    ----------
    name : how messages call it
    stream : where the work will be queued, if that is known

    Raises
    ------
    ArgumentTypeError, ArgumentError
        If it is none, or one that cannot be taken.
    """
    return array.operand if isinstance(array, DeviceArray) else interop.operand_of(name, array, stream)
