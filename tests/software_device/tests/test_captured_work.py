# SPDX-License-Identifier: MIT
"""Every kind of work in a CUDA graph on the software device: as without one, nothing gone, nothing that waits."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from ctypes import byref, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import pytest

from tests.software_device.calls import DEVICE_TO_DEVICE, HOST_TO_DEVICE, Calls, Perf, floats, scalar
from tests.software_device.graph_misuse import Small
from tests.software_device.graphs import Y

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep

PTX = b".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry cnn_narrow_f32(\n"


class Everything:
    """A convolution two ways, a bias, a narrowing kernel, and copies: all that a step calls."""

    def __init__(self, cuda: Calls) -> None:
        self.cuda, self.small = cuda, Small(cuda)
        self.loaded = cuda.make("cuModuleLoadData", PTX)
        self.narrow = cuda.make("cuModuleGetFunction", self.loaded, b"cnn_narrow_f32")
        self.host, self.x, self.y = cuda.pinned(32), cuda.malloc(32), cuda.malloc(16)
        self.image, self.sum = cuda.put(floats(3)), cuda.put(floats(1))
        self.one, self.filter, self.conv = cuda.tensor((1, 1, 1, 1)), cuda.filter((1, 1, 1, 1)), cuda.convolution()
        self.weight = cuda.put(floats(7))

    def run(self) -> None:
        """Queue it, or let it be captured."""
        cuda, n, one = self.cuda, c_int64(4), self.one
        assert cuda.copy(self.x, self.host, 32, HOST_TO_DEVICE) == 0
        arguments = (c_void_p * 3)(*(ctypes.addressof(each) for each in (n, self.x, self.y)))
        cuda.ok("cuLaunchKernel", self.narrow, 1, 1, 1, 256, 1, 1, 0, cuda.stream, arguments, None)
        ctypes.memset(ctypes.addressof(n), 0, 8)  # the argument was taken
        cuda.ok("cudnnAddTensor", cuda.handle, scalar(10), one, self.y, scalar(1), one, self.image)
        cuda.ok("cudnnConvolutionForward", cuda.handle, scalar(1), one, self.image, self.filter, self.weight, self.conv,
                0, None, c_size_t(0), scalar(1), one, self.sum)  # fmt: skip
        assert self.small.execute() == 0
        assert cuda.copy(self.small.data[4], self.sum, 4, DEVICE_TO_DEVICE) == 0
        assert cuda.fill(self.weight, 0x40) == 0

    def results(self) -> list[bytes]:
        """All that was written."""
        cuda = self.cuda
        made = [(self.y, 16), (self.image, 4), (self.sum, 4), (self.small.data[Y], 640), (self.small.data[4], 4)]
        return [cuda.get(at, size) for at, size in made]


@pytest.fixture
def everything(cuda: Calls) -> Everything:
    """All kinds of work."""
    return Everything(cuda)


COUNTED = ("operations", "kernel launches", "bytes to device", "graph engine 4", "nodes captured", "nodes replayed",
           "graph launches")  # fmt: skip


def test_every_kind_of_work(everything: Everything, folder: Path) -> None:
    """The same bits as without a graph, by two replays; work is counted when it is queued, not when it is captured."""
    cuda, plain = everything.cuda, Everything(Calls(folder))
    for each in (everything, plain):
        ctypes.memmove(each.host, struct.pack("4d", 1, 2, 3, 4), 32)
    start = {name: cuda.counter(name) for name in COUNTED}

    def counted() -> list[int]:
        return [cuda.counter(name) - start[name] for name in COUNTED]

    cuda.begin()
    everything.run()
    graph = cuda.executable()
    assert counted() == [0, 0, 0, 0, 7, 0, 0]
    assert [cuda.replay(graph) for _ in range(2)] == [0, 0]
    assert counted() == [14, 2, 64, 2, 7, 14, 2]
    for _ in range(2):
        plain.run()
    assert everything.results() == plain.results()
    assert everything.results()[1] == floats(3 + 10 + 10)
    assert "complaint" not in cuda.report()


#: What is gone at the replay -> how it went, and the complaint
GONE: dict[str, tuple[Callable[[Everything], tuple[object, ...]], str]] = {
    "device memory": (lambda e: ("cudaFree", e.image), "cudnnAddTensor: .*memory that was freed"),
    "a workspace or output": (lambda e: ("cudaFree", e.small.data[Y]), "cudnnBackendExecute: .*memory that was freed"),
    "pinned memory": (lambda e: ("cudaFreeHost", e.host), "cudaMemcpyAsync: .*memory that was freed"),
    "kernels": (lambda e: ("cuModuleUnload", e.loaded), "this module was destroyed"),
    "a cuDNN handle": (lambda e: ("cudnnDestroy", e.cuda.handle), "this cuDNN handle was destroyed"),
    "a plan": (lambda e: ("cudnnBackendDestroyDescriptor", e.small.plan), "this graph descriptor was destroyed"),
}


@pytest.mark.parametrize("name", GONE)
def test_what_is_gone_at_the_replay(everything: Everything, name: str) -> None:
    """A complaint, and nothing is queued."""
    cuda, (call, complaint) = everything.cuda, GONE[name]
    cuda.begin()
    everything.run()
    graph = cuda.executable()
    cuda.ok(*call(everything))  # type: ignore[arg-type]
    operations = cuda.counter("operations")
    assert cuda.replay(graph) == 1
    assert cuda.counter("operations") == operations
    assert [line for line in cuda.report().splitlines() if all(part in line for part in complaint.split(".*"))]


@pytest.mark.parametrize(("setting", "status"), [("0", 5000), ("2", 0)])
def test_a_cudnn_that_cannot_be_captured(cuda: Calls, monkeypatch: pytest.MonkeyPatch, setting: str,
                                         status: int) -> None:  # fmt: skip
    """Its first call fails, or the end of the capture is the first to say so; outside of captures all is well."""
    monkeypatch.setenv("STRICT_CAPTURE", setting)
    d, at, bias = cuda.tensor((1, 1, 1, 1)), cuda.put(floats(3)), cuda.put(floats(5))
    add = (cuda.handle, scalar(1), d, bias, scalar(1), d, at)
    cuda.begin()
    assert cuda.fill(bias, 0) == 0
    assert cuda.capturing() == 1
    assert cuda.status("cudnnAddTensor", *add) == status
    cuda.end_invalidated()
    cuda.ok("cudnnAddTensor", *add)
    assert cuda.get(at, 4) == floats(8)


def test_calls_that_wait_inside(cuda: Calls) -> None:
    """A trial of algorithms."""
    d, w, perf = cuda.tensor((1, 1, 1, 1)), cuda.filter((1, 1, 1, 1)), (Perf * 9)()
    arguments = (cuda.handle, d, cuda.put(floats(3, 4)), w, cuda.put(bytes(4)), cuda.convolution(), d, cuda.malloc(4),
                 9, byref(c_int()), perf, None, c_size_t(0))  # fmt: skip
    cuda.begin()
    assert cuda.status("cudnnFindConvolutionForwardAlgorithmEx", *arguments) == 5003
    cuda.end_invalidated()
    cuda.ok("cudnnFindConvolutionForwardAlgorithmEx", *arguments)
