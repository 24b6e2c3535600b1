# SPDX-License-Identifier: MIT
"""Stream capture on the software device: what is recorded, what is refused, and what invalidates."""

from __future__ import annotations

import threading
from collections.abc import Callable
from ctypes import byref, c_int, c_int64, c_size_t, c_uint, c_ulonglong, c_void_p, create_string_buffer

import pytest

from tests.software_device.calls import GLOBAL, HOST_TO_DEVICE, RELAXED, THREAD_LOCAL, Calls
from tests.software_device.graph_misuse import Small

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep

ILLEGAL_STATE, UNSUPPORTED, INVALIDATED, MERGE, ISOLATION, IMPLICIT = 401, 900, 901, 902, 905, 906
CAPTURED_EVENT, WRONG_THREAD = 907, 908
PTX = b".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry cnn_narrow_f32(\n"


def elsewhere(call: Callable[[], object]) -> object:
    """What another thread gets."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def test_work_is_recorded_and_not_run(cuda: Calls) -> None:
    """Nor counted as operations; earlier work of the stream runs as ever."""
    at, other = cuda.put(b"1234"), cuda.put(b"1234")
    assert cuda.fill(other, 66) == 0
    operations, nodes = cuda.counter("operations"), cuda.counter("nodes captured")
    cuda.begin()
    assert cuda.capturing() == 1
    assert cuda.fill(at, 65) == 0
    status, graph = cuda.end()
    assert status == 0 and graph.value and cuda.capturing() == 0
    assert cuda.counter("operations") == operations and cuda.counter("nodes captured") == nodes + 1
    assert cuda.get(at, 4) == b"1234" and cuda.get(other, 4) == b"BBBB"


def test_wrong_begins_and_ends(cuda: Calls) -> None:
    """None of them begins, or ends, a capture."""
    assert cuda.status("cudaStreamBeginCapture", None, THREAD_LOCAL) == UNSUPPORTED
    assert cuda.status("cudaStreamBeginCapture", cuda.stream, 3) == 1
    gone = cuda.another_stream()
    cuda.ok("cudaStreamDestroy", gone)
    assert cuda.status("cudaStreamBeginCapture", gone, THREAD_LOCAL) == 400
    assert cuda.end()[0] == ILLEGAL_STATE and cuda.end()[1].value is None
    assert cuda.status("cudaStreamIsCapturing", cuda.stream, None) == 1
    assert cuda.capturing() == 0
    cuda.begin()
    assert cuda.status("cudaStreamBeginCapture", cuda.stream, THREAD_LOCAL) == ILLEGAL_STATE
    assert cuda.status("cudaStreamEndCapture", cuda.stream, None) == 1
    assert cuda.capturing() == 1
    assert cuda.end()[0] == 0


#: A call that no graph would repeat, and its status: prepared before the capture
UNSAFE: dict[str, tuple[Callable[[Calls], tuple[object, ...]], int]] = {
    "cudaMalloc": (lambda c: (byref(c_void_p()), c_size_t(4)), UNSUPPORTED),
    "cudaFree": (lambda c: (c.malloc(4),), UNSUPPORTED),
    "cudaMallocHost": (lambda c: (byref(c_void_p()), c_size_t(4)), UNSUPPORTED),
    "cudaFreeHost": (lambda c: (c.pinned(4),), UNSUPPORTED),
    "cudaStreamSynchronize": (lambda c: (c.stream,), UNSUPPORTED),
    "cudaStreamSynchronize ": (lambda c: (c.another_stream(),), UNSUPPORTED),
    "cudaEventQuery": (lambda c: (c.event(),), UNSUPPORTED),
    "cudaEventSynchronize": (lambda c: (c.event(),), UNSUPPORTED),
    "cuModuleLoadData": (lambda c: (byref(c_void_p()), PTX), UNSUPPORTED),
    "cudaGraphInstantiate": (lambda c: (byref(c_void_p()), None, c_ulonglong(0)), UNSUPPORTED),
    "cudnnCreate": (lambda c: (byref(c_void_p()),), 4004),
    "cudnnDestroy": (lambda c: (c.make("cudnnCreate"),), 5003),
}  # fmt: skip


@pytest.mark.parametrize("mode", [THREAD_LOCAL, GLOBAL])
@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_calls_invalidate(cuda: Calls, name: str, mode: int) -> None:
    """They allocate, free, load or wait; what was to be freed is still there."""
    prepare, status = UNSAFE[name]
    arguments = prepare(cuda)
    cuda.begin(mode)
    assert cuda.status(name.strip(), *arguments) == status
    cuda.end_invalidated()
    if "Free" in name:
        cuda.ok(name, *arguments)


def test_a_plan_is_made_before_the_capture(cuda: Calls) -> None:
    """Its kernels might have to be loaded."""
    small = Small(cuda)
    plan = small.g.plan(small.engines[4], handle=cuda.handle)
    cuda.begin()
    assert small.g.finalize(plan) == 4000
    assert "a stream captures" in cuda.reason()
    cuda.end_invalidated()
    assert small.g.finalize(plan) == 0
    small.g.destroy()


def test_relaxed_captures(cuda: Calls) -> None:
    """Unsafe calls are the caller's business, and waits for the captured work are still no use."""
    cuda.begin(RELAXED)
    cuda.ok("cudaFree", cuda.malloc(4))
    cuda.ok("cudaStreamSynchronize", cuda.another_stream())
    assert elsewhere(lambda: cuda.end()[0]) == 0
    cuda.begin(RELAXED)
    assert cuda.status("cudaStreamSynchronize", cuda.stream) == UNSUPPORTED
    cuda.end_invalidated()


def test_other_threads(cuda: Calls) -> None:
    """One may do as it likes, unless the capture is global; none may end the capture."""
    cuda.begin(THREAD_LOCAL)
    at = elsewhere(lambda: cuda.malloc(4))
    assert elsewhere(lambda: cuda.fill(at, 65)) == 0  # type: ignore[arg-type]
    assert elsewhere(lambda: cuda.end()[0]) == WRONG_THREAD
    assert cuda.capturing() == 1
    status, graph = cuda.end()
    assert status == 0
    cuda.ok("cudaGraphDestroy", graph)
    cuda.begin(GLOBAL)
    assert elsewhere(lambda: cuda.status("cudaFree", at)) == UNSUPPORTED
    cuda.end_invalidated()
    cuda.ok("cudaFree", at)


def test_the_default_stream_beside_a_capture(cuda: Calls) -> None:
    """It would wait for a blocking stream that captures; asking harms nothing."""
    at, blocking, found = cuda.put(b"1234"), cuda.another_stream(0), c_int()
    cuda.begin()
    assert cuda.status("cudaMemsetAsync", at, 65, c_size_t(4), None) == 0
    status, graph = cuda.end()
    assert status == 0
    cuda.ok("cudaGraphDestroy", graph)
    uses = {"cudaMemsetAsync": (at, 65, c_size_t(4), None), "cudaStreamSynchronize": (None,),
            "cudaEventRecord": (cuda.event(), None)}  # fmt: skip
    for name, arguments in uses.items():
        cuda.begin(stream=blocking)
        assert cuda.status("cudaStreamIsCapturing", None, byref(found)) == IMPLICIT
        assert cuda.capturing(blocking) == 1
        assert cuda.status(name, *arguments) == IMPLICIT
        assert cuda.capturing(blocking) == 2
        assert cuda.end(blocking)[0] == INVALIDATED
    cuda.ok("cudaStreamSynchronize", None)


def test_events_inside_a_capture(cuda: Calls) -> None:
    """Recorded and waited for in one stream; they mark nothing that a host could wait for."""
    event = cuda.event()
    for name in ("cudaEventQuery", "cudaEventSynchronize"):
        cuda.begin(RELAXED)
        cuda.ok("cudaEventRecord", event, cuda.stream)
        cuda.ok("cudaStreamWaitEvent", cuda.stream, event, c_uint(0))
        assert cuda.status(name, event) == CAPTURED_EVENT
        cuda.end_invalidated()
        assert cuda.status(name, event) == CAPTURED_EVENT
        assert cuda.status("cudaStreamWaitEvent", cuda.stream, event, c_uint(0)) == CAPTURED_EVENT
        assert "in a capture that has ended" in cuda.report()
        cuda.ok("cudaEventRecord", event, cuda.stream)
        cuda.ok("cudaStreamWaitEvent", cuda.stream, event, c_uint(0))
        cuda.ok("cudaEventSynchronize", event)


def test_events_across_the_border(cuda: Calls) -> None:
    """Of work outside, of another capture, and of a capture for a stream outside."""
    outside, inside, other = cuda.event(), cuda.event(), cuda.another_stream()
    cuda.ok("cudaEventRecord", outside, cuda.stream)
    cuda.begin()
    assert cuda.status("cudaStreamWaitEvent", cuda.stream, outside, c_uint(0)) == ISOLATION
    cuda.end_invalidated()
    cuda.begin()
    cuda.begin(stream=other)
    cuda.ok("cudaEventRecord", inside, other)
    assert cuda.status("cudaStreamWaitEvent", cuda.stream, inside, c_uint(0)) == MERGE
    assert cuda.capturing(other) == 2 and cuda.end(other)[0] == INVALIDATED
    cuda.end_invalidated()
    cuda.begin()
    cuda.ok("cudaEventRecord", inside, cuda.stream)
    assert cuda.status("cudaStreamWaitEvent", other, inside, c_uint(0)) == ISOLATION
    assert "more than one stream" in cuda.reason()
    cuda.end_invalidated()


def test_pageable_memory(cuda: Calls) -> None:
    """A copy of it waits, or reads what is no longer there when the graph runs."""
    at, host = cuda.malloc(4), create_string_buffer(4)
    cuda.begin()
    assert cuda.copy(at, host, 4, HOST_TO_DEVICE) == UNSUPPORTED  # type: ignore[arg-type]
    assert "pageable memory" in cuda.report()
    cuda.end_invalidated()


def test_an_ordinary_error_leaves_the_capture(cuda: Calls) -> None:
    """Whoever overlooks it has a graph without that work."""
    at = cuda.put(b"1234")
    cuda.begin()
    assert cuda.fill(at, 65, 5) == 1
    assert cuda.fill(at, 66, 2) == 0
    assert cuda.replay(cuda.executable()) == 0
    assert cuda.get(at, 4) == b"BB34"


def test_a_capturing_stream_is_not_destroyed(cuda: Calls) -> None:
    """Nor forgotten."""
    other = cuda.another_stream()
    cuda.begin(stream=other)
    assert "1 captures never ended" in cuda.report()
    assert cuda.status("cudaStreamDestroy", other) == UNSUPPORTED
    assert "was not destroyed" in cuda.report()
    assert cuda.end(other)[0] == INVALIDATED
    cuda.ok("cudaStreamDestroy", other)
    assert "never ended" not in cuda.report()


def test_planted_failures(cuda: Calls) -> None:
    """A failed begin begins nothing; a failed end ends the capture and gives no graph."""
    cuda.c.strict_fail(b"cudaStreamBeginCapture", c_int64(1), 999)
    assert cuda.status("cudaStreamBeginCapture", cuda.stream, THREAD_LOCAL) == 999
    assert cuda.capturing() == 0
    cuda.begin()
    cuda.c.strict_fail(b"cudaStreamIsCapturing", c_int64(1), 999)
    assert cuda.status("cudaStreamIsCapturing", cuda.stream, byref(c_int())) == 999
    cuda.c.strict_fail(b"cudaStreamEndCapture", c_int64(1), 999)
    status, graph = cuda.end()
    assert (status, graph.value, cuda.capturing()) == (999, None, 0)
