# SPDX-License-Identifier: MIT
"""Kernel libraries and launches on the software device: what runs, and what is refused."""

from __future__ import annotations

import ctypes
import re
import struct
from ctypes import byref, c_double, c_float, c_int, c_int64, c_void_p

import pytest

from tests.software_device import host_kernels
from tests.software_device.calls import Calls, moved

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep

PTX = b"// made by hand\n.version 6.3\n.target sm_75\n.address_size 64\n.visible .entry %s(\n"


def kernel(cuda: Calls, name: bytes = b"cnn_narrow_f32") -> tuple[c_void_p, c_void_p]:
    """A module with one entry, and the kernel."""
    module = cuda.make("cuModuleLoadData", PTX % name)
    return module, cuda.make("cuModuleGetFunction", module, name)


def launch_any(cuda: Calls, function: c_void_p, values: tuple[object, ...], grid: tuple[int, int, int],
               threads: int = 256) -> int:
    """Status of a launch."""
    arguments = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))  # type: ignore[arg-type]
    return cuda.status("cuLaunchKernel", function, *grid, threads, 1, 1, 0, cuda.stream, arguments, None)


def launch(cuda: Calls, function: c_void_p, n: int, source: c_void_p, to: c_void_p, grid: int = 1,
           threads: int = 256) -> int:  # fmt: skip
    """Status of a launch of a kernel (n, from, to)."""
    return launch_any(cuda, function, (c_int64(n), source, to), (grid, 1, 1), threads)


def test_kernels_run_when_waited_for(cuda: Calls) -> None:
    """And not before; launches are counted."""
    function, source, to = kernel(cuda)[1], cuda.put(struct.pack("4d", 1, 2, 3, 4)), cuda.put(bytes(16))
    launches = cuda.counter("kernel launches")
    assert launch(cuda, function, 4, source, to) == 0
    assert cuda.get(to, 16) == struct.pack("4f", 1, 2, 3, 4)
    assert cuda.counter("kernel launches") == launches + 1


def test_wrong_launches(cuda: Calls) -> None:
    """Sizes come from the arguments; grids, overlap and stale modules are looked at."""
    (module, function), source, to = kernel(cuda), cuda.put(bytes(32)), cuda.put(bytes(16))
    for arguments, status, reason in (
        ((5, source, to), 1, "40 bytes at byte 0 of an allocation of 32"),
        ((4, source, moved(to, 16)), 1, "16 bytes at byte 16 of an allocation of 16"),
        ((4, source, moved(source, 16)), 1, "overlap"),
        ((2, source, moved(to, 4)), 1, "not a multiple of 16"),
        ((-1, source, to), 1, "negative size"),
        ((4, source, to, 0), 1, "a grid of 0"),
        ((4, source, to, 1, 128), 1, "128 x 1 x 1 threads"),
    ):
        assert launch(cuda, function, *arguments) == status
        assert reason in cuda.report()
    assert launch(cuda, module, 4, source, to) == 400
    cuda.ok("cuModuleUnload", module)
    assert launch(cuda, function, 4, source, to) == 400
    assert "this module was destroyed" in cuda.report()


def test_ptx_is_looked_at(cuda: Calls) -> None:
    """No PTX, an external function, a name that is no entry, a kernel of another project."""
    for text in (b"", b"ELF", (PTX % b"cnn_fold") + b".extern .func _FortranAAssign;"):
        assert cuda.status("cuModuleLoadData", byref(c_void_p()), text) == 218
    module = kernel(cuda)[0]
    for name in (b"cnn_narrow", b"cnn_fold"):
        assert cuda.status("cuModuleGetFunction", byref(c_void_p()), module, name) == 500
    longer = cuda.make("cuModuleLoadData", PTX % b"cnn_fold2")
    assert cuda.status("cuModuleGetFunction", byref(c_void_p()), longer, b"cnn_fold") == 500
    other = cuda.make("cuModuleLoadData", PTX % b"saxpy")
    assert cuda.status("cuModuleGetFunction", byref(c_void_p()), other, b"saxpy") == 500
    assert "does not know saxpy" in cuda.report()


def test_sums_of_channels_need_a_grid_that_fits_them(cuda: Calls) -> None:
    """The threads of a grid are a multiple of the channels, or a thread would add up several."""
    dz, partial = cuda.put(bytes(3000 * 4)), cuda.put(bytes(2 * 256 * 8))
    function = kernel(cuda, b"cnn_channel_sums_f32")[1]
    given = (c_int64(3000), c_int64(3), dz, partial)
    assert launch_any(cuda, function, given, (2, 1, 1)) == 1
    assert "the threads are not a multiple of the channels" in cuda.report()


#: Arguments of each kernel with n = 1000 in a grid of 2 x 3 or 2 x 1 blocks: numbers, and sizes of arrays in elements
#: of the tensors' kind ("t"), of float64 ("d") or of 16 bits ("h"). "r" is a number of the tensors' kind
PARTIAL, SMALL = 2 * 256, 10
KERNELS = {
    "cnn_mse": (1000, "t1000", "t1000", "t1000", "r", f"d{PARTIAL}"),
    "cnn_fold": (1000, 3, "d3000", SMALL, f"d{3 * SMALL}"),
    "cnn_relu_backward": (1000, "t1000", "t1000", "t1000"),
    "cnn_relu_backward_bias": (100, 3, 10, "t3000", "t3000", "t3000", f"d{3 * PARTIAL}"),
    "cnn_bias_gradient": (100, 3, 10, "t3000", f"d{3 * PARTIAL}"),
    "cnn_relu_backward_nhwc": (1000, 8, "t1000", "t1000", "t1000", f"d{PARTIAL}"),
    "cnn_channel_sums": (1000, 8, "t1000", f"d{PARTIAL}"), "cnn_transpose": (100, 3, 10, "t3000", "t3000"),
    "cnn_narrow": (1000, "d1000", "t1000"),
    "cnn_sgd": (1000, "t1000", "t1000", "t1000", "r", "r", "r", "r", c_int(1)),
    "cnn_f32_to_f16": (1000, "t1000", "h1000"), "cnn_f32_to_bf16": (1000, "t1000", "h1000"),
    "cnn_f16_to_f32": (1000, "h1000", "t1000"), "cnn_bf16_to_f32": (1000, "h1000", "t1000"),
}  # fmt: skip
KIND = re.compile("(?<!to)_(f16|bf16|f32|f64)$")
#: All entries of the PTX but those of graphs, whose arrays tests/cuda/test_graph_kernels.py launches
NAMES = [name for name in re.findall(r"\.entry (\w+)", host_kernels.PTX.read_text(encoding="utf-8"))
         if KIND.sub("", name) in KERNELS]


def test_every_signature_is_of_a_kernel() -> None:
    assert {KIND.sub("", name) for name in NAMES} == set(KERNELS)


@pytest.mark.parametrize("name", NAMES)
def test_each_kernel_needs_all_of_its_arrays(cuda: Calls, name: str) -> None:
    """Arrays of the exact sizes are taken; one element less of any is not."""
    short_name = KIND.sub("", name)
    kind = {"f64": "d", "f16": "e", "bf16": "e"}.get(name.removeprefix(f"{short_name}_"), "f")
    signature = KERNELS[short_name]
    grid = (2, 3 if short_name in ("cnn_fold", "cnn_relu_backward_bias", "cnn_bias_gradient") else 1, 1)
    function = kernel(cuda, name.encode())[1]
    arrays = [i for i, given in enumerate(signature) if isinstance(given, str) and given != "r"]
    for short in (None, *arrays):
        values: list[object] = []
        for i, given in enumerate(signature):
            if not isinstance(given, str):
                values.append(given if isinstance(given, c_int) else c_int64(given))
            elif given == "r":
                values.append((c_double if kind == "d" else c_float)(0.5))
            else:
                size = {"t": struct.calcsize(kind), "d": 8, "h": 2}[given[0]] * int(given[1:])
                values.append(cuda.put(bytes(size - (i == short))))
        assert launch_any(cuda, function, tuple(values), grid) == (0 if short is None else 1)
    cuda.wait()
