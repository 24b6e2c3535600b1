# SPDX-License-Identifier: MIT
"""The Fortran library, made safe: the only module that touches the extension.

The extension takes addresses and believes them. Here every array is checked first: type, element type, rank,
shape, order, alignment, writability, finiteness, device. Nothing is ever copied or converted to fit.
"""

from __future__ import annotations

import atexit
import functools
import math
import os
import re
import sys
import threading
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError, BridgeError, DivergenceError, EngineError
from bridge.engine.library.device_spec import DeviceSpec
from bridge.engine.library.nvidia_wheels import name_wheels
from bridge.exchange.file_locks import lock_hint

Array = np.ndarray

#: Codes of cnn_core_kinds
DTYPES = {"float32": 1, "float64": 2}
#: With those that only convolutions on CUDA devices take
ALL_DTYPES = DTYPES | {"float16": 3, "bfloat16": 4}

#: What a file system without locks may have been the reason of
OF_FILES = re.compile(r"cannot be created|not a readable HDF5 file")
#: Exceptions by the number that a procedure ends with, where it is not just a failure
FAILURES: dict[int, type[BridgeError]] = {2: DivergenceError, 3: ArgumentError}

#: Names by numpy's element types
NAMES = {np.dtype(name): name for name in DTYPES}

#: Layouts of the tensors and the filters of a convolution, as cnn_api_convolution takes them: neither is channels_last
C_ORDER = np.zeros(2, np.int32)

#: Of Fortran's default integers
LARGEST = 2**31 - 1
#: How many dimensions a tensor may have: `max_rank` of fortran/core/tensor.f90 at most
DIMENSIONS = range(1, 9)

#: Elements up to which a temporary array is cheaper than anything else
SMALL = 1 << 12

#: Held from the choice of a stream to the work on it
lock = threading.RLock()

_api: Any = None
_found: dict[str, Any] = {}
_used_before_fork = False


def _after_fork() -> None:
    """In a child, the library has lost the threads that it had in the parent, and would wait for them for ever."""
    global _used_before_fork
    _used_before_fork = _used_before_fork or _api is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def api() -> Any:
    """Return the wrapped procedures of ``fortran/from_table/api``.

    Raises
    ------
    EngineError
        If the extension is not installed or cannot be loaded.
    """
    global _api
    if _api is None:
        name_wheels()
        try:
            import cnn_fortran
        except ImportError as error:
            raise EngineError(f"the Fortran extension cnn_fortran cannot be loaded ({error}); "
                              "build it with 'make setup' or 'pip install .'") from None
        _api = _procedures(cnn_fortran)
    return _api


def _procedures(module: ModuleType) -> Any:
    """Those of all faces together: f90wrap puts those of each Fortran module into a class with one instance."""
    faces = [value for name, value in vars(module).items() if name.startswith("cnn_api_")]
    return SimpleNamespace(**{name: getattr(face, name) for face in faces for name, value in vars(type(face)).items()
                              if isinstance(value, staticmethod)})


def call(name: str, *arguments: Any) -> Any:
    """Call a procedure that ends with (ierr, errmsg); give back what it returns before these.

    Raises
    ------
    EngineError
        With the message of the Fortran error; in a forked process whose parent had loaded the library.
    DivergenceError
        Where Fortran says that a training diverges.
    """
    if _used_before_fork:
        raise EngineError("the Fortran library was loaded before this process was forked, and its threads do not "
                          "survive a fork; use the start method 'spawn', or import bridge after the fork")
    procedure = _found.get(name) or _find(name)
    if str in map(type, arguments):
        # f2py takes bytes as they are, but only ASCII from a text
        arguments = tuple([_encoded(value) if isinstance(value, str) else value for value in arguments])
    found = procedure(*arguments)
    if found[-2] != 0:
        message = found[-1]
        text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        text = text.strip()
        # Messages of files begin with their names
        hint = lock_hint(text.partition(": ")[0]) if OF_FILES.search(text) else ""
        raise FAILURES.get(int(found[-2]), EngineError)(text + hint)
    return found[0] if len(found) == 3 else found[:-2]


@functools.lru_cache(maxsize=64)
def _encoded(text: str) -> bytes:
    """Mostly the name of a device, again and again."""
    return os.fsencode(text)


def _find(name: str) -> Any:
    """A procedure, remembered: to look it up takes as long as to call it."""
    _found[name] = getattr(api(), name)
    return _found[name]


@functools.cache
def close_at_exit() -> None:
    """Give the CUDA devices back at the end of the program, while the CUDA runtime is still there."""
    atexit.register(close_devices)


def close_devices() -> None:
    """Give the CUDA devices back; nothing on them may be in use."""
    if not _used_before_fork:
        call("devices_close")


def forked() -> bool:
    """Return whether this process is the child of one that had loaded the library: what the library holds is the
    parent's.
    """
    return _used_before_fork


def fortran_version() -> str:
    """Return the version of the Fortran library."""
    text = api().version_text()
    return (text.decode() if isinstance(text, bytes) else str(text)).strip()


def run_file(fixture: str | os.PathLike[str], result: str | os.PathLike[str], device: str = "cpu",
             precision: str = "") -> None:
    """Do the work of ``cnn_step`` in this process.

    Raises
    ------
    EngineError
        With the same messages as the program; nothing is written then.
    """
    call("run_file", path_text("fixture", fixture), path_text("result", result), device_text(device), precision)


def path_text(name: str, path: str | os.PathLike[str]) -> str:
    """Return a file name that Fortran can take: no NUL, no trailing blank."""
    try:
        text = os.fspath(path)
    except TypeError:
        raise ArgumentTypeError(f"{name}: {path!r}, expected a file name") from None
    if not isinstance(text, str) or not text or "\0" in text or text != text.rstrip(" "):
        raise ArgumentError(f"{name}: {text!r} is not a usable file name")
    _check_encodable(name, text)
    return text


def device_text(device: str) -> str:
    """Return a device's name with its options, checked; whether there is such a device is for the library to say."""
    spec = DeviceSpec.parse(device)
    if spec.on_gpu:
        close_at_exit()
    return spec.text


def _check_encodable(name: str, text: str) -> None:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ArgumentError(f"{name}: {text!r} cannot be encoded as {sys.getfilesystemencoding()}") from None


def dtype_code(name: str, dtype: str) -> int:
    """Return the code of an element type by its name."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ArgumentError(f"{name}: {dtype!r}, expected 'float32' or 'float64'")
    return DTYPES[dtype]


def check_array(name: str, array: object, *, dtype: str | None = None, ndim: int | range | None = None,
                shape: Sequence[int] | None = None, writable: bool = False, finite: bool = False) -> Array:
    """Return an array that may be handed to Fortran by its address; the same object, never a copy.

    Parameters
    ----------
    name : how the message calls it
    dtype : "float32" or "float64"; None allows both
    ndim, shape : what is expected
    writable : it will be written to
    finite : NaN and infinity are refused

    Raises
    ------
    ArgumentTypeError, ArgumentError
        Naming the argument, what was found and what was expected.

    Examples
    --------
    >>> check_array("x", np.zeros((2, 3), np.float32), ndim=2).shape
    (2, 3)
    """
    found, _ = check_layout(name, array, dtype, ndim, shape, writable)
    if finite:
        check_finite(name, found)
    return found


def check_layout(name: str, array: object, dtype: str | None = None, ndim: int | range | None = None,
                 shape: Sequence[int] | None = None, writable: bool = False,
                 image: bool = False) -> tuple[Array, bool]:
    """Check all that `check_array` does but the values.

    Parameters
    ----------
    image : shape (n, c, h, w) in memory as (n, h, w, c), torch's channels_last, will do, too

    Returns
    -------
    array : the same object
    channels_last : bool

    Raises
    ------
    As `check_array`.
    """
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        kind = f"{type(array).__module__}.{type(array).__qualname__}"
        hint = " (use .detach().numpy())" if kind.startswith("torch") else ""
        raise ArgumentTypeError(f"{name}: {kind}, expected numpy.ndarray{hint}")
    flags = array.flags
    channels_last = _check_form(name, array.dtype, array.shape, array.strides, flags.aligned, dtype, ndim,
                                None if shape is None else tuple(shape), image)
    if writable and not flags.writeable:
        raise ArgumentError(f"{name}: read-only, expected an array that can be written to")
    return array, channels_last


@functools.lru_cache(maxsize=1024)
def _check_form(name: str, kind: np.dtype[Any], found: tuple[int, ...], strides: tuple[int, ...], aligned: bool,
                dtype: str | None, ndim: int | range | None, shape: tuple[int, ...] | None, image: bool) -> bool:
    """Return whether it is channels_last. Mostly the same arrays come again and again: what is good is remembered.

    Raises
    ------
    ArgumentTypeError, ArgumentError
    """
    _check_dtype(name, kind, dtype)
    check_shape(name, found, ndim, shape)
    if not aligned:
        raise ArgumentError(f"{name}: its address is no multiple of {kind.alignment} bytes, expected an aligned array "
                            "(.copy() makes one)")
    channels_last = image and _is_channels_last(found, strides, kind.itemsize)
    if not (channels_last or _is_c_order(found, strides, kind.itemsize)):
        wanted = "C-contiguous or channels_last" if image else "C-contiguous"
        raise ArgumentError(f"{name}: strides {strides} for the shape {found}, expected a {wanted} "
                            "array (numpy.ascontiguousarray makes a copy that is)")
    return channels_last


def _is_channels_last(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bool:
    """Whether shape (n, c, h, w) lies in memory as (n, h, w, c) does, and not in C order, too.

    Of one channel it may be both; then the strides say what is meant, as those of torch do.

    >>> image = np.zeros((1, 4, 5, 3))
    >>> [_is_channels_last(one.shape, one.strides, 8) for one in (image, image.transpose(0, 3, 1, 2))]
    [False, True]
    """
    if len(shape) != 4:
        return False
    n, c, h, w = shape
    if _is_c_order(shape, strides, item) and not (c == 1 and strides[1] == item and h * w > 1):
        return False
    return _is_c_order((n, h, w, c), tuple(strides[axis] for axis in (0, 2, 3, 1)), item)


def _is_c_order(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bool:
    """Whether it is without gaps in C order; the stride of a dimension of one element says nothing."""
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != item:
            return False
        item *= length
    return True


def check_finite(name: str, array: Array) -> None:
    """Refuse NaN and infinity.

    Raises
    ------
    ArgumentError
    """
    if not _all_finite(array):
        raise ArgumentError(f"{name}: holds NaN or infinity, expected finite values")


def check_shape(name: str, found: tuple[int, ...], ndim: int | range | None = None,
                shape: Sequence[int] | None = None) -> None:
    """Refuse a shape with another number of dimensions, another one than `shape`, or one without elements.

    Raises
    ------
    ArgumentError
    """
    if ndim is not None and len(found) not in (ndim if isinstance(ndim, range) else (ndim,)):
        expected = f"{ndim[0]} to {ndim[-1]}" if isinstance(ndim, range) else ndim
        raise ArgumentError(f"{name}: {len(found)} dimensions, shape {found}, expected {expected} dimensions")
    if shape is not None and found != tuple(shape):
        raise ArgumentError(f"{name}: shape {found}, expected {tuple(shape)}")
    if 0 in found:
        raise ArgumentError(f"{name}: empty, shape {found}, expected at least one element")
    if max(found, default=0) > LARGEST:
        raise ArgumentError(f"{name}: shape {found}, expected lengths below 2**31")


def _check_dtype(name: str, kind: np.dtype[Any], dtype: str | None) -> None:
    if not kind.isnative or kind.name not in DTYPES or (dtype and kind.name != dtype):
        found = kind.name if kind.isnative else f"{kind.name} of foreign byte order"
        raise ArgumentTypeError(f"{name}: {found}, expected {dtype or 'float32 or float64'}")


def _all_finite(array: Array) -> bool:
    """A small one where it is; else by all threads."""
    if array.size <= SMALL:
        # The sum of squares is the cheaper question, and answers all but those that overflow
        return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())
    return bool(call("array_finite", DTYPES[NAMES[array.dtype]], array.size, array.ctypes.data))


def address(array: Array | None) -> int:
    """Return the address of the first element; 0 for None."""
    return 0 if array is None else array.ctypes.data


def check_device(device: str) -> None:
    """Raise what the library says of a device that it does not have.

    Raises
    ------
    EngineError
    """
    call("device_check", device_text(device))
