# SPDX-License-Identifier: MIT
"""DLPack capsules, read and made with ctypes: how arrays go from one library to another without a copy.

A capsule holds a pointer to a managed tensor. Its name says whose it is: "dltensor" or "dltensor_versioned" as long as
nobody has taken it, "used_..." afterwards. Who takes it calls the tensor's deleter, once.

Source: the DLPack specification, versions 0.x (unversioned) and 1.x (versioned).
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64
from ctypes import c_void_p as pointer
from typing import Any

from bridge.common.errors import ArgumentTypeError
from bridge.engine.arrays.operand import ITEM_BYTES

#: DLDeviceType: device memory, and memory that moves between host and device
CUDA, CUDA_MANAGED = 2, 13

READ_ONLY = 1

#: DLDataTypeCode and bits of our element types
TYPES = {"float32": (2, 32), "float64": (2, 64), "float16": (2, 16), "bfloat16": (4, 16)}


class Tensor(Structure):
    """DLTensor."""

    _fields_ = (("data", pointer), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64))


#: void (*)(the managed tensor); from any thread, with or without the interpreter's lock
DELETER = ctypes.CFUNCTYPE(None, pointer)


class Managed(Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", Tensor), ("context", pointer), ("deleter", DELETER))


class VersionedManaged(Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (("major", c_uint32), ("minor", c_uint32), ("context", pointer), ("deleter", DELETER),
                ("flags", c_uint64), ("tensor", Tensor))


KINDS: dict[bytes, type[Managed] | type[VersionedManaged]] = {
    b"dltensor_versioned": VersionedManaged, b"dltensor": Managed}
#: A capsule does not copy its name
NAMES = {name: c_char_p(name) for kind in KINDS for name in (kind, b"used_" + kind)}


def _python(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _python("PyCapsule_New", ctypes.py_object, pointer, c_char_p, pointer)
_is_valid = _python("PyCapsule_IsValid", c_int, ctypes.py_object, c_char_p)
_get = _python("PyCapsule_GetPointer", pointer, ctypes.py_object, c_char_p)
_rename = _python("PyCapsule_SetName", c_int, ctypes.py_object, c_char_p)


class TakenTensor:
    """A tensor that was taken out of a capsule; its deleter is called with the last reference to this object.

    Attributes
    ----------
    address, shape, strides (in elements, or None), dtype (a name), device (type, number), read_only
    """

    def __init__(self, name: str, capsule: object) -> None:
        kind = next((kind for kind in KINDS if _is_valid(capsule, NAMES[kind])), None)
        if kind is None:
            raise ArgumentTypeError(f"{name}: __dlpack__ gave {capsule!r}, expected a capsule that is not taken yet")
        place = _get(capsule, NAMES[kind])
        managed = KINDS[kind].from_address(place)
        _rename(capsule, NAMES[b"used_" + kind])
        if managed.deleter:
            deleter = ctypes.cast(managed.deleter, pointer).value
            assert deleter is not None
            weakref.finalize(self, DELETER(deleter), place)
        if kind == b"dltensor_versioned" and managed.major != 1:
            raise ArgumentTypeError(f"{name}: DLPack version {managed.major}.{managed.minor}, expected 1.x")
        self.read_only = kind == b"dltensor_versioned" and bool(managed.flags & READ_ONLY)
        self._read(name, managed.tensor)

    def _read(self, name: str, tensor: Tensor) -> None:
        self.device = (int(tensor.device_type), int(tensor.device_id))
        self.shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        self.strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
        self.address = int(tensor.data or 0) + int(tensor.byte_offset)
        found = (tensor.code, tensor.bits)
        dtype = next((dtype for dtype, form in TYPES.items() if form == found and tensor.lanes == 1), None)
        if dtype is None:
            raise ArgumentTypeError(f"{name}: DLPack type {tensor.code} of {tensor.bits} bits and {tensor.lanes} "
                                    f"lanes, expected {', '.join(ITEM_BYTES)}")
        self.dtype = dtype


#: Managed tensors that somebody has, by their address: capsule and name, and all that they point to
_given: dict[int, tuple[Any, ...]] = {}


@DELETER  # type: ignore[untyped-decorator]
def _delete(place: int, given: dict[int, tuple[Any, ...]] = _given) -> None:
    """Bound to what it needs: another library may call it when this module has been taken apart."""
    given.pop(place, None)


# For the same reason it is never freed
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_delete))


def drop_untaken() -> None:
    """Let go of tensors whose capsule was dropped by who did not want it.

    A destructor of the capsule would do that at once, but it would run while a refusal is being raised, and Python code
    cannot.
    """
    for place in list(_given):
        # In the tuple, and as the argument
        if sys.getrefcount(_given[place][0]) <= 2 and _is_valid(_given[place][0], _given[place][1]):
            _given.pop(place, None)


def give(owner: object, address: int, shape: Sequence[int], dtype: str, device: tuple[int, int],
         *, versioned: bool, copied: bool = False) -> Any:
    """Return a capsule for C-contiguous memory; `owner` stays alive until its taker is done.

    Parameters
    ----------
    device : DLDeviceType and number
    versioned : DLPack 1.0, for takers that understand it
    copied : nobody else has this memory
    """
    drop_untaken()
    kind = b"dltensor_versioned" if versioned else b"dltensor"
    managed = KINDS[kind]()
    lengths = (c_int64 * max(1, len(shape)))(*shape)
    steps = (c_int64 * max(1, len(shape)))()
    step = 1
    for i in range(len(shape) - 1, -1, -1):
        steps[i], step = step, step * shape[i]
    code, bits = TYPES[dtype]
    managed.tensor = Tensor(address, *device, len(shape), code, bits, 1, ctypes.cast(lengths, POINTER(c_int64)),
                            ctypes.cast(steps, POINTER(c_int64)), 0)
    managed.deleter = _delete
    if versioned:
        managed.major, managed.minor, managed.flags = 1, 0, 2 * copied
    place = ctypes.addressof(managed)
    capsule = _new(place, NAMES[kind], None)
    _given[place] = (capsule, NAMES[kind], managed, lengths, steps, owner)
    return capsule


def given_count() -> int:
    """Return how many tensors are still with another library."""
    drop_untaken()
    return len(_given)
