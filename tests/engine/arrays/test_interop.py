# SPDX-License-Identifier: MIT
"""CUDA arrays of all libraries as arguments: what is accepted, what is refused, where results go."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import bridge
from bridge import DeviceArray
from bridge.engine.arrays import dlpack
from bridge.engine.arrays.transfer import to_device, to_host, with_numpy
from bridge.engine.library import extension
from tests.helpers.arrays.foreign_doubles import Capsules, CupyArray, Interface, TorchTensor, put_cupy, put_torch
from tests.helpers.cases import batch, tensors
from tests.helpers.cuda.arrays import CASE, LIBRARIES, live, on_device, read
from tests.helpers.loops import looped

DTYPES = ("float32", "float64", "float16", "bfloat16")


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch and cupy, doubled."""
    put_torch(monkeypatch)
    put_cupy(monkeypatch)


@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_of_all_libraries(cuda: str, libraries: None, library: str) -> None:
    """Taken where they are, without a copy; results come from the first one's library, and `out` may be of any."""
    t, start = tensors(CASE, "float32"), live()
    expected = bridge.conv2d(t["x"], t["w"], t["b"], padding=(1, 2))
    given = {name: LIBRARIES[library](array) for name, array in on_device(CASE).items()}
    alive = live()
    y = bridge.conv2d(given["x"], given["w"], given["b"], padding=(1, 2))
    kind = type(given["x"]) if library in ("torch", "cupy") else DeviceArray
    assert type(y) is kind and np.allclose(read(y), expected, atol=1e-4)
    grads = bridge.conv2d_backward(given["dy"], given["x"], given["w"], padding=(1, 2))
    expected_grads = bridge.conv2d_backward(t["dy"], t["x"], t["w"], padding=(1, 2))
    for found, right in zip(grads, expected_grads, strict=True):
        assert type(found) is kind and np.allclose(read(found), right, atol=1e-4)
    out = LIBRARIES[library](DeviceArray.empty(expected.shape, "float32", cuda))
    assert bridge.conv2d(given["x"], given["w"], given["b"], padding=(1, 2), out=out, device=cuda) is out
    assert np.array_equal(read(out) if library == "bridge" else out.memory.numpy(), read(y))
    assert live() == alive + 5
    del y, grads, found, given, out
    assert live() == start and dlpack.given_count() == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_element_types(cuda: str, dtype: str) -> None:
    """Within the precision of the type of torch in float64, with the inputs as they were rounded."""
    given = {name: array.astype(dtype) for name, array in on_device(CASE).items()} if dtype != "float64" else \
        on_device(CASE, "float64")
    y = bridge.conv2d(given["x"], given["w"], given["b"], padding=(1, 2), relu=True)
    x, w, b = (torch.from_numpy(given[name].numpy().astype(np.float64)) for name in ("x", "w", "b"))
    expected = torch.nn.functional.conv2d(x, w, b, padding=(1, 2)).relu().numpy()
    eps = {"float32": 2e-6, "float64": 1e-14, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    assert y.dtype == dtype and np.allclose(y.numpy(), expected, rtol=eps, atol=10 * eps)


def test_the_device_follows_the_input(cuda: str) -> None:
    """numpy on the host, CUDA arrays where they are; a wrong place is said with what to do."""
    host, there = tensors(CASE, "float32"), on_device(CASE)
    assert isinstance(bridge.conv2d(host["x"], host["w"]), np.ndarray)
    assert isinstance(bridge.conv2d(there["x"], there["w"]), DeviceArray)
    hint = r"expected an array on cuda:0 \(bridge.DeviceArray.from_numpy\(input, 'cuda'\) makes one; those of torch"
    with pytest.raises(bridge.ArgumentTypeError, match=f"^input: numpy.ndarray, {hint}"):
        bridge.conv2d(host["x"], host["w"], device=cuda)
    with pytest.raises(bridge.ArgumentTypeError, match=r"^weight: numpy.ndarray, expected an array on cuda:0"):
        bridge.conv2d(there["x"], host["w"])
    place = r"bridge.DeviceArray on cuda:0, expected numpy.ndarray for the device cpu \(device='cuda:0'"
    with pytest.raises(bridge.ArgumentTypeError, match=f"^input: {place}"):
        bridge.conv2d(there["x"], there["w"], device="cpu")
    with pytest.raises(bridge.ArgumentTypeError, match=f"^weight: {place}"):
        bridge.conv2d(host["x"], there["w"])
    with pytest.raises(bridge.ArgumentTypeError, match=f"^grad_output: {place}"):
        bridge.conv2d_backward(there["dy"], host["x"], host["w"], padding=(1, 2))
    with pytest.raises(bridge.ArgumentTypeError, match=r"^input: torch.Tensor, expected an array on cuda:0"):
        bridge.conv2d(torch.ones(1, 1, 2, 2), there["w"], device=cuda)


REFUSED: dict[str, tuple[Callable[[DeviceArray], Any], type[Exception], str]] = {
    "another type": (lambda a: a.astype("float16"), bridge.ArgumentTypeError, "float16, expected float32"),
    "gradient": (lambda a: TorchTensor(a, requires_grad=True), bridge.ArgumentTypeError, r"\.detach\(\)"),
    "sparse": (lambda a: TorchTensor(a, layout="torch.sparse_coo"), bridge.ArgumentTypeError, "layout torch.sparse"),
    "int32 of torch": (lambda a: TorchTensor(a, dtype="torch.int32"), bridge.ArgumentTypeError, "int32, expected one"),
    "int32 of cupy": (lambda a: CupyArray(a, dtype=np.dtype("i4")), bridge.ArgumentTypeError, "int32, expected one of"),
    "transposed": (lambda a: TorchTensor(a, strides=(126, 1, 21, 3)), bridge.ArgumentError,
                   r"strides \(126, 1, 21, 3\) \(in elements\) .*expected a C-contiguous"),
    "misaligned": (lambda a: TorchTensor(a, offset=4), bridge.ArgumentError, "expected a multiple of 16 bytes"),
    "another device": (lambda a: TorchTensor(a, index=1), bridge.ArgumentError, "on cuda:1, expected cuda:0"),
    "host memory": (lambda a: Interface(a, data=(np.ones(999).ctypes.data, False)), bridge.ArgumentError,
                    "is not memory of a CUDA device, expected memory of cuda:0"),
    "no memory": (lambda a: Interface(a, data=(0, False)), bridge.ArgumentError, "is not memory of a CUDA device"),
    "mask": (lambda a: Interface(a, mask=1), bridge.ArgumentTypeError, "with a mask, expected none"),
    "version": (lambda a: Interface(a, version=1), bridge.ArgumentTypeError, "of version 1, expected 2 or 3"),
    "stream 0": (lambda a: Interface(a, stream=0), bridge.ArgumentError, "with the stream 0, expected"),
    "no dictionary": (lambda a: Interface(a, data=7), bridge.ArgumentTypeError, "expected a dictionary with"),
    "int32 of an interface": (lambda a: Interface(a, typestr="<i4"), bridge.ArgumentTypeError, "'<i4' in"),
    "foreign byte order": (lambda a: Interface(a, typestr=">f4"), bridge.ArgumentTypeError, "'>f4' in"),
    "odd strides": (lambda a: Interface(a, strides=(2, 2, 2, 2)), bridge.ArgumentError, "strides"),
    "gaps": (lambda a: Interface(a, strides=(16, 16, 16, 8)), bridge.ArgumentError, "expected a C-contiguous"),
    "empty": (lambda a: Interface(a, shape=(2, 0, 6, 7)), bridge.ArgumentError, "empty|expected"),
    "three dimensions": (lambda a: Interface(a, shape=(6, 6, 7)), bridge.ArgumentError, "expected"),
    "capsule on the host": (lambda a: Capsules(a, device=(1, 0)), bridge.ArgumentTypeError, "expected an array on"),
    "list": (lambda a: [1.0], bridge.ArgumentTypeError, "builtins.list, expected an array on cuda:0"),
}


@looped("target", ["input", "weight", "bias", "out", "grad_output", "forward input", "step target"])
@looped("wrong", REFUSED)
def test_what_is_refused(cuda: str, libraries: None, wrong: str, target: str) -> None:
    """One error that names the argument; nothing is computed, nothing leaks."""
    change, kind, message = REFUSED[wrong]
    if wrong == "another type" and target in ("input",):
        kind, message = bridge.ArgumentTypeError, "weight: float32, expected float16"
    name, start = target.split()[-1], live(collect=False)
    pattern = message if message.startswith("weight") else rf"^{name}: .*({message})"
    if target == "bias" and wrong in ("transposed", "odd strides", "gaps", "three dimensions", "empty"):
        pattern, kind = "^bias: ", Exception
    with pytest.raises(kind, match=pattern):
        call(target, change, cuda)
    assert live(collect=False) == start and dlpack.given_count() == 0


def call(target: str, change: Callable[[DeviceArray], Any], cuda: str) -> None:
    """Call a function with one argument changed."""
    t = on_device(CASE)
    name = target.split()[-1]
    out = DeviceArray.empty(CASE.y, "float32", cuda)
    if target == "grad_output":
        bridge.conv2d_backward(change(t["dy"]), t["x"], t["w"], padding=(1, 2), device=cuda)
    elif target in ("forward input", "step target"):
        net = bridge.Network(bridge.Model((bridge.Conv2d("a", 3, 3, (1, 1)),)), device=cuda)
        net.forward(change(t["x"])) if name == "input" else net.step(t["x"], change(t["x"].astype("float32")), lr=0)
    else:
        given = {"input": t["x"], "weight": t["w"], "bias": t["b"], "out": out}
        bridge.conv2d(**(given | {name: change(given[name])}), padding=(1, 2), device=cuda)


def test_the_memory_of_a_pointer_is_asked_for(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an array says of itself is not enough."""
    t, real = on_device(CASE), extension.call
    monkeypatch.setattr(extension, "call", lambda name, *given: 1 if name == "device_of" else real(name, *given))
    put_torch(monkeypatch)
    with pytest.raises(bridge.ArgumentError, match=r"^input: on cuda:1, expected cuda:0$"):
        bridge.conv2d(TorchTensor(t["x"]), t["w"], device=cuda)


def test_out(cuda: str, libraries: None) -> None:
    """Read-only and shared memory is refused, by addresses; neighbours are not."""
    memory = DeviceArray.from_numpy(batch((2, 2, 4, 4), "float32", 1), cuda)
    start = memory.operand.address
    x, y, apart = (DeviceArray.at(start + 4 * i, (1, 2, 4, 4), "float32", 0, memory) for i in (0, 16, 32))
    w = DeviceArray.from_numpy(batch((2, 2, 1, 1), "float32", 2), cuda)
    for out in (x, y, TorchTensor(y), Capsules(y), CupyArray(y)):
        with pytest.raises(bridge.ArgumentError, match=r"^out: shares memory with an input, expected separate"):
            bridge.conv2d(x, w, out=out)
    with pytest.raises(bridge.ArgumentError, match=r"^out: read-only, expected an array that can be written to$"):
        bridge.conv2d(x, w, out=Interface(apart, data=(apart.operand.address, True)))
    bridge.conv2d(Interface(x, data=(x.operand.address, True)), w, out=apart)
    assert np.array_equal(apart.numpy(), bridge.conv2d(x, w).numpy())


def test_neither_torch_nor_cupy_is_imported() -> None:
    code = ("import sys, numpy as np, bridge, bridge.engine.arrays.transfer\n"
            "class Strange:\n    def __dlpack_device__(self): return (1, 0)\n"
            "for x in (np.ones((1, 1, 2, 2)), [1.0], Strange(), memoryview(b'1234')):\n"
            "    try:\n        bridge.conv2d(x, x)\n    except bridge.ArgumentTypeError:\n        pass\n"
            "print(sorted({'torch', 'cupy', 'nvidia'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_there_and_back(cuda: str, libraries: None) -> None:
    """The helper of programs and tests that run on every device."""
    x = batch((2, 3), "float64", 1)
    assert to_device(x, "cpu") is x and to_device(x, "naive") is x and to_host(x) is x
    there = to_device(x, cuda + ",math=tf32")
    for kind in LIBRARIES.values():
        if kind is not LIBRARIES["interface with strides"]:
            assert np.array_equal(to_host(kind(there)), x)
    with pytest.raises(bridge.ArgumentTypeError, match=r"^array: builtins.list, expected numpy.ndarray or a CUDA"):
        to_host([1.0])
    t = tensors(CASE, "float32")
    found = with_numpy(bridge.conv2d_backward, cuda)(t["dy"], t["x"], t["w"], padding=(1, 2),
                                                     output_mask=(True, False, True))
    assert [type(one) for one in found] == [np.ndarray, type(None), np.ndarray]
