# SPDX-License-Identifier: MIT
"""Wrong arguments of cuDNN calls: each gets a status and a reason."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from ctypes import c_size_t, c_void_p

import pytest

from tests.software_device.calls import FLOAT, IDENTITY, NHWC, Calls, moved, scalar

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep


class Small:
    """A 1 x 1 convolution of 4 x 4 images, ready to be called wrongly."""

    def __init__(self, cuda: Calls, dtype: int = FLOAT) -> None:
        self.cuda = cuda
        self.x, self.w = cuda.tensor((1, 1, 4, 4), dtype), cuda.filter((1, 1, 1, 1), dtype)
        self.conv = cuda.convolution()
        self.data = {name: cuda.put(struct.pack("16f", *range(16))) for name in "xwyz"}
        self.space, self.size = cuda.malloc(1 << 18), 1 << 18

    def forward(self, algo: int = 1, **changes: object) -> int:
        """Status of cudnnConvolutionForward, with some arguments changed."""
        a = {"alpha": scalar(1), "xd": self.x, "x": self.data["x"], "wd": self.w, "w": self.data["w"],
             "conv": self.conv, "algo": algo, "space": self.space, "size": c_size_t(self.size), "beta": scalar(0),
             "yd": self.x, "y": self.data["y"]} | changes  # fmt: skip
        return self.cuda.status("cudnnConvolutionForward", self.cuda.handle, *a.values())

    def fused(self, mode: int, algo: int, bias: c_void_p | None = None, zd: c_void_p | None = None,
              z: c_void_p | None = None) -> int:  # fmt: skip
        """Status of the fused call."""
        c, bias = self.cuda, bias or self.cuda.tensor((1, 1, 1, 1))
        return c.status("cudnnConvolutionBiasActivationForward", c.handle, scalar(1), self.x, self.data["x"], self.w,
                        self.data["w"], self.conv, algo, self.space, c_size_t(self.size), scalar(0), zd or self.x,
                        z or self.data["y"], bias, self.data["z"], c.activation(mode), self.x,
                        self.data["y"])  # fmt: skip


def destroyed(cuda: Calls) -> c_void_p:
    """A tensor descriptor that is gone."""
    descriptor = cuda.tensor((1, 1, 4, 4))
    cuda.ok("cudnnDestroyTensorDescriptor", descriptor)
    return descriptor


def freed(cuda: Calls) -> c_void_p:
    """Device memory that is gone."""
    address = cuda.malloc(64)
    cuda.ok("cudaFree", address)
    return address


Change = Callable[[Small], dict[str, object]]
PAGEABLE = ctypes.create_string_buffer(128)
#: Status, a part of the reason, what is changed
WRONG: dict[str, tuple[int, str, Change]] = {
    "small workspace": (2006, "algorithm 1 needs 6", lambda s: {"size": c_size_t(65536)}),
    "no workspace": (2006, "algorithm 1 needs 6", lambda s: {"space": None}),
    "workspace shorter than said": (2000, "workspace: 262145 bytes", lambda s: {"size": c_size_t((1 << 18) + 1)}),
    "null alpha": (2002, "alpha", lambda s: {"alpha": None}),
    "null beta": (2002, "beta", lambda s: {"beta": None}),
    "alpha on the device": (2000, "on the host", lambda s: {"alpha": s.data["z"]}),
    "null x": (2002, "x == nullptr", lambda s: {"x": None}),
    "host memory": (2000, "pinned host memory", lambda s: {"x": s.cuda.pinned(64)}),
    "pageable memory": (2000, "no memory of a device", lambda s: {"x": c_void_p(ctypes.addressof(PAGEABLE) & -16)}),
    "freed memory": (2000, "was freed", lambda s: {"x": freed(s.cuda)}),
    "x too short": (2000, "x: 64 bytes at byte 16", lambda s: {"x": moved(s.data["x"], 16)}),
    "misaligned": (2003, "multiple of 16", lambda s: {"y": moved(s.data["y"], 4)}),
    "in place": (2000, "overlaps", lambda s: {"y": s.data["x"]}),
    "workspace is x": (2000, "overlaps", lambda s: {"x": s.space}),
    "another kind": (2000, "found a filter descriptor, expected a tensor", lambda s: {"xd": s.w}),
    "destroyed descriptor": (2000, "was destroyed", lambda s: {"xd": destroyed(s.cuda)}),
    "descriptor never set": (2004, "never set", lambda s: {"xd": s.cuda.make("cudnnCreateTensorDescriptor")}),
    "foreign descriptor": (2000, "is no tensor descriptor", lambda s: {"xd": c_void_p(12345)}),
    "wrong output": (2000, "output is 1 1 4 4", lambda s: {"yd": s.cuda.tensor((1, 1, 4, 3))}),
    "wrong channels": (2000, "2 channels", lambda s: {"xd": s.cuda.tensor((1, 2, 4, 4))}),
    "wrong groups": (2000, "2 groups", lambda s: {"conv": s.cuda.convolution(groups=2)}),
    "wrong type": (2000, "data types", lambda s: {"wd": s.cuda.filter((1, 1, 1, 1), 1)}),
    "wrong layout": (3004, "formats", lambda s: {"wd": s.cuda.filter((1, 1, 1, 1), FLOAT, NHWC)}),
    "wrong compute type": (3000, "compute type", lambda s: {"conv": s.cuda.convolution(compute=2)}),
    "unsupported algorithm": (3000, "does not take", lambda s: {"algo": 3}),
    "Winograd of 1 x 1": (3000, "does not take", lambda s: {"algo": 6}),
    "unknown algorithm": (2000, "algorithm 8", lambda s: {"algo": 8}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_forward_call(cuda: Calls, name: str) -> None:
    """Each wrong argument gets its status and a reason, and nothing is queued."""
    status, reason, change = WRONG[name]
    small = Small(cuda)
    assert small.forward() == 0
    changed = change(small)
    queued = cuda.counter("operations")
    assert small.forward(**changed) == status
    assert reason in cuda.reason()
    assert cuda.counter("operations") == queued
    cuda.wait()


def test_fusion_with_the_identity_needs_algorithm_1(cuda: Calls) -> None:
    """As cuDNN's reference says."""
    small = Small(cuda)
    assert [small.fused(1, algo) for algo in (0, 1)] == [0, 0]
    assert [small.fused(IDENTITY, algo) for algo in (0, 1)] == [3000, 0]
    assert small.fused(2, 1) == 3000
    cuda.wait()


def test_wrong_fused_calls(cuda: Calls) -> None:
    """A bias or z of another shape, z that overlaps the result."""
    small = Small(cuda)
    two = cuda.put(bytes(128))
    small.data["y"] = moved(two, 32)
    assert small.fused(1, 1) == 0
    for wrong in ({"bias": cuda.tensor((1, 1, 1, 2))}, {"bias": cuda.tensor((1, 1, 1, 1), 1)}, {"z": two},
                  {"zd": cuda.tensor((1, 1, 4, 2))}):  # fmt: skip
        assert small.fused(1, 1, **wrong) == 2000
    cuda.wait()


def test_wrong_small_operations(cuda: Calls) -> None:
    """Shapes that do not fit, and a result that overlaps an operand."""
    x, one, zero, h, at = cuda.tensor((2, 3, 1, 1)), scalar(1), scalar(0), cuda.handle, cuda.put(bytes(64))
    for shape in ((3, 1, 1, 1), (1, 2, 1, 1), (1, 3, 1, 2)):
        b = cuda.tensor(shape)
        assert cuda.status("cudnnConvolutionBackwardBias", h, one, x, cuda.put(bytes(24)), zero, b, at) == 2000
        assert "expected 1 3 1 1" in cuda.reason()
        assert cuda.status("cudnnActivationForward", h, cuda.activation(), one, x, at, zero, b, at) == 2000
    for shape in ((3, 3, 1, 1), (2, 2, 1, 1), (2, 3, 1, 2)):
        assert cuda.status("cudnnAddTensor", h, one, cuda.tensor(shape), cuda.put(bytes(99)), zero, x, at) == 2000
    relu = cuda.activation()
    assert cuda.status("cudnnActivationForward", h, relu, one, x, at, zero, x, moved(at, 16)) == 2000
    assert "overlaps" in cuda.reason()


def test_fusion_can_be_switched_off(cuda: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a program's other way is tested."""
    small = Small(cuda)
    monkeypatch.setenv("STRICT_FUSION", "0")
    assert small.fused(1, 1) == 3000


def test_workspace_is_overwritten(cuda: Calls) -> None:
    """So sharing it with data would show."""
    small = Small(cuda)
    cuda.ok("cudaMemsetAsync", small.space, 0, c_size_t(small.size), cuda.stream)
    assert small.forward(algo=0) == 0
    assert set(cuda.get(small.space, small.size)) == {0}
    assert small.forward(algo=1) == 0
    assert set(cuda.get(small.space, small.size)) == {255}
