# SPDX-License-Identifier: MIT
"""Training runs in which one operation is a compiled Fortran routine; all others are PyTorch's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bridge.engine.network.torch_graph import make_graph
from bridge.exchange.model import Conv2d, Model
from bridge.operations.spline import Spline
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters, layer
from bridge.validate.self_test.operations import Operations, replace
from bridge.validate.self_test.plants.numbers import reduced
from bridge.validate.self_test.plants.splines import b_splines
from docs.tools.mistakes.sources import Routine

Tensor = torch.Tensor


def of_memory(routine: Routine) -> type[Operations]:
    """Filter gradients that a library leaves in memory, and the routine writes out."""
    def filter_gradient(self: Operations, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        dw = Operations.filter_gradient(self, layer, dz, x, w)
        return torch.from_numpy(routine.filled(tuple(dw.shape), *dw.shape, dw))

    return replace(filter_gradient=filter_gradient)


def of_loops(routine: Routine) -> type[Operations]:
    """Forward convolutions that are loops of the routine."""
    def conv(self: Operations, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        n, c, height, width = x.shape
        shape = n, layer.out_channels, height, width
        padded = functional.pad(x, (1, 1, 1, 1))
        return torch.from_numpy(routine.filled(shape, width, height, c, layer.out_channels, n, padded, w, b))

    return replace(conv=conv)


def of_images(routine: Routine) -> type[Operations]:
    """Forward convolutions of images that come with the channels last, and are taken by the routine."""
    def conv(self: Operations, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        n, c, height, width = x.shape
        taken = routine.filled((n, c, height, width), width, height, c, n, x.permute(0, 2, 3, 1))
        return Operations.conv(self, layer, torch.from_numpy(taken), w, b)

    return replace(conv=conv)


def of_padding(routine: Routine) -> type[Operations]:
    """Forward convolutions without padding, of images that the routine has padded."""
    def conv(self: Operations, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        n, c, height, width = x.shape
        padded = routine.filled((n, c, height + 2, width + 2), width, height, c, n, x)
        return torch.conv2d(torch.from_numpy(padded), w, b)

    return replace(conv=conv)


def of_sums(routine: Routine) -> type[Operations]:
    """Filter gradients of single images, which the routine adds up in buffers that live as long as the program."""
    class Summed(Operations):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.sums: dict[str, np.ndarray] = {}

        def filter_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
            total = self.sums.setdefault(layer.name, np.zeros(tuple(w.shape), np.float32))
            of_image = [super(Summed, self).filter_gradient(layer, dz[i : i + 1], x[i : i + 1], w)
                        for i in range(len(x))]
            routine(w.numel(), len(x), torch.stack(of_image), total)
            return torch.from_numpy(total.copy())

    return Summed


def of_operands(routine: Routine) -> type[Operations]:
    """Convolutions, in both directions, whose operands are handed over by the routine."""
    return reduced(lambda x: torch.from_numpy(routine.filled(tuple(x.shape), x.numel(), x)))


class _Compiled(torch.autograd.Function):
    """The value is a compiled routine's; autograd goes through a formula of torch that computes the same."""

    @staticmethod
    def forward(ctx: Any, value: Callable[..., Tensor], formula: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        ctx.formula = formula
        ctx.save_for_backward(*inputs)
        return value(*inputs)

    @staticmethod
    def backward(ctx: Any, *dy: Tensor) -> Any:
        with torch.enable_grad():
            leaves = [one.detach().requires_grad_() for one in ctx.saved_tensors]
            return None, None, *torch.autograd.grad(ctx.formula(*leaves), leaves, dy)


#: Of the value, the formula, and the inputs of both
_compiled: Callable[..., Tensor] = _Compiled.apply


def kan() -> nn.Module:
    """Return a KAN layer of degree 3 over rows of 32 pixels."""
    made, _ = make_graph(Model((Spline("kan", 32, 32),)), "float32")
    return made


def of_splines(routine: Routine) -> type[GraphOperations]:
    """A KAN layer whose B-splines are the routine's."""
    def kan_layer(node: Spline, splines: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
        def value(x: Tensor, coefficient: Tensor, base: Tensor, scale: Tensor) -> Tensor:
            chosen = splines(x)[..., : node.functions]
            return functional.silu(x) @ base.T + torch.einsum("...ik,oik->...o", chosen, coefficient * scale[..., None])

        return value

    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        knots = node.low + node.step * torch.arange(-node.order, node.grid + node.order + 1)

        def compiled(x: Tensor) -> Tensor:
            shape = *x.shape, len(knots) - 1
            return torch.from_numpy(routine.filled(shape, x.numel(), len(knots), node.order, x, knots))

        def same(x: Tensor) -> Tensor:
            return b_splines(x, knots, node.order - routine.wrong)

        given = [parameters[name] for name in ("coefficient", "scale_base", "scale_spline")]
        return _compiled(kan_layer(node, compiled), kan_layer(node, same), inputs[0], *given)

    return layer("kan", forward)


def normalised() -> nn.Module:
    """Return two convolutions with a batch normalisation between them."""
    return nn.Sequential(OrderedDict(
        conv1=nn.Conv2d(1, 8, 3, padding=1), norm=nn.BatchNorm2d(8), relu=nn.ReLU(),
        conv2=nn.Conv2d(8, 1, 3, padding=1)))


def of_statistics(routine: Routine) -> type[GraphOperations]:
    """A batch normalisation that is the routine's."""
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        before = [parameters[name].clone() for name in ("running_mean", "running_var")]
        kept = [one.clone() for one in before]

        def compiled(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            n, c, height, width = x.shape
            numbers = height * width, c, n, node.eps, node.momentum
            return torch.from_numpy(routine.filled(
                (n, c, height, width), *numbers, x, weight, bias, *(one.numpy() for one in kept)))

        def same(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            mean, variance = before if routine.wrong else (None, None)
            return functional.batch_norm(x, mean, variance, weight, bias, not routine.wrong, 0.0, node.eps)

        found = _compiled(compiled, same, inputs[0], parameters["weight"], parameters["bias"])
        parameters["running_mean"], parameters["running_var"] = kept
        return found

    return layer("norm", forward)
