# SPDX-License-Identifier: MIT
"""Memory of the software device: a misuse is refused, reported, seen in the values, or fatal."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
from ctypes import byref, c_size_t, c_uint, c_void_p
from pathlib import Path

import pytest

from tests import ROOT
from tests.helpers.loops import looped
from tests.software_device import SoftwareDevice
from tests.software_device.calls import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Calls, moved

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep


def child(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program of its own, with `cuda` and the names of calls.py."""
    start = f"from tests.software_device.calls import *\nimport ctypes\ncuda = Calls({str(folder)!r})\n"
    return subprocess.run([sys.executable, "-c", start + textwrap.dedent(text)], capture_output=True, text=True,
                          cwd=ROOT, env=os.environ | environment, timeout=60, check=False)


@looped(("code", "message"), [
    ("p = cuda.put(b'1234')\nctypes.string_at(p, 1)", "the host touched device memory: byte 0 of an allocation of 4"),
    ("p = cuda.malloc(100)\nctypes.memset(p.value + 99, 0, 1)", "byte 99 of an allocation of 100"),
    ("p = cuda.malloc(256)\nctypes.memset(p.value + 256, 0, 1)", "byte 256 of an allocation of 256"),
    ("p = cuda.malloc(100)\ncuda.ok('cudaFree', p)\nctypes.string_at(p, 1)", "device memory that was freed"),
    ("p = cuda.pinned(9)\ncuda.ok('cudaFreeHost', p)\nctypes.string_at(p, 1)", "pinned memory that was freed")])
def test_a_touch_by_the_host_ends_the_process(folder: Path, code: str, message: str) -> None:
    """By SIGABRT, with a sentence that says what was touched."""
    done = child(folder, code)
    assert done.returncode == -signal.SIGABRT and message in done.stderr


def test_fresh_memory_is_nan(cuda: Calls) -> None:
    """And memory that was set is not."""
    at = cuda.malloc(16)
    assert cuda.fill(at, 0, 8) == 0
    assert cuda.get(at, 16) == bytes(8) + b"\xff" * 8


def test_copies_are_checked(cuda: Calls) -> None:
    """Pageable memory, a wrong direction, too many bytes, overlap."""
    at, host, pageable = cuda.put(bytes(64)), cuda.pinned(64), ctypes.create_string_buffer(64)
    assert cuda.copy(at, ctypes.cast(pageable, c_void_p), 64, HOST_TO_DEVICE) == 1 and "pageable" in cuda.report()
    assert cuda.copy(host, at, 64, HOST_TO_DEVICE) == 21 and "copy goes from device to host" in cuda.report()
    assert cuda.copy(host, at, 65, DEVICE_TO_HOST) == 1 and "byte 0 of an allocation of 64" in cuda.report()
    assert cuda.copy(at, moved(at, 8), 32, DEVICE_TO_DEVICE) == 1 and "overlap" in cuda.report()


def test_wrong_frees(cuda: Calls) -> None:
    """Twice, in the middle, of the wrong kind, while a copy is queued."""
    at, host = cuda.put(bytes(64)), cuda.pinned(64)
    for name, address, reason in (("cudaFree", moved(at, 16), "not the start"), ("cudaFree", host, "of the other kind"),
                                  ("cudaFreeHost", at, "of the other kind"), ("cudaFree", c_void_p(64), "no memory")):
        assert cuda.status(name, address) == 1 and reason in cuda.report()
    assert cuda.copy(at, host, 64, HOST_TO_DEVICE) == 0
    assert cuda.status("cudaFreeHost", host) == 1 and "has not been waited for" in cuda.report()
    cuda.ok("cudaFree", at)
    assert cuda.status("cudaFree", at) == 1 and "already free" in cuda.report()
    for kind, made in (("cudnnDestroy", cuda.handle), ("cudaStreamDestroy", cuda.stream)):
        cuda.ok(kind, made)
        assert cuda.status(kind, made) in (400, 2000)
    assert cuda.report().count("was destroyed") == 2


@looped("offset", [-1, 100, 255])
def test_writing_beside_an_allocation_is_seen_when_it_is_freed(cuda: Calls, offset: int) -> None:
    """By a canary, where pages are open."""
    at = cuda.malloc(100)
    assert ctypes.CDLL(None).mprotect(c_void_p((at.value or 0) & -4096), c_size_t(4096), 3) == 0
    ctypes.memset((at.value or 0) + offset, 0, 1)
    cuda.ok("cudaFree", at)
    assert f"byte {offset} of an allocation of 100 was written" in cuda.report()


@looped(("level", "code", "status"), [
    ("2", "cuda.malloc(4)", 99), ("2", "cuda.begin()", 99), ("1", "cuda.malloc(4)", 0), ("2", "pass", 0),
    ("1", "cuda.fill(cuda.malloc(4), 0)", 99), ("1", "cuda.status('cudaFree', 64)", 99)])
def test_leaks_and_complaints_at_exit(folder: Path, level: str, code: str, status: int) -> None:
    """Status 99 and a list, as STRICT_AT_EXIT says."""
    end = "\ncuda.ok('cudnnDestroy', cuda.handle)\ncuda.status('cudaStreamDestroy', cuda.stream)"
    done = child(folder, code + end, STRICT_AT_EXIT=level)
    assert done.returncode == status and ("at exit" in done.stderr) == (status == 99)


def test_two_devices(folder: Path) -> None:
    """Memory, streams and events belong to the device on which they were made; memory is limited."""
    done = child(folder, """
        at, event = cuda.malloc(64), cuda.make("cudaEventCreateWithFlags", c_uint(2))
        print(cuda.status("cudaMalloc", ctypes.byref(c_void_p()), c_size_t(1000)), cuda.c.cudaGetLastError())
        cuda.ok("cudaSetDevice", 1)
        print(cuda.status("cudaMemsetAsync", at, 0, c_size_t(4), None), cuda.status("cudaFree", at),
              cuda.status("cudaStreamSynchronize", cuda.stream), cuda.status("cudaEventRecord", event, None),
              cuda.status("cudaSetDevice", 2), "memory of device 0 used on device 1" in cuda.report())""",
                 STRICT_DEVICES="2", STRICT_MEMORY="512")
    assert done.stdout == "2 2\n1 1 400 400 101 True\n", done.stderr


def test_planted_failures(cuda: Calls, folder: Path) -> None:
    """From this process and from outside; what is freed is gone all the same; a fatal status stays."""
    device = SoftwareDevice(folder)
    device.fail("cudaMalloc", 2, call=2)
    assert [cuda.status("cudaMalloc", byref(c_void_p()), c_size_t(4)) for _ in range(3)] == [0, 2, 0]
    for name, thing in {"cudaFree": cuda.malloc(4), "cudaFreeHost": cuda.pinned(4), "cudnnDestroy": cuda.handle,
                        "cudaEventDestroy": cuda.make("cudaEventCreateWithFlags", c_uint(0)),
                        "cudaStreamDestroy": cuda.stream}.items():
        device.fail(name, 4000)
        assert cuda.status(name, thing) == 4000 and cuda.status(name, thing) not in (0, 4000)
    assert "cudaMalloc: status 2" in child(folder, "cuda.malloc(4)\ncuda.malloc(4)",
                                           STRICT_FAIL="cudaMalloc:2:2,cudnnDestroy:1:4000").stderr
    done = child(folder, """
        at = cuda.malloc(4)
        print(cuda.status("cudaStreamSynchronize", cuda.stream), cuda.status("cudaFree", at),
              cuda.status("cudaMalloc", ctypes.byref(at), c_size_t(4)), "allocations" in cuda.report())""",
                 STRICT_FAIL="cudaStreamSynchronize:1:700")
    assert done.stdout == "700 700 700 False\n"
