# SPDX-License-Identifier: MIT
"""Our own CUDA arrays: numbers, memory, lifetimes, and how others take them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import bridge
from bridge import DeviceArray
from bridge.engine.arrays import dlpack
from bridge.engine.arrays.host_conversion import readable, rounded
from tests.helpers.arrays.foreign_doubles import Interface
from tests.helpers.cases import batch
from tests.helpers.cuda.arrays import live

DTYPES = ("float32", "float64", "float16", "bfloat16")


def test_numpy_and_back(cuda: str) -> None:
    """All ranks, element types and orders of memory, bit for bit."""
    for dtype in ("float32", "float64", "float16"):
        for shape in ((), (5,), (2, 3), (4, 3, 2), (2, 3, 5, 7)):
            x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
            for given in (x, np.asfortranarray(x), x.T):
                a = DeviceArray.from_numpy(given, cuda)
                assert (a.shape, a.ndim, a.size, a.nbytes) == (given.shape, given.ndim, given.size, given.nbytes)
                assert a.dtype == dtype and np.array_equal(a.numpy(), given) and a.numpy().dtype == dtype
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38], np.float32)
    assert DeviceArray.from_numpy(special).numpy().tobytes() == special.tobytes()


def test_bfloat16_is_rounded_once() -> None:
    """Every case between two bfloat16, from float64 too, where float32 in between would round twice."""
    rng = np.random.default_rng(2)
    halves = np.float32(1) + np.arange(1, 64, dtype=np.float32) / 256
    numbers = np.concatenate([rng.standard_normal(1000) * 10.0 ** rng.integers(-38, 38, 1000), halves, -halves,
                              [0.0, -0.0, np.inf, -np.inf, 3.4e38, 1e-40, np.nan]])
    singles = numbers.astype(np.float32)
    expected = torch.from_numpy(singles).bfloat16().float().numpy()
    assert np.array_equal(readable(rounded("x", singles, singles.shape, "bfloat16"), "bfloat16"), expected,
                          equal_nan=True)
    # NaN whose upper bits alone would be infinity, or would become a number
    strange = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(readable(rounded("x", strange, (3,), "bfloat16"), "bfloat16")).all()
    # Just beside the middle between 1 and the next bfloat16: as float32 it would be the middle
    for beside, nearest in ((1e-12, 1.0078125), (-1e-12, 1.0), (0.0, 1.0)):
        for sign in (1, -1):
            bits = rounded("x", sign * (1.00390625 + beside), (1,), "bfloat16")
            assert readable(bits, "bfloat16")[0] == sign * nearest


def test_element_types_on_the_device(cuda: str) -> None:
    """`astype` is the rounding of torch."""
    x = batch((3, 1, 5, 7), "float32", 3) * 100
    array = DeviceArray.from_numpy(x, cuda)
    for dtype in ("float16", "bfloat16"):
        narrow = array.astype(dtype)
        expected = torch.from_numpy(x).to(getattr(torch, dtype)).float().numpy()
        assert narrow.dtype == dtype and narrow.nbytes == array.nbytes // 2
        assert np.array_equal(narrow.numpy().astype(np.float32), expected)
        assert np.array_equal(narrow.astype("float32").numpy(), expected)
    same = array.astype("float32")
    same.fill(0)
    assert np.array_equal(array.numpy(), x)


def test_assignment(cuda: str) -> None:
    """Numbers, numpy arrays that broadcast, and CUDA arrays; the whole array only."""
    a = DeviceArray.empty((2, 3), "float32", cuda)
    a[...] = 1.5
    assert np.array_equal(a.numpy(), np.full((2, 3), 1.5, np.float32))
    a[:] = np.array([1, 2, 3])
    assert np.array_equal(a.numpy(), [[1, 2, 3], [1, 2, 3]])
    a[...] = np.array([[1.0], [1 / 3]]).astype(np.float64)
    assert np.array_equal(a.numpy(), np.array([[1.0] * 3, [1 / 3] * 3]).astype(np.float32))
    source = DeviceArray.from_numpy(batch((2, 3), "float32", 4), cuda)
    a[...] = source
    assert np.array_equal(a.numpy(), source.numpy())
    half = DeviceArray.empty((2, 3), "bfloat16", cuda)
    half[...] = source
    assert np.array_equal(half.numpy(), torch.from_numpy(source.numpy()).bfloat16().float().numpy())
    half[...] = batch((2, 3), "float32", 5)
    assert np.array_equal(half.numpy(), torch.from_numpy(batch((2, 3), "float32", 5)).bfloat16().float().numpy())
    a[...] = Interface(source)
    a[...] = a
    a.fill(7)
    assert np.array_equal(a.numpy(), np.full((2, 3), 7, np.float32))


@pytest.mark.parametrize(("key", "value", "kind", "message"), [
    (0, 1.0, bridge.ArgumentError, r"^index: 0, expected \[\.\.\.\]"),
    ((..., 0), 1.0, bridge.ArgumentError, "^index: "),
    (..., np.ones((3, 2)), bridge.ArgumentError, r"^value: shape \(3, 2\), expected \(2, 3\)"),
    (..., np.ones((1, 2, 3)), bridge.ArgumentError, "^value: shape"),
    (..., "1", bridge.ArgumentTypeError, "^value: builtins.str, expected a number"),
    (..., [1.0], bridge.ArgumentTypeError, "^value: builtins.list"),
    (..., torch.ones(2, 3), bridge.ArgumentTypeError, "^value: torch.Tensor"),
    (..., np.ones((2, 3), complex), bridge.ArgumentTypeError, "^value: complex128, expected real numbers"),
])
def test_wrong_assignments(cuda: str, key: Any, value: Any, kind: type[Exception], message: str) -> None:
    a = DeviceArray.from_numpy(batch((2, 3), "float32", 6), cuda)
    with pytest.raises(kind, match=message):
        a[key] = value
    assert np.array_equal(a.numpy(), batch((2, 3), "float32", 6))


def test_assignments_of_other_shapes_or_the_same_memory(cuda: str) -> None:
    a = DeviceArray.from_numpy(batch((2, 3), "float32", 6), cuda)
    with pytest.raises(bridge.ArgumentError, match=r"^value: shape \(3, 2\), expected \(2, 3\)$"):
        a[...] = DeviceArray.empty((3, 2), "float32", cuda)
    shifted = DeviceArray.at(a.operand.address + 16, (2,), "float32", 0, a)
    part = DeviceArray.at(a.operand.address, (2,), "float64", 0, a)
    with pytest.raises(bridge.ArgumentError, match=r"^value: shares memory with the array"):
        part[...] = DeviceArray.at(a.operand.address, (2,), "float32", 0, a)
    assert not part.operand.overlaps(shifted.operand)


@pytest.mark.parametrize(("given", "kind", "message"), [
    ({"shape": (2, 0)}, bridge.ArgumentError, r"^shape: empty, shape \(2, 0\)"),
    ({"shape": (1,) * 9}, bridge.ArgumentError, "^shape: .*expected at most 8 lengths"),
    ({"shape": (-1,)}, bridge.ArgumentError, "^shape: "), ({"shape": (2**31,)}, bridge.ArgumentError, "^shape: "),
    ({"shape": 2.0}, bridge.ArgumentTypeError, "^shape: 2.0, expected int"),
    ({"shape": (True,)}, bridge.ArgumentTypeError, "^shape: "),
    ({"dtype": "int8"}, bridge.ArgumentError, "^dtype: 'int8', expected one of float32, float64, float16, bfloat16"),
    ({"dtype": np.float32}, bridge.ArgumentError, "^dtype: "),
    ({"device": "cpu"}, bridge.ArgumentError, "^device: 'cpu', expected a CUDA device"),
    ({"device": "cuda:x"}, bridge.ArgumentError, "^device cuda:x: the number"),
])
def test_memory_that_is_not_given(given: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        DeviceArray.empty(**{"shape": (2, 3)} | given)


@pytest.mark.parametrize(("array", "kind", "message"), [
    ([1.0], bridge.ArgumentTypeError, "^array: builtins.list, expected numpy.ndarray"),
    (torch.ones(2), bridge.ArgumentTypeError, "^array: torch.Tensor"),
    (np.ones(2, np.int32), bridge.ArgumentTypeError, "^array: int32, expected a native float32"),
    (np.ones(2, ">f4"), bridge.ArgumentTypeError, "^array: >f4, expected a native"),
    (np.ma.masked_array([1.0]), bridge.ArgumentTypeError, "^array: numpy.ma.*MaskedArray"),
    (np.ones((0, 2)), bridge.ArgumentError, "^shape: empty"),
])
def test_arrays_that_are_not_copied(array: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        DeviceArray.from_numpy(array)


def test_what_it_says_of_itself(cuda: str) -> None:
    """Shape, type and device, no values; no silent conversion, copy or pickle."""
    a = DeviceArray.from_numpy(batch((2, 3), "float32", 7), cuda)
    assert repr(a) == "DeviceArray(shape=(2, 3), dtype=float32, device=cuda:0)"
    assert len(a) == 2
    with pytest.raises(TypeError, match="without dimensions"):
        len(DeviceArray.empty((), "float32", cuda))
    for change in (np.asarray, pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(bridge.ArgumentTypeError, match="DeviceArray"):
            change(a)
    with pytest.raises(bridge.ArgumentTypeError, match="made by from_numpy or empty"):
        DeviceArray((2, 3))


def test_memory_is_freed_with_the_last_reference(cuda: str) -> None:
    """Of the array, of what was exported, of what was never taken."""
    start = live()
    a = DeviceArray.from_numpy(batch((4, 5), "float32", 8), cuda)
    assert live() == start + 1
    capsule = a.__dlpack__()
    interface = Interface(a)
    del a
    assert live() == start + 1
    del interface
    assert live() == start + 1
    del capsule
    assert live() == start


@pytest.mark.parametrize("versioned", [False, True])
def test_a_capsule_is_taken_once(cuda: str, versioned: bool) -> None:
    """The taker owns it until it calls the deleter."""
    start = live()
    a = DeviceArray.from_numpy(batch((2, 3, 1, 5), "float64", 9), cuda)
    capsule = a.__dlpack__(max_version=(1, 1) if versioned else None)
    assert ("dltensor_versioned" in repr(capsule)) == versioned
    taken = dlpack.TakenTensor("x", capsule)
    assert (taken.address, taken.shape, taken.strides) == (a.operand.address, (2, 3, 1, 5), (15, 5, 5, 1))
    assert (taken.dtype, taken.device, taken.read_only) == ("float64", (2, 0), False)
    assert "used_dltensor" in repr(capsule)
    with pytest.raises(bridge.ArgumentTypeError, match=r"^x: __dlpack__ gave .*expected a capsule that is not"):
        dlpack.TakenTensor("x", capsule)
    del a, capsule
    assert live() == start + 1
    del taken
    assert live() == start


def test_what_dlpack_asks_for(cuda: str) -> None:
    """Another device is refused with BufferError; a copy is a copy; every element type has its code."""
    for dtype in DTYPES:
        a = DeviceArray.empty((2, 3), dtype, cuda)
        taken = dlpack.TakenTensor("x", a.__dlpack__(stream=1))
        assert (taken.dtype, taken.address) == (dtype, a.operand.address)
        copied = dlpack.TakenTensor("x", a.__dlpack__(copy=True))
        assert copied.address != a.operand.address
    with pytest.raises(BufferError, match="dl_device"):
        a.__dlpack__(dl_device=(1, 0))
    for stream in (0, -2, True, "1"):
        with pytest.raises(BufferError, match=f"^stream: {stream!r}, expected None, -1, 1, 2 or a CUDA stream"):
            a.__dlpack__(stream=stream)
    with pytest.raises((BufferError, RuntimeError, ValueError)):
        np.from_dlpack(a)


def test_strange_capsules(cuda: str) -> None:
    """A newer major version is only deleted, other element types are refused, and what is optional is understood."""
    start = live()
    a = DeviceArray.empty((2, 3), "float32", cuda)
    for change, message in ((lambda m: setattr(m, "major", 2), "DLPack version 2.0, expected 1.x"),
                            (lambda m: setattr(m.tensor, "code", 0), "DLPack type 0 of 32 bits"),
                            (lambda m: setattr(m.tensor, "lanes", 4), "and 4 lanes")):
        capsule = a.__dlpack__(max_version=(1, 0))
        change(dlpack.VersionedManaged.from_address(dlpack._get(capsule, b"dltensor_versioned")))
        with pytest.raises(bridge.ArgumentTypeError, match=f"^x: .*{message}"):
            dlpack.TakenTensor("x", capsule)
        del capsule
    assert dlpack.given_count() == 0
    capsule = a.__dlpack__(max_version=(1, 0))
    managed = dlpack.VersionedManaged.from_address(dlpack._get(capsule, b"dltensor_versioned"))
    managed.flags, managed.tensor.byte_offset, managed.tensor.strides = dlpack.READ_ONLY, 16, None
    taken = dlpack.TakenTensor("x", capsule)
    assert (taken.read_only, taken.address, taken.strides) == (True, a.operand.address + 16, None)
    del a, capsule, taken
    assert live() == start


def test_the_array_interface(cuda: str) -> None:
    a = DeviceArray.empty((2, 3), "float16", cuda)
    assert a.__cuda_array_interface__ == {"version": 3, "data": (a.operand.address, False), "shape": (2, 3),
                                          "strides": None, "stream": None, "typestr": "<f2"}
    b = DeviceArray.empty((2, 3), "bfloat16", cuda)
    assert not hasattr(b, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="no name for bfloat16; DLPack has"):
        b.__cuda_array_interface__  # noqa: B018
