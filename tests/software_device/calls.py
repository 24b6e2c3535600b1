# SPDX-License-Identifier: MIT
"""The C functions of the strict software device from Python, for the tests of the device itself.

Needs nothing but ctypes, so that a child process that is meant to die starts fast.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
FLOAT, DOUBLE, HALF, BFLOAT16 = 0, 1, 2, 9
NCHW, NHWC = 0, 1
CONVOLUTION, CROSS_CORRELATION = 0, 1
NON_BLOCKING = 1
THREAD_LOCAL = 1
BYTES = {FLOAT: 4, DOUBLE: 8, HALF: 2, BFLOAT16: 2}


class Calls:
    """One device: every C function by name, and a few shorthands. A stream is made at the start.

    Examples
    --------
    ``cuda = Calls(folder); cuda.get(cuda.put(b"four"), 4)`` gives ``b"four"``
    """

    def __init__(self, folder: str | Path) -> None:
        self.c = ctypes.CDLL(str(Path(folder) / "libcudart.so.13"))
        self.c.cudnnGetErrorString.restype = ctypes.c_char_p
        self.c.cudaGetErrorName.restype = ctypes.c_char_p
        self.c.strict_counter.restype = ctypes.c_int64
        self.c.strict_report.restype = ctypes.c_int64
        self.stream = self.make("cudaStreamCreateWithFlags", c_uint(NON_BLOCKING))
        self.handle = self.make("cudnnCreate")
        self.ok("cudnnSetStream", self.handle, self.stream)
        #: Streams of this device, and those that captured
        self.streams, self.begun = [self.stream], list[c_void_p]()

    def status(self, name: str, *arguments: object) -> int:
        """Status of a call; a Python int goes as C int, None as the null pointer."""
        return int(self.c[name](*arguments))

    def ok(self, name: str, *arguments: object) -> None:
        """A call that must succeed."""
        status = self.status(name, *arguments)
        assert status == 0, f"{name}: status {status}: {self.reason()}"

    def make(self, name: str, *arguments: object) -> c_void_p:
        """What a function gives through its first argument."""
        made = c_void_p()
        self.ok(name, byref(made), *arguments)
        return made

    def reason(self) -> str:
        """The last error's text."""
        text = ctypes.create_string_buffer(1000)
        self.c.cudnnGetLastErrorString(text, c_size_t(len(text)))
        return text.value.decode()

    def report(self) -> str:
        """What is alive or was complained of."""
        text = ctypes.create_string_buffer(16384)
        self.c.strict_report(text, ctypes.c_int64(len(text)))
        return text.value.decode()

    def counter(self, name: str) -> int:
        """A counter of the device."""
        return int(self.c.strict_counter(name.encode()))

    def malloc(self, size: int) -> c_void_p:
        """Device memory."""
        return self.make("cudaMalloc", c_size_t(size))

    def pinned(self, size: int) -> c_void_p:
        """Pinned host memory."""
        return self.make("cudaMallocHost", c_size_t(size))

    def copy(self, to: c_void_p, source: c_void_p, size: int, kind: int, stream: c_void_p | None = None) -> int:
        """Status of a queued copy."""
        return self.status("cudaMemcpyAsync", to, source, c_size_t(size), kind, stream or self.stream)

    def wait(self) -> None:
        """Wait for the stream."""
        self.ok("cudaStreamSynchronize", self.stream)

    def put(self, data: bytes) -> c_void_p:
        """Device memory with these bytes."""
        host, device = self.pinned(len(data)), self.malloc(len(data))
        ctypes.memmove(host, data, len(data))
        assert self.copy(device, host, len(data), HOST_TO_DEVICE) == 0
        self.wait()
        self.ok("cudaFreeHost", host)
        return device

    def get(self, device: c_void_p, size: int) -> bytes:
        """The bytes of device memory, after all work on the stream."""
        host = self.pinned(size)
        assert self.copy(host, device, size, DEVICE_TO_HOST) == 0
        self.wait()
        data = ctypes.string_at(host, size)
        self.ok("cudaFreeHost", host)
        return data

    def event(self) -> c_void_p:
        """An event without times."""
        return self.make("cudaEventCreateWithFlags", c_uint(2))

    def another_stream(self, flags: int = NON_BLOCKING) -> c_void_p:
        """A second stream."""
        self.streams.append(self.make("cudaStreamCreateWithFlags", c_uint(flags)))
        return self.streams[-1]

    def fill(self, at: c_void_p, value: int, size: int = 4, stream: c_void_p | None = None) -> int:
        """Status of a queued cudaMemsetAsync."""
        return self.status("cudaMemsetAsync", at, value, c_size_t(size), stream or self.stream)

    def begin(self, mode: int = THREAD_LOCAL, stream: c_void_p | None = None) -> None:
        """The stream captures from now on."""
        self.ok("cudaStreamBeginCapture", stream or self.stream, mode)
        self.begun.append(stream or self.stream)

    def end(self, stream: c_void_p | None = None) -> tuple[int, c_void_p]:
        """Status of the end of a capture, and the graph."""
        graph = c_void_p(-1)
        return self.status("cudaStreamEndCapture", stream or self.stream, byref(graph)), graph

    def end_invalidated(self) -> None:
        """The capture is invalidated: it takes no more, its end says so, and then the stream works again."""
        assert self.capturing() == 2
        assert self.status("cudaEventRecord", self.event(), self.stream) == 901
        status, graph = self.end()
        assert (status, graph.value, self.capturing()) == (901, None, 0)
        at = self.put(b"1234")
        assert self.fill(at, 65) == 0
        assert self.get(at, 4) == b"AAAA"

    def capturing(self, stream: c_void_p | None = None) -> int:
        """0, not at all; 1; 2, invalidated."""
        found = c_int(-1)
        self.ok("cudaStreamIsCapturing", stream or self.stream, byref(found))
        return found.value

    def executable(self, stream: c_void_p | None = None) -> c_void_p:
        """The capture, ended and made executable."""
        status, graph = self.end(stream)
        assert status == 0, self.reason()
        made = self.make("cudaGraphInstantiate", graph, c_ulonglong(0))
        self.ok("cudaGraphDestroy", graph)
        return made

    def replay(self, graph: c_void_p, stream: c_void_p | None = None) -> int:
        """Status of a launch."""
        return self.status("cudaGraphLaunch", graph, stream or self.stream)

    def give_streams_back(self) -> None:
        """The process has a limited number of them, and captures that go on would disturb the next test."""
        for stream in self.begun:
            self.end(stream)
        for stream in self.streams:
            self.status("cudaStreamSynchronize", stream)
            self.status("cudaStreamDestroy", stream)


def floats(*values: float) -> bytes:
    """As they lie in memory."""
    return struct.pack(f"{len(values)}f", *values)


def moved(address: c_void_p, offset: int) -> c_void_p:
    """An address further on."""
    return c_void_p((address.value or 0) + offset)
