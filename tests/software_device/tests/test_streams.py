# SPDX-License-Identifier: MIT
"""Order of work on the software device: nothing runs before it is waited for, and only events order streams."""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_int64, c_size_t, c_uint

import pytest

from tests.software_device.calls import DEVICE_TO_HOST, HOST_TO_DEVICE, NON_BLOCKING, Calls, floats, scalar

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep


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


def test_streams_run_apart(cuda: Calls) -> None:
    """Waiting for one stream does not run the other; an event does, and without one it is a race."""
    other = cuda.make("cudaStreamCreateWithFlags", c_uint(NON_BLOCKING))
    at, host = cuda.put(b"1234"), cuda.pinned(4)
    cuda.ok("cudaMemsetAsync", at, 65, c_size_t(4), cuda.stream)
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST, other) == 0
    assert "race: cudaMemsetAsync and cudaMemcpyAsync" in cuda.report()
    cuda.ok("cudaStreamSynchronize", other)
    assert ctypes.string_at(host, 4) == b"1234"
    cuda.ok("cudaStreamSynchronize", cuda.stream)

    before = cuda.counter("complaints")
    event = cuda.make("cudaEventCreateWithFlags", c_uint(2))
    cuda.ok("cudaMemsetAsync", at, 66, c_size_t(4), cuda.stream)
    cuda.ok("cudaEventRecord", event, cuda.stream)
    cuda.ok("cudaStreamWaitEvent", other, event, c_uint(0))
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST, other) == 0
    cuda.ok("cudaStreamSynchronize", other)
    assert ctypes.string_at(host, 4) == b"BBBB"
    assert cuda.counter("complaints") == before


def test_event_covers_only_what_was_queued_before_it(cuda: Calls) -> None:
    """Work behind the record is not waited for."""
    other = cuda.make("cudaStreamCreateWithFlags", c_uint(NON_BLOCKING))
    event, at, host = cuda.make("cudaEventCreateWithFlags", c_uint(2)), cuda.put(b"1234"), cuda.pinned(4)
    cuda.ok("cudaEventRecord", event, cuda.stream)
    cuda.ok("cudaMemsetAsync", at, 65, c_size_t(4), cuda.stream)
    cuda.ok("cudaStreamWaitEvent", other, event, c_uint(0))
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST, other) == 0
    cuda.ok("cudaStreamSynchronize", other)
    assert ctypes.string_at(host, 4) == b"1234"
    assert "race" in cuda.report()
    cuda.wait()


def test_free_waits_for_the_device(cuda: Calls) -> None:
    """As cudaFree does: queued work on that memory still runs, on memory that is there."""
    at, host = cuda.put(b"last"), cuda.pinned(4)
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST) == 0
    cuda.ok("cudaFree", at)
    assert ctypes.string_at(host, 4) == b"last"


def test_alpha_is_read_at_the_call(cuda: Calls) -> None:
    """What the host does to a scaling factor afterwards does not matter."""
    d, at, factor = cuda.tensor((1, 1, 1, 1)), cuda.put(struct.pack("f", 3)), scalar(2)
    cuda.ok("cudnnAddTensor", cuda.handle, factor, d, cuda.put(struct.pack("f", 5)), scalar(1), d, at)
    ctypes.memmove(factor, struct.pack("f", 99), 4)
    assert struct.unpack("f", cuda.get(at, 4)) == (13,)


def test_default_stream_waits_for_blocking_streams(cuda: Calls) -> None:
    """As CUDA's legacy default stream does; streams made with cudaStreamNonBlocking stand apart."""
    blocking, at, host = cuda.make("cudaStreamCreateWithFlags", c_uint(0)), cuda.put(b"1234"), cuda.pinned(4)
    cuda.ok("cudaMemsetAsync", at, 65, c_size_t(4), blocking)
    assert cuda.status("cudaMemcpyAsync", host, at, c_size_t(4), DEVICE_TO_HOST, None) == 0
    cuda.ok("cudaStreamSynchronize", None)
    assert ctypes.string_at(host, 4) == b"AAAA"
    assert "race" not in cuda.report()
    assert cuda.counter("default stream operations") > 0


def test_destroyed_stream_is_finished_by_a_free(cuda: Calls) -> None:
    """What was queued on it still runs, when the device is waited for; the stream itself is gone."""
    stream, at, host = cuda.make("cudaStreamCreateWithFlags", c_uint(NON_BLOCKING)), cuda.put(b"late"), cuda.pinned(4)
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST, stream) == 0
    cuda.ok("cudaStreamDestroy", stream)
    assert ctypes.string_at(host, 4) == b"\xff" * 4
    assert "operations queued and never waited for" in cuda.report()
    assert cuda.status("cudaStreamSynchronize", stream) == 400
    things = cuda.c.strict_report(None, c_int64(0))
    cuda.ok("cudaFree", cuda.malloc(4))
    assert cuda.c.strict_report(None, c_int64(0)) == things - 1
    assert ctypes.string_at(host, 4) == b"late"


def test_event_that_was_never_recorded(cuda: Calls) -> None:
    """Waiting for it is nothing on a GPU, and certainly a mistake."""
    cuda.ok("cudaStreamWaitEvent", cuda.stream, cuda.make("cudaEventCreateWithFlags", c_uint(2)), c_uint(0))
    assert "never recorded" in cuda.report()


def test_many_streams_in_turn(cuda: Calls) -> None:
    """More than there is room for at once, each given back."""
    for _ in range(300):
        stream = cuda.make("cudaStreamCreateWithFlags", c_uint(NON_BLOCKING))
        cuda.ok("cudaStreamDestroy", stream)


#: The wait that is left out -> the sum of 1, 2 and 3 then, and whether a race is reported
PIPELINE = {
    "none": ("6.0", False),
    # The last sum does not wait for its batch, and finds the one before
    "copy before use": ("5.0", True),
    # The copy does not wait for the sum of the batch before, which is lost
    "use before copy": ("7.0", True),
    # The host fills the pinned buffer while it may still be copied from
    "host": ("9.0", False),
}


@pytest.mark.parametrize("missing", PIPELINE)
def test_copies_on_a_second_stream(cuda: Calls, missing: str) -> None:
    """Batches come through one pinned buffer and are summed on the other stream: each wait is needed, and seen."""
    copies, before = cuda.another_stream(), cuda.report().count("race")
    host, batch, total, d = cuda.pinned(4), cuda.malloc(4), cuda.put(floats(0)), cuda.tensor((1, 1, 1, 1))
    copied, used = cuda.event(), cuda.event()
    for number in (1, 2, 3):
        if number > 1 and missing != "host":
            cuda.ok("cudaEventSynchronize", copied)
        ctypes.memmove(host, floats(number), 4)
        if number > 1 and missing != "use before copy":
            cuda.ok("cudaStreamWaitEvent", copies, used, c_uint(0))
        assert cuda.copy(batch, host, 4, HOST_TO_DEVICE, copies) == 0
        cuda.ok("cudaEventRecord", copied, copies)
        if missing != "copy before use":
            cuda.ok("cudaStreamWaitEvent", cuda.stream, copied, c_uint(0))
        cuda.ok("cudnnAddTensor", cuda.handle, scalar(1), d, batch, scalar(1), d, total)
        cuda.ok("cudaEventRecord", used, cuda.stream)
    found = struct.unpack("f", cuda.get(total, 4))[0]
    cuda.ok("cudaStreamSynchronize", copies)
    assert (str(found), cuda.report().count("race") > before) == PIPELINE[missing]


def test_waiting_for_an_event(cuda: Calls) -> None:
    """What it marks is done then, and nothing behind it."""
    at, host, event = cuda.put(b"1234"), cuda.pinned(4), cuda.event()
    cuda.ok("cudaEventSynchronize", event)
    cuda.ok("cudaEventQuery", event)
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST) == 0
    cuda.ok("cudaEventRecord", event, cuda.stream)
    assert cuda.fill(at, 65) == 0
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST) == 0
    cuda.ok("cudaEventSynchronize", event)
    assert ctypes.string_at(host, 4) == b"1234"
    cuda.ok("cudaEventQuery", event)
    cuda.wait()
    assert ctypes.string_at(host, 4) == b"AAAA"


def test_asking_for_an_event(cuda: Calls) -> None:
    """It is not ready at first, which is no failure but stays the last error; a program that asks gets there."""
    at, host, event = cuda.put(b"1234"), cuda.pinned(4), cuda.event()
    for value in (65, 66):
        assert cuda.fill(at, value) == 0
    assert cuda.copy(host, at, 4, DEVICE_TO_HOST) == 0
    cuda.ok("cudaEventRecord", event, cuda.stream)
    assert [cuda.status("cudaEventQuery", event) for _ in range(4)] == [600, 600, 600, 0]
    assert cuda.status("cudaGetLastError") == 600
    assert ctypes.string_at(host, 4) == b"BBBB"
    cuda.ok("cudaEventDestroy", event)
    assert cuda.status("cudaEventQuery", event) == cuda.status("cudaEventSynchronize", event) == 400
