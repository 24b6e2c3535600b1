# SPDX-License-Identifier: MIT
"""CUDA graphs on the software device: what a replay runs, in which order, and what it complains of."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from ctypes import byref, c_int64, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path

import pytest

from tests import ROOT
from tests.software_device.calls import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, RELAXED, Calls, floats, scalar

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep


def alive(cuda: Calls) -> tuple[int, int]:
    """Graphs and executable graphs, those of other tests included."""
    report = cuda.report()
    found = [re.search(rf"^(\d+) {kind} alive$", report, re.M) for kind in ("CUDA graph", "executable CUDA graph")]
    return tuple(int(each[1]) if each else 0 for each in found)  # type: ignore[return-value]


def recorded(cuda: Calls, *calls: tuple[object, ...]) -> c_void_p:
    """An executable graph of these calls, each a name and arguments."""
    cuda.begin()
    for name, *arguments in calls:
        cuda.ok(str(name), *arguments)
    return cuda.executable()


def test_a_replay_is_lazy_and_in_order(cuda: Calls) -> None:
    """Behind what was queued on its stream, before what comes after; again and again."""
    at, host = cuda.put(b"1234"), cuda.pinned(4)
    graph = recorded(cuda, ("cudaMemsetAsync", at, 65, c_size_t(2), cuda.stream),
                     ("cudaMemcpyAsync", host, at, c_size_t(4), DEVICE_TO_HOST, cuda.stream))
    assert cuda.fill(at, 66) == 0
    assert cuda.replay(graph) == 0
    assert cuda.fill(at, 67) == 0
    assert ctypes.string_at(host, 4) == b"\xff" * 4
    cuda.wait()
    assert ctypes.string_at(host, 4) == b"AABB"
    assert cuda.replay(graph) == 0
    cuda.wait()
    assert ctypes.string_at(host, 4) == b"AACC"


def test_values_are_taken_at_the_capture(cuda: Calls) -> None:
    """Scaling factors and descriptors; of pinned memory the address, and so what is in it at the replay."""
    at, bias, host, factor = cuda.put(floats(0)), cuda.put(floats(0)), cuda.pinned(4), scalar(2)
    d, two = cuda.tensor((1, 1, 1, 1)), scalar(2)
    graph = recorded(cuda, ("cudaMemcpyAsync", bias, host, c_size_t(4), HOST_TO_DEVICE, cuda.stream),
                     ("cudnnAddTensor", cuda.handle, factor, d, bias, scalar(1), d, at),
                     ("cudnnAddTensor", cuda.handle, scalar(0), d, bias, two, d, at))
    ctypes.memmove(factor, floats(99), 4)
    ctypes.memmove(two, floats(99), 4)
    cuda.ok("cudnnSetTensor4dDescriptor", d, 0, 0, 7, 7, 7, 7)
    cuda.ok("cudnnDestroyTensorDescriptor", d)
    for value in (3, 5):
        ctypes.memmove(host, floats(value), 4)
        assert cuda.replay(graph) == 0
        cuda.wait()
    assert cuda.get(at, 4) == floats(2 * (2 * (2 * 3) + 2 * 5))


def test_life_of_a_graph(cuda: Calls) -> None:
    """Each executable copy lives on without the graph, and what it queued without itself; stale ones are told."""
    at, other, (graphs, copies) = cuda.put(b"1234"), cuda.put(b"1234"), alive(cuda)
    cuda.begin()
    assert cuda.fill(at, 65) == 0
    assert cuda.copy(other, at, 4, DEVICE_TO_DEVICE) == 0
    graph = cuda.end()[1]
    first, second = (cuda.make("cudaGraphInstantiate", graph, c_ulonglong(flags)) for flags in (0, 8))
    assert cuda.status("cudaGraphInstantiate", byref(c_void_p()), graph, c_ulonglong(4)) == 1
    assert cuda.status("cudaGraphInstantiate", None, graph, c_ulonglong(0)) == 1
    assert alive(cuda) == (graphs + 1, copies + 2)
    cuda.ok("cudaGraphDestroy", graph)
    assert cuda.status("cudaGraphInstantiate", byref(c_void_p()), graph, c_ulonglong(0)) == 1
    assert "this CUDA graph was destroyed" in cuda.report()
    cuda.ok("cudaGraphExecDestroy", first)
    cuda.ok("cudaGraphUpload", second, cuda.stream)
    assert cuda.replay(second) == 0
    cuda.ok("cudaGraphExecDestroy", second)
    assert cuda.get(other, 4) == b"AAAA"
    assert [cuda.replay(each) for each in (second, graph, cuda.stream, c_void_p())] == [1, 1, 1, 1]
    assert cuda.status("cudaGraphUpload", second, cuda.stream) == 1
    for name, each in (("cudaGraphDestroy", graph), ("cudaGraphExecDestroy", second)):
        assert cuda.status(name, each) == 1
    assert cuda.report().count("this executable CUDA graph was destroyed") == 3
    assert alive(cuda) == (graphs, copies)


def test_an_empty_graph(cuda: Calls) -> None:
    """Is one, and runs nothing."""
    operations = cuda.counter("operations")
    assert cuda.replay(recorded(cuda)) == 0
    assert cuda.counter("operations") == operations


def test_launches_on_several_streams(cuda: Calls) -> None:
    """One executable graph waits for its launch before; two of them need an event, as any work does."""
    at, other = cuda.put(b"1234"), cuda.another_stream()
    calls = ("cudaMemsetAsync", at, 65, c_size_t(4), cuda.stream)
    one, two = recorded(cuda, calls), recorded(cuda, calls)
    first = cuda.event()
    assert cuda.replay(one) == 0
    cuda.ok("cudaEventRecord", first, cuda.stream)
    assert cuda.replay(one, other) == 0
    assert "race" not in cuda.report()
    cuda.ok("cudaStreamSynchronize", other)
    assert cuda.status("cudaEventQuery", first) == 0
    event = cuda.event()
    assert cuda.replay(one) == 0
    cuda.ok("cudaEventRecord", event, cuda.stream)
    cuda.ok("cudaStreamWaitEvent", other, event, c_uint(0))
    assert cuda.replay(two, other) == 0
    assert "race" not in cuda.report()
    assert cuda.replay(one) == 0
    assert "race: cudaMemsetAsync and cudaMemsetAsync" in cuda.report()
    cuda.wait()
    cuda.ok("cudaStreamSynchronize", other)


def test_launches_that_are_refused(cuda: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a capture, on another device, on a stream that is gone."""
    monkeypatch.setenv("STRICT_DEVICES", "2")
    at, gone = cuda.put(b"1234"), cuda.another_stream()
    cuda.begin()
    assert cuda.fill(at, 65) == 0
    graph = cuda.end()[1]
    made = cuda.make("cudaGraphInstantiate", graph, c_ulonglong(0))
    for name in ("cudaGraphLaunch", "cudaGraphUpload"):
        cuda.begin(RELAXED)
        assert cuda.status(name, made, cuda.stream) == 900
        assert cuda.status(name, made, cuda.stream) == 901
        assert cuda.end()[0] == 901
    cuda.ok("cudaStreamDestroy", gone)
    assert cuda.replay(made, gone) == 400
    cuda.ok("cudaSetDevice", 1)
    assert cuda.replay(made) == 400
    assert cuda.status("cudaGraphLaunch", made, None) == 1
    assert "graph of device 0, current device 1" in cuda.report()
    assert cuda.status("cudaGraphInstantiate", byref(c_void_p()), graph, c_ulonglong(0)) == 1
    cuda.ok("cudaSetDevice", 0)
    assert cuda.get(at, 4) == b"1234"
    assert cuda.status("cudaGraphLaunch", made, None) == 0
    cuda.ok("cudaStreamSynchronize", None)
    assert cuda.get(at, 4) == b"AAAA"


def test_pinned_memory_under_a_launch(cuda: Calls) -> None:
    """It cannot be freed before the launch was waited for."""
    at, host = cuda.put(b"1234"), cuda.pinned(4)
    graph = recorded(cuda, ("cudaMemcpyAsync", at, host, c_size_t(4), HOST_TO_DEVICE, cuda.stream))
    assert cuda.replay(graph) == 0
    assert cuda.status("cudaFreeHost", host) == 1
    assert "has not been waited for" in cuda.report()


def test_planted_failures(cuda: Calls) -> None:
    """Nothing is made or queued; destroying destroys in any case."""
    at, before = cuda.put(b"1234"), alive(cuda)
    cuda.begin()
    assert cuda.fill(at, 65) == 0
    graph = cuda.end()[1]
    made = cuda.make("cudaGraphInstantiate", graph, c_ulonglong(0))
    calls = {"cudaGraphInstantiate": (byref(c_void_p()), graph, c_ulonglong(0)), "cudaGraphLaunch": (made, cuda.stream),
             "cudaGraphUpload": (made, cuda.stream), "cudaGraphDestroy": (graph,), "cudaGraphExecDestroy": (made,),
             "cudaEventQuery": (cuda.event(),), "cudaEventSynchronize": (cuda.event(),)}  # fmt: skip
    for name, arguments in calls.items():
        cuda.c.strict_fail(name.encode(), c_int64(1), 999)
        assert cuda.status(name, *arguments) == 999, name
    assert alive(cuda) == before
    assert cuda.get(at, 4) == b"1234"


@pytest.mark.parametrize(("kept", "text"), [("graph", "1 CUDA graph alive"), ("made", "1 executable CUDA graph alive"),
                                            ("capture", "1 captures never ended")])  # fmt: skip
def test_what_is_left_over_is_a_leak(folder: Path, kept: str, text: str) -> None:
    """At the end of the process, with STRICT_AT_EXIT=2."""
    program = f"""if True:
        from tests.software_device.calls import *
        cuda = Calls({str(folder)!r})
        cuda.begin()
        kept = {kept!r}
        if kept != "capture":
            graph = cuda.end()[1]
            made = cuda.make("cudaGraphInstantiate", graph, c_ulonglong(0))
            if kept == "made": cuda.ok("cudaGraphDestroy", graph)
            else: cuda.ok("cudaGraphExecDestroy", made)
        cuda.status("cudnnDestroy", cuda.handle)
        if kept != "capture": cuda.ok("cudaStreamDestroy", cuda.stream)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                          cwd=ROOT, env=os.environ | {"STRICT_AT_EXIT": "2"})
    assert done.returncode == 99
    assert text in done.stderr.splitlines()
