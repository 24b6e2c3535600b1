# SPDX-License-Identifier: MIT
"""PyTorch's training step in the ways that are common on a GPU: memory orders, cudnn.benchmark, compiled, graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.frameworks.gpu_step import LR, batch
from benchmarks.frameworks.torch_module import module_of
from benchmarks.harness.workloads import Net

#: Steps before a CUDA graph is captured: libraries load, cuDNN chooses, memory is there
BEFORE_CAPTURE = 3
OPTIMIZERS = ("foreach", "fused")


def set_precision(precision: str, *, benchmark: bool) -> None:
    """Of this process, for the framework that runs now. float32 means float32: no TF32 anywhere."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = benchmark


def autocast(precision: str, device: str) -> contextlib.AbstractContextManager[Any]:
    """bfloat16 where it is asked for. Without its cache of weights, which graphs cannot have, and which saves nothing
    where each weight is used once."""
    if precision != "bf16":
        return contextlib.nullcontext()
    return torch.autocast(device, dtype=torch.bfloat16, cache_enabled=False)


class TorchStep:
    """See `benchmarks.frameworks.gpu_step.Step`.

    Parameters
    ----------
    net : what is trained
    precision : "fp32", "tf32" or "bf16"
    device : "cuda:0", or "cpu" to try this file
    how : of `benchmarks.frameworks.gpu`
    optimizer : "foreach" or "fused", of torch.optim.SGD
    """

    def __init__(self, net: Net, precision: str, device: str, how: dict[str, Any], optimizer: str) -> None:
        if how["graph"] and device == "cpu":
            raise RuntimeError("CUDA graphs need a GPU")
        self._precision, self._device, self._how = precision, device, how
        layout = torch.channels_last if how["channels_last"] else torch.contiguous_format
        self._module = module_of(net).to(device, memory_format=layout)
        self._x, self._t = (one.contiguous(memory_format=layout) for one in batch(net, device))
        self._optimizer = torch.optim.SGD(self._module.parameters(), lr=LR, **{optimizer: True})
        self.notes: dict[str, Any] = {"optimizer": optimizer}
        self.settings()
        self._forward = self._compiled() if how["compile"] else self._loss
        self._last: torch.Tensor | None = None
        self._run: Callable[[], None] = self._eager
        if how["graph"]:
            self._capture()

    def settings(self) -> None:
        """They are the process's: call it at the begin of every run."""
        set_precision(self._precision, benchmark=self._how["benchmark"])

    def run(self) -> None:
        """Queue one step."""
        self._run()

    def loss(self) -> float:
        """Of the last step."""
        if self._last is None:
            raise RuntimeError("loss before run")
        return float(self._last.detach())

    def parameters(self) -> list[np.ndarray]:
        """On the host."""
        return [one.detach().cpu().contiguous().numpy().copy() for one in self._module.parameters()]

    def _loss(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        with autocast(self._precision, torch.device(self._device).type):
            return nn.functional.mse_loss(self._module(x), t)

    def _compiled(self) -> Callable[..., torch.Tensor]:
        # A new shape is a new function: none that is general, and nothing that an earlier cell has left behind
        return torch.compile(self._loss, mode=self._how["compile"], dynamic=False)

    def _eager(self) -> None:
        if self._how["compile"] == "max-autotune":
            torch.compiler.cudagraph_mark_step_begin()
        self._optimizer.zero_grad(set_to_none=True)
        self._last = self._forward(self._x, self._t)
        self._last.backward()
        self._optimizer.step()

    def _capture(self) -> None:
        """The whole step as one CUDA graph, as torch's documentation has it; weights are then as before."""
        kept = [one.detach().clone() for one in self._module.parameters()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(BEFORE_CAPTURE):
                self._eager()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        self._optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self._graph):
            self._last = self._forward(self._x, self._t)
            self._last.backward()
            self._optimizer.step()
        with torch.no_grad():
            for one, old in zip(self._module.parameters(), kept, strict=True):
                one.copy_(old)
        self._run = self._graph.replay
