# SPDX-License-Identifier: MIT
"""PyTorch on the CPU: eager, in two memory orders, and ``torch.compile``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch._functorch import config as functorch

from benchmarks.frameworks.cpu import CHANNELS_LAST, COMPILED, COMPILED_LAST, MEMORY_KEPT
from benchmarks.frameworks.torch_module import module_of
from benchmarks.frameworks.torch_networks import network_of
from benchmarks.harness import data
from benchmarks.harness.errors import NotHere
from benchmarks.harness.workloads import Conv, Net, OperationPass, Training
from bridge.operations import OPERATIONS
from bridge.operations.losses import LOSSES

#: Those that keep images with the channels last
LAST = (CHANNELS_LAST, MEMORY_KEPT, COMPILED_LAST)
#: By the dimensions of images and volumes
LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


def prepare(threads: int) -> None:
    """Torch's own number of threads."""
    torch.set_num_threads(threads)


def step(name: str, net: Net) -> Callable[[], float]:
    """A training step; gives the loss before the update. The image needs no gradient."""
    return _step(name, module_of(net), nn.functional.mse_loss, data.batch(net))


def training(name: str, task: Training) -> Callable[[], float]:
    """A training step of a network that is no chain; gives the loss before the update."""
    return _step(name, network_of(task), LOSSES[task.loss]().torch_forward, data.training_batch(task))


def _step(name: str, module: nn.Module, criterion: Callable[..., torch.Tensor], batch: tuple[np.ndarray, np.ndarray]
          ) -> Callable[[], float]:
    if name in LAST:
        module = module.to(memory_format=LAYOUTS[batch[0].ndim])
    x, t = (_laid_out(one, name) for one in batch)
    optimizer = torch.optim.SGD(module.parameters(), lr=data.LR)

    def loss_of(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return criterion(module(x), t)

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


def operation(name: str, work: OperationPass) -> Callable[[], torch.Tensor]:
    """A pass of an operation; gives its output or the gradient of its first input."""
    found = {key: [_laid_out(one, name) for one in arrays] for key, arrays in data.pass_operands(work).items()}
    x = found["x"]
    if work.kind == "accumulate":
        return lambda: x[1].add_(x[0])
    compiled = _compiled if name in (COMPILED, COMPILED_LAST) else lambda function: function
    # What a compiled backward pass has read would be freed, and it runs many times
    functorch.donated_buffer = False
    if work.kind in LOSSES:
        of_loss, output = compiled(LOSSES[work.kind]().torch_forward), x[0].requires_grad_()
        return lambda: torch.autograd.grad(of_loss(output, x[1]), output)[0]
    node = OPERATIONS[work.kind]("it", inputs=("input",) * len(x), **work.options)
    parameters = dict(zip(node.parameter_shapes(), found["parameters"], strict=True))
    given = parameters | {"mask": found["mask"][0]}
    of_node = compiled(node.torch_forward)
    if not work.backward:
        def forward() -> torch.Tensor:
            with torch.no_grad():
                return of_node(x, given)
        return forward
    wanted = [one.requires_grad_() for one in (*x, *parameters.values())]
    y = of_node(x, given)
    return lambda: torch.autograd.grad(y, wanted, found["dy"][0], retain_graph=True)[0]


def _laid_out(array: np.ndarray, name: str) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    last = LAYOUTS.get(tensor.ndim) if name in LAST else None
    return tensor if last is None else tensor.to(memory_format=last)
