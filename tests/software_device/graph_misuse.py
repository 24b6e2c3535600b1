# SPDX-License-Identifier: MIT
"""A small graph on the strict software device, ready to be used wrongly."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ctypes import c_void_p

from tests import ROOT
from tests.software_device import graphs as names
from tests.software_device.calls import FLOAT, Calls, moved
from tests.software_device.graphs import CHAR, INT64, PART, POINTER, REAL8, Graphs, W, X, Y

#: Statuses
BAD, NULL, NOT_FINALIZED, SMALL, SHAPE, OTHER_TYPE, OTHER_KIND = 2000, 2002, 2004, 2006, 2008, 2010, 2012
NOTHING_YET, OTHER_VERSION, UNSUPPORTED, LAYOUT = 1001, 1002, 3000, 3004
H200 = (ROOT / "bridge" / "doctor" / "h200.json").read_bytes()


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

    def packed(self, ids: list[int], *, n: int | None = None) -> int:
        """Status of finalizing a pack of these ids."""
        addresses = [self.data[i] for i in (X, W, Y, 4, X, X)][: n or len(ids)]
        part = self.g.filled(names.VARIANT_PACK, [(1000, INT64, ids), (1001, POINTER, addresses),
                                                  (1003, POINTER, [None])])  # fmt: skip
        return self.g.finalize(part)

    def tensor(self, **changes: tuple[int, list[object]]) -> int:
        """Status of making a tensor with one attribute set in another way."""
        part = self.g.filled(names.TENSOR, [(901, names.DATA_TYPE, [FLOAT]), (902, INT64, [1, 2, 3, 4]),
                                            (903, INT64, [24, 12, 4, 1]), (906, INT64, [1]), (900, INT64, [16])])
        (name, (kind, values)), = changes.items()
        return self.g.set(part, int(name[1:]), kind, values) or self.g.finalize(part)

    def lacking(self, kind: int, attributes: list[tuple[int, int, list[object]]]) -> int:
        """Status of finalizing a descriptor with just these attributes."""
        return self.g.finalize(self.g.filled(kind, attributes))

    def graph_of(self, *operations: object) -> int:
        """Status of finalizing a graph."""
        part = self.g.create(names.OPERATIONGRAPH)
        return self.g.set(part, 801, PART, operations) or self.g.finalize(part)

    def text(self) -> bytes:
        """The plan's text."""
        room = self.g.get(self.plan, names.JSON, CHAR, 0)[1]
        return bytes(self.g.values(self.plan, names.JSON, CHAR, room))  # type: ignore[arg-type]

    def restored(self, text: bytes) -> int:
        """Status of making a plan from a text."""
        return self.lacking(names.EXECUTION_PLAN, [(400, names.HANDLE, [self.cuda.handle]), (405, CHAR, text)])

    def gone(self, part: c_void_p) -> c_void_p:
        """A descriptor that is destroyed."""
        self.cuda.ok("cudnnBackendDestroyDescriptor", part)
        self.g.made = [each for each in self.g.made if each is not part]
        return part

    def changed_convolution(self, **changes: list[int]) -> int:
        """Status of making a convolution descriptor with some attributes set in another way."""
        new = {int(name[1:]): values for name, values in changes.items()}
        part = self.g.filled(names.CONVOLUTION, [(100, names.DATA_TYPE, [FLOAT]), (101, names.MODE, [1])])
        status = 0
        for name, values in ({102: [1, 1], 103: [1, 1], 104: [1, 1], 105: [1, 1], 106: [2]} | new).items():
            status = status or self.g.set(part, name, INT64, values)
        return status or self.g.finalize(part)

    def convolve(self, x: object, w: object, y: object) -> c_void_p:
        """A forward convolution."""
        return self.g.convolve(names.FORWARD, self.conv, (x, w, y))

    def convolved(self, x: object, w: object, y: object, beta: float = 0) -> int:
        """Status of making one."""
        return self.lacking(names.FORWARD, [(702, PART, [self.conv]), (704, PART, [x]), (703, PART, [w]),
                                            (705, PART, [y]), (701, REAL8, [beta])])  # fmt: skip

    def pointwise(self, mode: int, **tensors: object) -> int:
        """Status of making a pointwise operation."""
        how = self.g.finalized(names.POINTWISE, [(0, names.POINTWISE_MODE, [mode]), (1, names.DATA_TYPE, [FLOAT])])
        return self.lacking(names.OPERATION_POINTWISE, [(750, PART, [how]), *(
            (int(name[1:]), PART, [tensor]) for name, tensor in tensors.items())])

    def summed(self, x: object, y: object) -> int:
        """Status of making a sum."""
        how = self.g.finalized(names.REDUCTION, [(1600, names.OPERATOR, [0]), (1601, names.DATA_TYPE, [FLOAT])])
        return self.lacking(names.OPERATION_REDUCTION, [(1612, PART, [how]), (1610, PART, [x]), (1611, PART, [y])])

    def described(self) -> c_void_p:
        """A plan for a device that is only described."""
        device = self.g.device(H200)
        plan = self.g.plan(self.g.engines(self.graph, device=device)[-1], device=device)
        self.g.check(self.g.finalize(plan), "plan")
        return plan

    def without_handle(self) -> c_void_p:
        """A handle that is gone; the plan's is another."""
        handle = self.cuda.make("cudnnCreate")
        self.cuda.ok("cudnnDestroy", handle)
        return handle

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
