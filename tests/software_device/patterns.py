# SPDX-License-Identifier: MIT
"""The graphs of a training step on the strict software device, and what PyTorch makes of them in float64."""

from __future__ import annotations

import torch

from tests.software_device import graphs as names
from tests.software_device.calls import CROSS_CORRELATION, FLOAT, NCHW, Calls
from tests.software_device.convolutions import TYPES, Case, get, put, sample, truth
from tests.software_device.graphs import BEST, BIAS, MASK, VIRTUAL, Engine, Graphs, W, X, Y, compute_type

#: What is computed, and where the result is
PATTERNS = {"forward": Y, "bias": Y, "relu": Y, "bias, relu": Y, "data": X, "mask": X, "filter": W, "sum": W}
#: Numbers of engines, the first offer first
TF32, RANDOM, FFT, WINOGRAD, PLAIN, SPACE, COMPILED, NO_PLAN = range(8)
#: Of filter gradients, without a note
SILENT_WINOGRAD = 17


class Pattern:
    """One pattern on the device, its operands in memory."""

    def __init__(self, cuda: Calls, name: str, case: Case, dtype: int = FLOAT, layout: int = NCHW, *,
                 mode: int = CROSS_CORRELATION, alpha: float = 1, beta: float = 0, nan: int = 1) -> None:  # fmt: skip
        self.cuda, self.name, self.case, self.dtype, self.layout = cuda, name, case, dtype, layout
        self.g = Graphs(cuda.c)
        x, w, dy = sample(case, dtype)
        torch.manual_seed(7)
        self.values = {X: x, W: w, Y: dy, BIAS: torch.randn(1, dy.shape[1], 1, 1, dtype=torch.float64).to(TYPES[dtype]),
                       MASK: torch.randn(x.shape, dtype=torch.float64).round().to(TYPES[dtype])}  # fmt: skip
        used = {X, W, Y, *[BIAS] * ("bias" in name), *[MASK] * (name == "mask")}
        if name == "sum":
            used, self.values[W] = {Y, W}, torch.zeros(1, dy.shape[1], 1, 1, dtype=TYPES[compute_type(dtype)])
        self.result = PATTERNS[name]
        self.data = {i: put(cuda, self.values[i], layout) for i in used}
        self.graph = self.build(mode, alpha, beta, nan)

    def build(self, mode: int, alpha: float, beta: float, nan: int) -> object:
        """The operation graph."""
        g, compute, case = self.g, compute_type(self.dtype), self.case
        t = {i: g.tensor(i, self.values[i].shape, self.dtype, self.layout) for i in self.data}
        between = [g.tensor(VIRTUAL + i, self.values[self.result].shape, compute, self.layout, virtual=True)
                   for i in range(2)]  # fmt: skip
        if self.name == "sum":
            return g.graph(g.sum(t[Y], g.tensor(W, self.values[W].shape, compute, self.layout), compute))
        conv = g.convolution(padding=case.padding, stride=case.stride, dilation=case.dilation, mode=mode,
                             compute=compute)  # fmt: skip
        if self.name in ("data", "filter"):
            kind = names.BACKWARD_DATA if self.name == "data" else names.BACKWARD_FILTER
            return g.graph(g.convolve(kind, conv, (t[X], t[W], t[Y]), alpha, beta))
        if self.name == "mask":
            first = g.convolve(names.BACKWARD_DATA, conv, (between[0], t[W], t[Y]), alpha)
            return g.graph(first, g.pointwise(names.RELU_BACKWARD, {751: t[MASK], 757: between[0], 756: t[X]}, compute))
        steps = [*between[: self.name.count("bias") + self.name.count("relu")], t[Y]]
        parts = [g.convolve(names.FORWARD, conv, (t[X], t[W], steps[0]), alpha, beta)]
        if "bias" in self.name:
            parts.append(g.pointwise(names.ADD, {751: steps[0], 752: t[BIAS], 753: steps[1]}, compute))
        if "relu" in self.name:
            parts.append(g.pointwise(names.RELU, {751: steps[-2], 753: t[Y]}, compute, nan))
        return g.graph(*parts)

    def exact(self, values: dict[int, torch.Tensor] | None = None) -> torch.Tensor:
        """PyTorch's result, in float64."""
        v = values or self.values
        if self.name == "sum":
            return v[Y].double().sum((0, 2, 3), keepdim=True)
        y, dx, dw = truth(self.case, v[X], v[W], v[Y])
        y = y + v[BIAS].double() if "bias" in self.name else y
        y = y.clamp(min=0) if "relu" in self.name else y
        return {X: dx * (v[MASK] > 0) if self.name == "mask" else dx, W: dw, Y: y}[self.result]

    def plan(self, engine: Engine) -> tuple[object, int]:
        """A plan and its workspace."""
        plan = self.g.plan(engine, handle=self.cuda.handle)
        self.g.check(self.g.finalize(plan), engine)
        (size,) = self.g.values(plan, names.WORKSPACE_SIZE, names.INT64, 1)
        return plan, int(size)

    def run(self, engine: Engine) -> torch.Tensor:
        """The result by this engine."""
        plan, size = self.plan(engine)
        return self.execute(plan, size)

    def execute(self, plan: object, size: int) -> torch.Tensor:
        """The result of a plan."""
        space = self.cuda.malloc(size) if size else None
        self.cuda.ok("cudnnBackendExecute", self.cuda.handle, plan, self.g.pack(self.data, space))
        shape, dtype = self.values[self.result].shape, compute_type(self.dtype) if self.name == "sum" else self.dtype
        return get(self.cuda, self.data[self.result], shape, dtype, self.layout)

    def engines(self, mode: int = BEST) -> dict[int, Engine]:
        """What is offered, by number."""
        return {engine.number: engine for engine in self.g.engines(self.graph, mode)}
