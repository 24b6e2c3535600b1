# SPDX-License-Identifier: MIT
"""Each strictness of the software device bites: a misuse is refused, reported, seen in the values, or fatal."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import struct
import subprocess
import sys
import textwrap
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

import pytest

from tests import ROOT, software_device
from tests.software_device import SoftwareDevice
from tests.software_device.calls import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Calls, Perf, moved, scalar

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep


def child(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program of its own, with `cuda` and the names of software_calls."""
    start = f"from tests.software_device.calls import *\nimport ctypes\ncuda = Calls({str(folder)!r})\n"
    return subprocess.run([sys.executable, "-c", start + textwrap.dedent(text)], capture_output=True, text=True,
                          cwd=ROOT, env=os.environ | environment, timeout=60, check=False)  # fmt: skip


DEATHS = {
    "the host reads": ("p = cuda.malloc(100)\nctypes.string_at(p, 1)", "the host touched device memory: byte 0 of"),
    "the host writes": ("p = cuda.malloc(100)\nctypes.memset(p.value + 99, 0, 1)", "byte 99 of an allocation of 100"),
    "the host reads what was used": ("p = cuda.put(b'1234')\nctypes.string_at(p, 1)", "byte 0 of an allocation of 4"),
    "the host writes what was used": ("p = cuda.put(b'1234')\nctypes.memset(p, 0, 1)", "byte 0 of an allocation of 4"),
    "behind the end": ("p = cuda.malloc(256)\nctypes.memset(p.value + 256, 0, 1)", "byte 256 of an allocation of 256"),
    "after a free": ("p = cuda.malloc(100)\ncuda.ok('cudaFree', p)\nctypes.string_at(p, 1)", "memory that was freed"),
    "pinned after a free": ("p = cuda.pinned(9)\ncuda.ok('cudaFreeHost', p)\nctypes.string_at(p, 1)", "pinned memory"),
}


@pytest.mark.parametrize("name", DEATHS)
def test_host_touch_ends_the_process(folder: Path, name: str) -> None:
    """By SIGABRT, with a sentence that says what was touched."""
    code, message = DEATHS[name]
    done = child(folder, code)
    assert done.returncode == -signal.SIGABRT
    assert f"strict device: {'the host' if 'host' in name else ''}" in done.stderr
    assert message in done.stderr


def test_other_faults_are_not_ours(folder: Path) -> None:
    """A null pointer dies of SIGSEGV as ever."""
    done = child(folder, "cuda.malloc(1)\nctypes.string_at(8, 1)")
    assert done.returncode == -signal.SIGSEGV
    assert "strict device" not in done.stderr


def test_fresh_memory_is_nan(cuda: Calls) -> None:
    """And memory that was set is not."""
    at = cuda.malloc(16)
    assert all(math.isnan(x) for x in struct.unpack("4f", cuda.get(at, 16)))
    cuda.ok("cudaMemsetAsync", at, 0, c_size_t(8), cuda.stream)
    assert cuda.get(at, 16) == bytes(8) + b"\xff" * 8
    assert cuda.report().count("complaints") == 0


def test_stale_beta_spreads_nan(cuda: Calls) -> None:
    """beta = 0 does not read the fresh output, beta = 1 does."""
    d, a = cuda.tensor((1, 1, 1, 1)), cuda.put(struct.pack("f", 5))
    for beta, nan in ((0, False), (1, True)):
        to = cuda.malloc(4)
        cuda.ok("cudnnAddTensor", cuda.handle, scalar(1), d, a, scalar(beta), d, to)
        assert math.isnan(struct.unpack("f", cuda.get(to, 4))[0]) == nan


def test_copies_are_checked(cuda: Calls) -> None:
    """Pageable memory, a wrong direction, too many bytes, overlap."""
    at, pageable = cuda.put(bytes(64)), ctypes.create_string_buffer(64)
    host = cuda.pinned(64)
    assert cuda.copy(at, ctypes.cast(pageable, c_void_p), 64, HOST_TO_DEVICE) == 1
    assert "pageable memory" in cuda.report()
    assert cuda.copy(host, at, 64, HOST_TO_DEVICE) == 21
    assert "copy goes from device to host" in cuda.report()
    assert cuda.copy(host, at, 65, DEVICE_TO_HOST) == 1
    assert "65 bytes at byte 0 of an allocation of 64" in cuda.report()
    assert cuda.copy(at, moved(at, 8), 32, DEVICE_TO_DEVICE) == 1
    assert "overlap" in cuda.report()


def test_counters(cuda: Calls) -> None:
    """Operations, waits and bytes are counted."""
    before = {name: cuda.counter(name) for name in ("operations", "host synchronisations", "bytes to device")}
    at, host = cuda.malloc(64), cuda.pinned(64)
    assert cuda.copy(at, host, 64, HOST_TO_DEVICE) == 0
    cuda.wait()
    assert {name: cuda.counter(name) - count for name, count in before.items()} == {
        "operations": 1, "host synchronisations": 1, "bytes to device": 64}  # fmt: skip


def test_wrong_frees(cuda: Calls) -> None:
    """Twice, in the middle, of the wrong kind, while a copy is queued; null is nothing."""
    at, host = cuda.put(bytes(64)), cuda.pinned(64)
    cuda.ok("cudaFree", None)
    wrong = (("cudaFree", moved(at, 16), "not the start"), ("cudaFree", host, "of the other kind"),
             ("cudaFreeHost", at, "of the other kind"), ("cudaFree", c_void_p(64), "no memory"))  # fmt: skip
    for name, address, reason in wrong:
        assert cuda.status(name, address) == 1
        assert reason in cuda.report()
    assert cuda.copy(at, host, 64, HOST_TO_DEVICE) == 0
    assert cuda.status("cudaFreeHost", host) == 1
    assert "a copy of this memory has not been waited for" in cuda.report()
    cuda.ok("cudaFree", at)
    assert cuda.status("cudaFree", at) == 1
    assert "already free" in cuda.report()
    for kind in ("cudnnDestroy", "cudaStreamDestroy"):
        made = cuda.handle if kind == "cudnnDestroy" else cuda.stream
        cuda.ok(kind, made)
        assert cuda.status(kind, made) in (400, 2000)
    assert cuda.report().count("was destroyed") == 2


@pytest.mark.parametrize("offset", [-1, 100, 255])
def test_writing_beside_an_allocation_is_seen_when_it_is_freed(cuda: Calls, offset: int) -> None:
    """A kernel has the pages of its arguments open; what it writes around them is found by a canary."""
    at, libc = cuda.malloc(100), ctypes.CDLL(None, use_errno=True)
    page = (at.value or 0) & -4096
    assert libc.mprotect(c_void_p(page), c_size_t(4096), 3) == 0
    ctypes.memset((at.value or 0) + offset, 0, 1)
    cuda.ok("cudaFree", at)
    assert f"byte {offset} of an allocation of 100 was written" in cuda.report()


@pytest.mark.parametrize(("level", "code", "status"), [
    ("2", "cuda.malloc(4)", 99), ("2", "cuda.tensor((1, 1, 1, 1))", 99), ("1", "cuda.malloc(4)", 0),
    ("1", "cuda.ok('cudaMemsetAsync', cuda.malloc(4), 0, c_size_t(4), cuda.stream)", 99),
    ("1", "cuda.status('cudaFree', 64)", 99), ("0", "cuda.status('cudaFree', 64)", 0), ("2", "pass", 0)])  # fmt: skip
def test_leaks_and_complaints_at_exit(folder: Path, level: str, code: str, status: int) -> None:
    """Status 99 and a list, as STRICT_AT_EXIT says."""
    end = "\ncuda.ok('cudnnDestroy', cuda.handle)\ncuda.ok('cudaStreamDestroy', cuda.stream)"
    done = child(folder, code + end, STRICT_AT_EXIT=level)
    assert done.returncode == status
    assert ("at exit" in done.stderr) == (status == 99)


def test_two_devices(folder: Path) -> None:
    """Memory, streams, events and handles belong to the device on which they were made."""
    done = child(folder, """
        at, d = cuda.malloc(64), cuda.tensor((1, 1, 4, 4))
        event = cuda.make("cudaEventCreateWithFlags", c_uint(2))
        cuda.ok("cudaSetDevice", 1)
        print(cuda.status("cudaMemsetAsync", at, 0, c_size_t(4), None),
              cuda.status("cudaStreamSynchronize", cuda.stream),
              cuda.status("cudnnAddTensor", cuda.handle, scalar(1), d, at, scalar(0), d, at),
              cuda.status("cudaFree", at), cuda.status("cudaEventRecord", event, None), cuda.status("cudaSetDevice", 2))
        print(cuda.report())""", STRICT_DEVICES="2")  # fmt: skip
    assert done.stdout.splitlines()[0] == "1 400 2000 1 400 101"
    assert "memory of device 0 used on device 1" in done.stdout
    assert "handle of device 0, current device 1" in done.stdout


def test_no_device(folder: Path) -> None:
    """Without a device the first call says so."""
    done = child(folder, "", STRICT_DEVICES="0")
    assert "cudaStreamCreateWithFlags: status 100" in done.stderr
    old = child(folder, "print(cuda.status('cudaGetDeviceCount', byref(c_int())))", STRICT_DRIVER_VERSION="12040")
    assert old.stdout == "35\n"


def test_memory_is_limited(folder: Path) -> None:
    """cudaMalloc says 2; what is freed can be had again."""
    done = child(folder, """
        at = cuda.malloc(1000)
        print(cuda.status("cudaMalloc", ctypes.byref(c_void_p()), c_size_t(1000)), cuda.c.cudaGetLastError())
        cuda.ok("cudaFree", at)
        cuda.malloc(1500)""", STRICT_MEMORY="1536")  # fmt: skip
    assert (done.stdout, done.returncode) == ("2 2\n", 0)


def test_planted_failures(cuda: Calls, folder: Path) -> None:
    """From this process and from outside; the last error says that a test did it."""
    device = SoftwareDevice(folder)
    device.fail("cudaMalloc", 2, call=2)
    statuses = [cuda.status("cudaMalloc", byref(c_void_p()), c_size_t(4)) for _ in range(3)]
    assert statuses == [0, 2, 0]
    device.fail("cudnnCreateTensorDescriptor", 4000, call=0)
    assert [cuda.status("cudnnCreateTensorDescriptor", byref(c_void_p())) for _ in range(2)] == [4000, 4000]
    assert "planted" in cuda.reason()
    done = child(folder, "cuda.malloc(4)\ncuda.malloc(4)", STRICT_FAIL="cudaMalloc:2:2,cudnnDestroy:1:4000")
    assert "cudaMalloc: status 2" in done.stderr


def test_a_planted_failure_of_a_free_frees_all_the_same(cuda: Calls, folder: Path) -> None:
    """As the real ones, which report there what failed before."""
    made = {"cudaFree": cuda.malloc(4), "cudaFreeHost": cuda.pinned(4), "cudnnDestroy": cuda.handle,
            "cudnnDestroyTensorDescriptor": cuda.tensor((1, 1, 1, 1)),
            "cudaEventDestroy": cuda.make("cudaEventCreateWithFlags", c_uint(0)), "cudaStreamDestroy": cuda.stream}
    for name, thing in made.items():
        SoftwareDevice(folder).fail(name, 4000)
        assert cuda.status(name, thing) == 4000
        assert cuda.status(name, thing) not in (0, 4000)  # it is gone


def test_fatal_status_stays(folder: Path) -> None:
    """After an illegal address every call fails, and what is freed is still counted as freed."""
    done = child(folder, """
        at = cuda.malloc(4)
        print(cuda.status("cudaStreamSynchronize", cuda.stream), cuda.status("cudaFree", at),
              cuda.status("cudaMalloc", ctypes.byref(at), c_size_t(4)), "allocations" in cuda.report())""",
                 STRICT_FAIL="cudaStreamSynchronize:1:700")  # fmt: skip
    assert done.stdout == "700 700 700 False\n"


def test_what_it_says_of_itself(cuda: Calls) -> None:
    """Name, versions, capability."""
    name, number = ctypes.create_string_buffer(64), c_int()
    cuda.c.cudnnGetVersion.restype = c_size_t
    assert cuda.c.cudnnGetVersion() == 91900
    for function in ("cudaRuntimeGetVersion", "cuDriverGetVersion"):
        cuda.ok(function, byref(number))
        assert number.value == 13000
    cuda.ok("cudaGetDeviceCount", byref(number))
    assert number.value == 1
    cuda.ok("cuInit", c_uint(0))
    cuda.ok("cuDeviceGetName", name, len(name), 0)
    assert name.value == b"strict software device (no GPU)"
    for attribute, value in ((75, 9), (76, 0)):
        cuda.ok("cudaDeviceGetAttribute", byref(number), attribute, 0)
        assert number.value == value
    assert cuda.c.cudaGetErrorName(2) == b"cudaErrorMemoryAllocation"
    assert cuda.c.cudnnGetErrorString(3000) == b"CUDNN_STATUS_NOT_SUPPORTED"


def test_one_library_under_all_names(folder: Path) -> None:
    """Counters are seen whatever name a program opened."""
    assert len({ctypes.CDLL(str(folder / name))._handle for name in software_device.NAMES}) == 1
    assert ctypes.sizeof(Perf) == 48
