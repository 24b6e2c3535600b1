# SPDX-License-Identifier: MIT
"""PyTorch on the CPU: eager, in two memory orders, and ``torch.compile``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.frameworks.cpu import CHANNELS_LAST, COMPILED, COMPILED_LAST, MEMORY_KEPT
from benchmarks.frameworks.torch_module import module_of
from benchmarks.harness import data
from benchmarks.harness.errors import NotHere
from benchmarks.harness.workloads import Conv, Net

#: Those that keep images with the channels last
LAST = (CHANNELS_LAST, MEMORY_KEPT, COMPILED_LAST)


def prepare(threads: int) -> None:
    """Torch's own number of threads."""
    torch.set_num_threads(threads)


def step(name: str, net: Net) -> Callable[[], float]:
    """A training step; gives the loss before the update. The image needs no gradient."""
    layout = torch.channels_last if name in LAST else torch.contiguous_format
    module = module_of(net).to(memory_format=layout)
    x, t = (torch.from_numpy(one).to(memory_format=layout) for one in data.batch(net))
    optimizer = torch.optim.SGD(module.parameters(), lr=data.LR)

    def loss_of(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(module(x), t)

    loss_now = _compiled(loss_of) if name in (COMPILED, COMPILED_LAST) else loss_of

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_now(x, t)
        loss.backward()
        optimizer.step()
        return loss.item()

    return run


def _compiled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), "")
    if not shutil.which(compiler):
        raise NotHere("torch.compile needs a C++ compiler, and none is on the search path")
    return torch.compile(function)


def conv(name: str, task: Conv, which: str) -> Callable[[], torch.Tensor]:
    """One pass of one convolution; gives its result."""
    layout = torch.channels_last if name in LAST else torch.contiguous_format
    x, w, dy = (torch.from_numpy(one).to(memory_format=layout) for one in data.operands(task))
    if which == "forward":
        def forward() -> torch.Tensor:
            with torch.no_grad():
                return nn.functional.conv2d(x, w, None, task.stride, task.padding, task.dilation, task.groups)
        return forward
    mask = [which == "data", which == "filter", False]

    def backward() -> torch.Tensor:
        return torch.ops.aten.convolution_backward(dy, x, w, None, task.stride, task.padding, task.dilation, False,
                                                   [0, 0], task.groups, mask)[mask.index(True)]

    return backward
