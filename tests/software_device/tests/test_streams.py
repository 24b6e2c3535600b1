# SPDX-License-Identifier: MIT
"""Order of work on the software device: nothing runs before it is waited for, only events order streams; contexts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_int, c_int64, c_size_t, c_uint, c_void_p
from typing import TypeVar

import pytest

from tests.helpers.loops import looped
from tests.software_device.calls import DEVICE_TO_HOST, HOST_TO_DEVICE, Calls
from tests.software_device.graph_misuse import Small

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep

T = TypeVar("T")


def in_a_thread(work: Callable[[], T]) -> T:
    """What it gives, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_nothing_runs_before_the_host_waits(cuda: Calls) -> None:
    """A copy back shows only after a wait, and later writes to a pinned source are seen by the copy."""
    at, host = cuda.put(b"seen"), cuda.pinned(4)
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST) == 0
    assert ctypes.string_at(host, 4) == b"\xff" * 4
    cuda.wait()
    assert ctypes.string_at(host, 4) == b"seen"
    ctypes.memmove(host, b"old!", 4)
    assert cuda.copy(at, host, 4, HOST_TO_DEVICE) == 0
    ctypes.memmove(host, b"new!", 4)  # too early
    assert cuda.get(at, 4) == b"new!"


@looped(("recorded", "waits", "found", "race"), [
    (False, False, b"1234", True), ("before", True, b"1234", True), ("behind", False, b"1234", True),
    ("behind", True, b"AAAA", False)])
def test_only_events_order_streams(cuda: Calls, recorded: object, waits: bool, found: bytes, race: bool) -> None:
    """One that is recorded behind the work, and waited for; everything else is a race, and finds old values."""
    at, host, other, event = cuda.put(b"1234"), cuda.pinned(4), cuda.another_stream(), cuda.event()
    before = cuda.counter("complaints")
    if recorded == "before":
        cuda.ok("cudaEventRecord", event, cuda.stream)
    assert cuda.fill(at, 65) == 0
    if recorded == "behind":
        cuda.ok("cudaEventRecord", event, cuda.stream)
    if waits:
        cuda.ok("cudaStreamWaitEvent", other, event, c_uint(0))
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST, other) == 0
    cuda.ok("cudaStreamSynchronize", other)
    assert ctypes.string_at(host, 4) == found and (cuda.counter("complaints") > before) == race
    assert not race or "race: cudaMemsetAsync and cudaMemcpyAsync" in cuda.report()
    cuda.wait()


def test_the_default_stream_waits_for_blocking_streams(cuda: Calls) -> None:
    """As CUDA's legacy default stream does; streams made with cudaStreamNonBlocking stand apart."""
    blocking, at, host = cuda.another_stream(0), cuda.put(b"1234"), cuda.pinned(4)
    assert cuda.fill(at, 65, 4, blocking) == 0
    assert cuda.status("cudaMemcpyAsync", host, at, c_size_t(4), DEVICE_TO_HOST, None) == 0
    cuda.ok("cudaStreamSynchronize", None)
    assert ctypes.string_at(host, 4) == b"AAAA" and "race" not in cuda.report()


def test_what_is_freed_or_destroyed_is_finished(cuda: Calls) -> None:
    """A free waits for the device; a destroyed stream's work runs then, and is told until then."""
    stream, at, host = cuda.make("cudaStreamCreateWithFlags", c_uint(1)), cuda.put(b"late"), cuda.pinned(4)
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST, stream) == 0
    cuda.ok("cudaStreamDestroy", stream)
    assert ctypes.string_at(host, 4) == b"\xff" * 4 and "queued and never waited for" in cuda.report()
    assert cuda.status("cudaStreamSynchronize", stream) == 400
    things = cuda.c.strict_report(None, c_int64(0))
    cuda.ok("cudaFree", cuda.malloc(4))
    assert cuda.c.strict_report(None, c_int64(0)) == things - 1 and ctypes.string_at(host, 4) == b"late"


def test_waiting_for_an_event(cuda: Calls) -> None:
    """What it marks is done then, and nothing behind it; one that was never recorded is a mistake."""
    at, host, event = cuda.put(b"1234"), cuda.pinned(4), cuda.event()
    cuda.ok("cudaStreamWaitEvent", cuda.stream, cuda.event(), c_uint(0))
    assert "never recorded" in cuda.report()
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST) == 0
    cuda.ok("cudaEventRecord", event, cuda.stream)
    assert cuda.fill(at, 65) == 0
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST) == 0
    cuda.ok("cudaEventSynchronize", event)
    assert ctypes.string_at(host, 4) == b"1234"
    cuda.wait()
    assert ctypes.string_at(host, 4) == b"AAAA"


def test_contexts(cuda: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread has a device of its own; what is pushed is popped; a plan wants a context of its thread."""
    monkeypatch.setenv("STRICT_DEVICES", "2")

    def now() -> int:
        index = c_int(-1)
        cuda.ok("cudaGetDevice", byref(index))
        return index.value

    cuda.ok("cuInit", 0)
    cuda.ok("cuCtxPushCurrent_v2", cuda.make("cuDevicePrimaryCtxRetain", 1))
    assert now() == 1 and in_a_thread(now) == 0
    assert "1 contexts pushed and never popped" in cuda.report() and "1 contexts retained" in cuda.report()
    cuda.ok("cuCtxPopCurrent_v2", byref(c_void_p()))
    cuda.ok("cuDevicePrimaryCtxRelease_v2", 1)
    assert now() == 0 and "contexts" not in cuda.report()
    for name, argument, complaint in (("cuCtxPopCurrent_v2", None, "nothing was pushed by this thread"),
                                      ("cuCtxPushCurrent_v2", c_void_p(64), "this is no context"),
                                      ("cuDevicePrimaryCtxRelease_v2", 1, "more often than it was retained")):
        assert cuda.status(name, argument) == 201 and complaint in cuda.report()
    small = Small(cuda)
    plan = small.g.plan(small.engines[4], handle=cuda.handle)
    assert in_a_thread(lambda: small.g.finalize(plan)) == 4000
    assert "no context is current to this thread" in cuda.report()
