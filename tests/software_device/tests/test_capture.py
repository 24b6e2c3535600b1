# SPDX-License-Identifier: MIT
"""CUDA graphs on the software device: what is recorded, what invalidates a capture, what a replay runs and refuses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint, c_ulonglong, c_void_p, create_string_buffer

import pytest

from tests.helpers.loops import looped
from tests.software_device.calls import DEVICE_TO_HOST, HOST_TO_DEVICE, Calls
from tests.software_device.graph_misuse import Small
from tests.software_device.graphs import X, Y

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep

UNSUPPORTED, INVALIDATED, MERGE, ISOLATION = 900, 901, 902, 905
PTX = b".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry cnn_narrow_f32(\n"


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


#: A call that no graph would repeat, and its status: prepared before the capture
UNSAFE: dict[str, tuple[Callable[[Calls], tuple[object, ...]], int]] = {
    "cudaMalloc": (lambda c: (byref(c_void_p()), c_size_t(4)), UNSUPPORTED),
    "cudaFree": (lambda c: (c.malloc(4),), UNSUPPORTED),
    "cudaMallocHost": (lambda c: (byref(c_void_p()), c_size_t(4)), UNSUPPORTED),
    "cudaFreeHost": (lambda c: (c.pinned(4),), UNSUPPORTED),
    "cudaStreamSynchronize": (lambda c: (c.stream,), UNSUPPORTED),
    "cudaEventSynchronize": (lambda c: (c.event(),), UNSUPPORTED),
    "cuModuleLoadData": (lambda c: (byref(c_void_p()), PTX), UNSUPPORTED),
    "cudaGraphInstantiate": (lambda c: (byref(c_void_p()), None, c_ulonglong(0)), UNSUPPORTED),
    "cudnnCreate": (lambda c: (byref(c_void_p()),), 4004),
    "cudnnDestroy": (lambda c: (c.make("cudnnCreate"),), 5003),
}  # fmt: skip


@looped("name", UNSAFE)
def test_unsafe_calls_invalidate(cuda: Calls, name: str) -> None:
    """They allocate, free, load or wait; what was to be freed is still there."""
    prepare, status = UNSAFE[name]
    arguments = prepare(cuda)
    cuda.begin()
    assert cuda.status(name, *arguments) == status
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


def test_pageable_memory(cuda: Calls) -> None:
    """A copy of it waits, or reads what is no longer there when the graph runs."""
    at, host = cuda.malloc(4), create_string_buffer(4)
    cuda.begin()
    assert cuda.copy(at, host, 4, HOST_TO_DEVICE) == UNSUPPORTED  # type: ignore[arg-type]
    assert "pageable memory" in cuda.report()
    cuda.end_invalidated()


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


def test_a_replay_is_lazy_and_in_order(cuda: Calls) -> None:
    """Behind what was queued on its stream, before what comes after; again and again; and other streams need events."""
    at, host, other = cuda.put(b"1234"), cuda.pinned(4), cuda.another_stream()
    cuda.begin()
    assert cuda.fill(at, 65, 2) == 0 and cuda.copy(host, at, 4, DEVICE_TO_HOST) == 0
    graph = cuda.executable()
    assert cuda.fill(at, 66) == 0
    assert cuda.replay(graph) == 0
    assert cuda.fill(at, 67) == 0
    assert ctypes.string_at(host, 4) == b"\xff" * 4
    cuda.wait()
    assert ctypes.string_at(host, 4) == b"AABB"
    assert cuda.replay(graph) == 0
    assert cuda.fill(at, 66, 4, other) == 0 and "race: cudaMemsetAsync and cudaMemsetAsync" in cuda.report()
    cuda.wait()
    assert ctypes.string_at(host, 4) == b"AACC"
    assert cuda.replay(graph) == 0
    assert cuda.status("cudaFreeHost", host) == 1 and "has not been waited for" in cuda.report()


def narrow(cuda: Calls, kernel: c_void_p, arrays: tuple[c_void_p, c_void_p]) -> None:
    """Queue a kernel, or let it be captured."""
    n = ctypes.c_int64(4)
    arguments = (c_void_p * 3)(*(ctypes.addressof(each) for each in (n, *arrays)))
    cuda.ok("cuLaunchKernel", kernel, 1, 1, 1, 256, 1, 1, 0, cuda.stream, arguments, None)
    n.value = 1 << 40  # the argument was taken


@looped(("name", "complaint"), [
    ("input", "cudnnBackendExecute: .*memory that was freed"),
    ("output", "cudnnBackendExecute: .*memory that was freed"),
    ("pinned", "cudaMemcpyAsync: .*memory that was freed"), ("module", "this module was destroyed"),
    ("handle", "this cuDNN handle was destroyed"), ("plan", "this graph descriptor was destroyed")])
def test_what_is_gone_at_the_replay(folder: object, name: str, complaint: str) -> None:
    """A complaint, and nothing is queued; before, a replay does every kind of work."""
    cuda = Calls(str(folder))
    small, host = Small(cuda), cuda.pinned(4)
    module = cuda.make("cuModuleLoadData", PTX)
    kernel = cuda.make("cuModuleGetFunction", module, b"cnn_narrow_f32")
    arrays = cuda.malloc(32), cuda.malloc(16)
    cuda.begin()
    narrow(cuda, kernel, arrays)
    assert small.execute() == 0 and cuda.copy(small.data[4], host, 4, HOST_TO_DEVICE) == 0
    graph = cuda.executable()
    assert cuda.replay(graph) == 0
    cuda.wait()
    call = {"input": ("cudaFree", small.data[X]), "output": ("cudaFree", small.data[Y]),
            "pinned": ("cudaFreeHost", host), "module": ("cuModuleUnload", module),
            "handle": ("cudnnDestroy", cuda.handle), "plan": ("cudnnBackendDestroyDescriptor", small.plan)}[name]
    cuda.ok(*call)
    operations = cuda.counter("operations")
    assert cuda.replay(graph) == 1 and cuda.counter("operations") == operations
    assert [line for line in cuda.report().splitlines() if all(part in line for part in complaint.split(".*"))]
    cuda.give_streams_back()
