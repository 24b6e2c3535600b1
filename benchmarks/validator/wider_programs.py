# SPDX-License-Identifier: MIT
"""Right programs that use other numbers than they write: wider ones, or sums whose terms are added in another order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch

from bridge.engine.library.programs import run_cnn_step
from bridge.operations.arithmetic import Add, Subtract
from bridge.operations.operation import Operation as Node
from bridge.operations.products import Conv2d, ConvTranspose2d, Linear, Matmul
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters, train_graph
from bridge.validate.self_test.healthy import Healthy, WrittenOut

Tensor = torch.Tensor


class Fused(GraphOperations):
    """Sums of products in float32, of operands that are rounded for them; between them kernels in wider registers.

    Of float64 numbers, which are rounded when they are written: what is between two products is one kernel, forward and
    backward, as fused multiply-adds have it.
    """

    def forward(self, node: Node, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        if not isinstance(node, (Conv2d, ConvTranspose2d, Linear, Matmul)):
            return super().forward(node, inputs, parameters)
        single = [x.float() for x in inputs], {name: w.float() for name, w in parameters.items()}
        return super().forward(node, *single).double()


class Epilogue(GraphOperations):
    """A convolution's bias is added behind the residual, ``(accumulator + residual) + bias``, and chains of sums from
    their end on: ``a + (b + c)``.
    """

    def __init__(self, *given: object, **more: object) -> None:
        super().__init__(*given, **more)  # type: ignore[arg-type]
        #: the first terms and the last one, by the layer whose output is their sum
        self.terms: dict[str, tuple[Tensor, Tensor]] = {}

    def forward(self, node: Node, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        y = super().forward(node, inputs, parameters)
        with torch.no_grad():
            if isinstance(node, (Conv2d, ConvTranspose2d)) and node.bias:
                without = {name: 0 * w if name == "bias" else w for name, w in parameters.items()}
                self.terms[node.name] = super().forward(node, inputs, without), parameters["bias"][:, None, None]
                y.data.copy_(sum(self.terms[node.name]))
            elif isinstance(node, Add):
                if node.inputs[0] in self.terms:
                    first, last = self.terms[node.inputs[0]]
                    y.data.copy_((first + inputs[1]) + last)
                self.terms[node.name] = inputs[1], inputs[0]
            elif isinstance(node, Subtract) and node.inputs[0] in self.terms:
                first, last = self.terms[node.inputs[0]]
                y.data.copy_((first - inputs[1]) + last)
        return y


class FusedWrittenOut(Fused, WrittenOut):
    """The same kernels of other formulas."""


def _wider(kind: type[GraphOperations]) -> Callable[..., object]:
    return lambda fixture, result: train_graph(fixture, result, kind, dtype="float64", written="float32")


CHAINS: tuple[Healthy, ...] = (
    Healthy("torch, float64 written in float32",
            lambda fixture, result: train(fixture, result, dtype="float64", written="float32")),
)
def _reticent(fixture: Path, result: Path) -> None:
    """`cnn_step`, whose file then lacks about half of what is between operations, as those of fused programs do."""
    run_cnn_step(fixture, result)
    with h5py.File(result, "r+") as file:
        names = list[str]()
        file["steps"].visit(names.append)
        rng = np.random.default_rng(len(names))
        for name in names:
            is_between = isinstance(file[f"steps/{name}"], h5py.Dataset) and (
                "/forward/" in name or name.endswith("/output"))
            if is_between and rng.random() < 0.5:
                del file[f"steps/{name}"]


GRAPHS: tuple[Healthy, ...] = (
    Healthy("graph: torch, float64 written in float32", _wider(GraphOperations)),
    Healthy("graph: torch, fused", _wider(Fused)),
    Healthy("graph: torch, fused, written out", _wider(FusedWrittenOut)),
    Healthy("graph: torch, bias behind the residual",
            lambda fixture, result: train_graph(fixture, result, Epilogue)),
    # What a file lacks may leave too little to tell
    Healthy("graph: cnn_step, half of the tensors written", _reticent, (0, 4)),
)
