# SPDX-License-Identifier: MIT
"""Kernels on the software device: what a launch may be, and what a kernel may touch."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_int64, c_void_p

import pytest

from tests.helpers.loops import looped
from tests.software_device.calls import Calls, moved
from tests.software_device.ptx_as_c import signature

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep

PTX = b"// made by hand\n.version 6.3\n.target sm_75\n.address_size 64\n.visible .entry %s(\n"


def kernel(cuda: Calls, name: bytes = b"cnn_narrow_f32") -> tuple[c_void_p, c_void_p]:
    """A module with one entry, and the kernel."""
    module = cuda.make("cuModuleLoadData", PTX % name)
    return module, cuda.make("cuModuleGetFunction", module, name)


def launch(cuda: Calls, function: c_void_p, *values: object, grid: int = 1, threads: int = 256) -> int:
    """Status of a launch; numbers are of 64 bits."""
    kept = [c_int64(value) if isinstance(value, int) else value for value in values]
    arguments = (c_void_p * len(kept))(*(ctypes.addressof(value) for value in kept))  # type: ignore[arg-type]
    return cuda.status("cuLaunchKernel", function, grid, 1, 1, threads, 1, 1, 0, cuda.stream, arguments, None)


def test_kernels_run_when_waited_for(cuda: Calls) -> None:
    """And not before, with the arguments of the launch."""
    to = cuda.put(bytes(16))
    assert launch(cuda, kernel(cuda)[1], 4, cuda.put(struct.pack("4d", 1, 2, 3, 4)), to) == 0
    assert cuda.get(to, 16) == struct.pack("4f", 1, 2, 3, 4)
    assert "narrow" not in cuda.report()


def test_launches_that_are_refused(cuda: Calls) -> None:
    """For their grid, for an address, for a module that is gone; what is no PTX of ours is no module or kernel."""
    (module, function), source, to = kernel(cuda), cuda.put(bytes(32)), cuda.put(bytes(16))
    gone = cuda.malloc(32)
    cuda.ok("cudaFree", gone)
    for values, given, reason in (
        ((2, source, moved(to, 2)), {}, "not a multiple of 4"), ((4, cuda.pinned(32), to), {}, "found pinned host"),
        ((4, gone, to), {}, "argument 2: .* was freed"), ((4, c_void_p(4096), to), {}, "no memory of a device"),
        ((4, source, to), {"grid": 0}, "a grid of 0"), ((4, source, to), {"threads": 128}, "128 x 1 x 1 threads"),
    ):
        assert launch(cuda, function, *values, **given) == 1
        assert all(part in cuda.report() for part in reason.split(".*")), reason
    cuda.ok("cuModuleUnload", module)
    assert launch(cuda, function, 4, source, to) == 400 and "this module was destroyed" in cuda.report()
    for text in (b"ELF", (PTX % b"cnn_fold") + b".extern .func _FortranAAssign;"):
        assert cuda.status("cuModuleLoadData", byref(c_void_p()), text) == 218
    other = cuda.make("cuModuleLoadData", PTX % b"saxpy")
    for name in (b"cnn_fold", b"saxpy"):
        assert cuda.status("cuModuleGetFunction", byref(c_void_p()), other, name) == 500


@looped(("name", "n", "source", "to", "reason"), [
    ("narrow", 5, 32, 20, "thread 5 reads 8 bytes {outside} (byte 32 of an allocation of 32)"),
    ("narrow", 4, 32, 12, "thread 4 writes 4 bytes {outside} (byte 12 of an allocation of 12)"),
    ("narrow", 4, 32, 0, "thread 1 writes 4 bytes {outside} (no memory of a device)"),
    # As where an address is taken for a number
    ("narrow", 1 << 40, 32, 16, "thread 1 reads 8 bytes {outside} (byte 2048 of an allocation of 32)"),
    # In place: thread 2 writes what thread 1 has read
    ("narrow", 4, 32, "source", "thread 2 writes byte 4 of an allocation of 32, which another thread has read"),
    # Each thread its own number
    ("copy", 8, 32, "source", ""), ("accumulate", 8, 32, "source", ""),
    # y is the bias, too, of one channel
    ("add_bias", 4, 32, "source", "thread 2 reads byte 0 of an allocation of 32, which another thread has written")])
def test_what_a_kernel_touches(cuda: Calls, name: str, n: int, source: int, to: object, reason: str) -> None:
    """Beside its arrays, and what another thread of the launch works on; the kernel ends there."""
    function, given = kernel(cuda, f"cnn_{name}_f32".encode())[1], cuda.put(bytes(source))
    place = given if to == "source" else cuda.put(bytes(int(str(to)))) if to else c_void_p()
    before = cuda.counter("complaints")
    assert launch(cuda, function, n, given, place, *((4, 1) if name == "add_bias" else ())) == 0
    cuda.wait()
    assert cuda.counter("complaints") - before == bool(reason)
    outside = "outside of what its arguments point to"
    assert not reason or cuda.reason() == f"cnn_{name}_f32: {reason.format(outside=outside)}"


def test_signatures_are_those_of_the_ptx() -> None:
    """Which arguments are arrays, and which of these are written, also by way of other registers."""
    parameters = ", ".join([".param .u64 k_param_0", ".param .u64 .ptr .align 1 k_param_1",
                            ".param .u64 .ptr .align 1 k_param_2", ".param .f32 k_param_3"])
    body = """
        ld.param.b64 %rd1, [k_param_1];
        ld.param.b64 %rd2, [k_param_2];
        add.s64 %rd3, %rd2, %rd9;
        @%p1 mov.b64 %rd4, %rd3;
        ld.global.b32 %r1, [%rd1+4];
        st.global.b32 [%rd4+8], %r1;"""
    assert signature(parameters, body) == "irpf"
