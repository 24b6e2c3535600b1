# SPDX-License-Identifier: MIT
"""A small graph on the strict software device, ready to be used wrongly."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ctypes import c_void_p

from tests.software_device import graphs as names
from tests.software_device.calls import FLOAT, Calls, moved
from tests.software_device.graphs import PART, Graphs, W, X, Y


class Small:
    """A 3 x 3 convolution of 4 x 4 images with bias and ReLU: tensors, operations, graph, plan, data."""

    def __init__(self, cuda: Calls) -> None:
        self.cuda, self.g = cuda, Graphs(cuda.c)
        g = self.g
        self.conv = g.convolution(padding=(1, 1))
        self.t = {X: g.tensor(X, (2, 3, 4, 4)), W: g.tensor(W, (5, 3, 3, 3)), Y: g.tensor(Y, (2, 5, 4, 4)),
                  names.BIAS: g.tensor(names.BIAS, (1, 5, 1, 1)), 7: g.tensor(7, (2, 5, 4, 4), virtual=True),
                  8: g.tensor(8, (2, 5, 4, 4), virtual=True)}  # fmt: skip
        self.ops = [g.convolve(names.FORWARD, self.conv, (self.t[X], self.t[W], self.t[7])),
                    g.pointwise(names.ADD, {751: self.t[7], 752: self.t[names.BIAS], 753: self.t[8]}),
                    g.pointwise(names.RELU, {751: self.t[8], 753: self.t[Y]})]  # fmt: skip
        self.graph = g.graph(*self.ops)
        self.engines = {engine.number: engine for engine in g.engines(self.graph)}
        self.data = {i: cuda.put(struct.pack(f"{n}f", *range(n))) for i, n in ((X, 96), (W, 135), (Y, 160), (4, 5))}
        self.plan = self.planned(4)
        self.spacious = self.planned(5)
        self.space = cuda.malloc(1 << 17)

    def executed(self) -> int:
        """Operations that were queued and are no copies."""
        return self.cuda.counter("operations") - self.cuda.counter("cudaMemcpyAsync")

    def planned(self, number: int) -> c_void_p:
        """A plan of an engine."""
        plan = self.g.plan(self.engines[number], handle=self.cuda.handle)
        self.g.check(self.g.finalize(plan), number)
        return plan

    def execute(self, plan: object = None, handle: object = None, pack: object = None, space: object = None,
                **data: object) -> int:  # fmt: skip
        """Status of an execution; `data` replaces addresses, by "x", "w", "y", "bias"."""
        new = {{"x": X, "w": W, "y": Y, "bias": 4}[name]: address for name, address in data.items()}
        pack = pack or self.g.pack(self.data | new, space)
        return self.cuda.status("cudnnBackendExecute", handle or self.cuda.handle, plan or self.plan, pack)

    def lacking(self, kind: int, attributes: list[tuple[int, int, list[object]]]) -> int:
        """Status of finalizing a descriptor with just these attributes."""
        return self.g.finalize(self.g.filled(kind, attributes))

    def gone(self, part: c_void_p) -> c_void_p:
        """A descriptor that is destroyed."""
        self.cuda.ok("cudnnBackendDestroyDescriptor", part)
        self.g.made = [each for each in self.g.made if each is not part]
        return part

    def convolved(self, x: object, w: object, y: object) -> int:
        """Status of making a forward convolution."""
        return self.lacking(names.FORWARD, [(702, PART, [self.conv]), (704, PART, [x]), (703, PART, [w]),
                                            (705, PART, [y])])

    def pointwise(self, mode: int, **tensors: object) -> int:
        """Status of making a pointwise operation."""
        how = self.g.finalized(names.POINTWISE, [(0, names.POINTWISE_MODE, [mode]), (1, names.DATA_TYPE, [FLOAT])])
        return self.lacking(names.OPERATION_POINTWISE, [(750, PART, [how]), *(
            (int(name[1:]), PART, [tensor]) for name, tensor in tensors.items())])

    def overlapping(self) -> int:
        """Status of an execution whose result ends where the bias is."""
        both = self.cuda.malloc(656)
        return self.execute(y=both, bias=moved(both, 624))

    def freed(self, size: int) -> c_void_p:
        """Device memory that is gone."""
        address = self.cuda.malloc(size)
        self.cuda.ok("cudaFree", address)
        return address


def refused(cuda: Calls, status: int, reason: str, call: Callable[[Small], int]) -> None:
    """The status, its reason, and nothing queued but copies of new data."""
    small = Small(cuda)
    executions = small.executed()
    assert call(small) == status, cuda.reason()
    assert reason in cuda.reason()
    assert small.executed() == executions
    cuda.wait()
