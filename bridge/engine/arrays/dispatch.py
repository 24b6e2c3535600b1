# SPDX-License-Identifier: MIT
"""Where an operation takes place: with numpy arrays on the host, or with CUDA arrays on a GPU.

Both places check the same of every argument, give results, and never copy or convert an array to fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError
from bridge.engine.arrays import interop, streams
from bridge.engine.arrays.device_array import DeviceArray, on_cuda
from bridge.engine.arrays.device_checks import check_on_cuda
from bridge.engine.arrays.operand import Operand
from bridge.engine.library import extension
from bridge.engine.library.device_spec import DeviceSpec

#: Bytes of a cache line, and of results that are large (fortran/core/streaming.f90)
LINE, LARGE = 64, 1 << 23


class Host:
    """numpy arrays; inputs are checked for NaN and infinity."""

    dtypes: Sequence[str] = tuple(extension.DTYPES)

    def __init__(self, spec: DeviceSpec) -> None:
        self.text = spec.text

    def operand(self, name: str, array: Any, *, like: Operand | None = None, dtype: str | None = None,
                ndim: int | range | None = None, shape: Sequence[int] | None = None, writable: bool = False,
                values: bool = True, image: bool = False) -> Operand:
        """Return an argument as Fortran takes it, the same memory.

        Parameters
        ----------
        name : how messages call it
        like : an argument before it, with the same element type
        dtype : the element type; None takes that of `like`, or any of `dtypes`
        ndim, shape : what is expected
        writable : it is a result
        values : they are read, and not only the shape
        image : it may be a tensor of torch on the host, and channels_last; then the kernels search it for NaN as they
            read it

        Raises
        ------
        ArgumentTypeError, ArgumentError
            Naming the argument, what was found and what was expected.
        """
        dtype = like.dtype if dtype is None and like is not None else dtype
        given, origin = array, "numpy"
        if not isinstance(array, np.ndarray):
            index = index_of(array)
            if index is not None:
                raise ArgumentTypeError(f"{name}: {interop.type_name(array)} on cuda:{index}, expected numpy.ndarray "
                                        f"for the device {self.text} (device='cuda:{index}' computes there)")
            if image and interop.is_torch(array):
                array, origin = interop.torch_as_numpy(name, array), "torch"
        found, last = extension.check_layout(name, array, dtype, ndim, shape, writable, image)
        if values and not writable and not last:
            extension.check_finite(name, found)
        if origin == "numpy":
            return _of_numpy(found, last)
        # torch says the address in a tenth of numpy's time
        return Operand(given, given.data_ptr(), found.shape, extension.NAMES[found.dtype], origin, keep=found,
                       channels_last=last)

    def empty(self, shape: tuple[int, ...], like: Operand, *, channels_last: bool = False) -> Operand:
        """Return a new array for a result, numpy's or torch's as `like` is."""
        if channels_last:
            n, c, h, w = shape
            array = _empty((n, h, w, c), np.dtype(like.dtype)).transpose(0, 3, 1, 2)
        else:
            array = _empty(shape, np.dtype(like.dtype))
        operand = _of_numpy(array, channels_last)
        if like.origin == "torch":
            operand.array, operand.origin = interop.torch_from_numpy(array), "torch"
        return operand

    def working(self, *operands: Operand) -> AbstractContextManager[None]:
        """Prepare calls of Fortran that use these operands: there is nothing to do."""
        return nullcontext()


class Cuda:
    """CUDA arrays of any library. They are not searched for NaN, which would wait for the device."""

    dtypes: Sequence[str] = tuple(extension.ALL_DTYPES)

    def __init__(self, spec: DeviceSpec) -> None:
        self.text, self.index = spec.text, spec.index
        extension.close_at_exit()

    def operand(self, name: str, array: Any, *, like: Operand | None = None, dtype: str | None = None,
                ndim: int | range | None = None, shape: Sequence[int] | None = None, writable: bool = False,
                values: bool = True, image: bool = False) -> Operand:
        """Return an argument as Fortran takes it, the same memory, as `Host.operand` does, but always in C order."""
        if index_of(array) is None:
            raise ArgumentTypeError(f"{name}: {interop.type_name(array)}, expected an array on "
                                    f"cuda:{self.index} ({interop.advice(name)})")
        found = on_cuda(name, array, None if like is None else streams.stream_of(like)[0])
        dtype = like.dtype if dtype is None and like is not None else dtype
        if found.dtype != dtype and (dtype is not None or found.dtype not in self.dtypes):
            raise ArgumentTypeError(f"{name}: {found.dtype}, expected {dtype or ', '.join(self.dtypes)}")
        extension.check_shape(name, found.shape, ndim, shape)
        check_on_cuda(name, found, self.index)
        if writable and found.read_only:
            raise ArgumentError(f"{name}: read-only, expected an array that can be written to")
        return found

    def empty(self, shape: tuple[int, ...], like: Operand, *, channels_last: bool = False) -> Operand:
        """Return a new array of the library that `like` belongs to; of ours where it is neither torch nor cupy."""
        found = interop.empty_like(like, shape)
        return DeviceArray.empty(shape, like.dtype, f"cuda:{self.index}").operand if found is None else found

    def working(self, *operands: Operand) -> AbstractContextManager[None]:
        """Queue calls of Fortran that use these operands on the stream of the first."""
        return streams.working(self.text, self.index, *operands)


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Undefined values. Large arrays begin with a cache line: then Fortran can write them past the cache."""
    size = math.prod(shape)
    if size * dtype.itemsize < LARGE:
        return np.empty(shape, dtype)
    memory = np.empty(size + LINE // dtype.itemsize, dtype)
    start = -memory.ctypes.data % LINE // dtype.itemsize
    return memory[start:start + size].reshape(shape)


Place = Host | Cuda
#: Where arrays of the host are, unless something else is asked for
_CPU = Host(DeviceSpec.parse("cpu"))


def of_text(device: str) -> Place:
    """Return the place of a device's text."""
    spec = DeviceSpec.parse(device)
    return Cuda(spec) if spec.on_gpu else Host(spec)


def of(device: str | None, array: Any) -> Place:
    """Return the place of a device's text, or, where none is given, that of an array.

    >>> of(None, np.zeros(1)).text
    'cpu'
    """
    if device is not None:
        return of_text(device)
    index = None if isinstance(array, np.ndarray) else index_of(array)
    return _CPU if index is None else of_text(f"cuda:{index}")


def index_of(array: Any) -> int | None:
    """Return the CUDA device that an array lies on; None if it is on none."""
    return array.operand.index if isinstance(array, DeviceArray) else interop.cuda_index(array)


def refuse_overlap(out: Operand, *others: Operand | None) -> None:
    """Refuse an `out` that shares a byte with an input.

    Raises
    ------
    ArgumentError
    """
    for other in others:
        if other is not None and out.overlaps(other):
            raise ArgumentError("out: shares memory with an input, expected separate memory")


def _of_numpy(array: np.ndarray, channels_last: bool) -> Operand:
    return Operand(array, extension.address(array), array.shape, extension.NAMES[array.dtype],
                   channels_last=channels_last)
