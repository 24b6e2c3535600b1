# SPDX-License-Identifier: MIT
"""A training step in torch, operation by operation: all right, and each can be replaced by a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bridge.exchange.model import Conv2d, Model
from bridge.exchange.optimizers import Sgd

Tensor = torch.Tensor


class Operations:
    """The operations of a training step, right. Everything a fault can replace.

    Shapes: images (n, c, h, w), filters (k, c / groups, r, s). One object lives through all steps of a run.
    """

    def __init__(self, model: Model, sgd: Sgd) -> None:
        self.model, self.sgd = model, sgd
        self.buffers: dict[str, Tensor] = {}

    def conv(self, layer: Conv2d, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        """Return ``z``, the output of a convolution."""
        return torch.conv2d(x, w, b, layer.stride, layer.padding, layer.dilation, layer.groups)

    def data_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """Return ``dx``, the gradient with respect to a convolution's input."""
        return parts(layer, dz, x, w, 0)

    def filter_gradient(self, layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """Return ``dw``, the gradient with respect to its filters."""
        return parts(layer, dz, x, w, 1)

    def bias_gradient(self, layer: Conv2d, dz: Tensor) -> Tensor:
        """Return ``db``, the gradient with respect to its bias."""
        return dz.sum((0, 2, 3))

    def relu(self, name: str, z: Tensor) -> Tensor:
        """Return ``a``, the output of a ReLU."""
        return z.clamp(min=0)

    def relu_backward(self, name: str, da: Tensor, z: Tensor) -> Tensor:
        """Return ``dz``, the gradient with respect to a ReLU's input."""
        return da * (z > 0)

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        """Return the squared differences, their mean or sum."""
        return torch.nn.functional.mse_loss(y, target, reduction="mean" if self.model.mean else "sum")

    def loss_gradient(self, y: Tensor, target: Tensor) -> Tensor:
        """Return ``dy``, the gradient of the loss with respect to the network's output."""
        return 2 * (y - target) / (y.numel() if self.model.mean else 1)

    def decayed(self, name: str, w: Tensor, g: Tensor) -> Tensor:
        """Return the gradient with weight decay."""
        return g + self.sgd.weight_decay * w

    def velocity(self, name: str, old: Tensor | None, g: Tensor) -> Tensor:
        """Return the momentum buffer; `old` is None in the first step."""
        return g if old is None else self.sgd.momentum * old + (1 - self.sgd.dampening) * g

    def direction(self, name: str, g: Tensor, v: Tensor) -> Tensor:
        """Return what the step follows, where there is momentum."""
        return g + self.sgd.momentum * v if self.sgd.nesterov else v

    def update(self, name: str, w: Tensor, g: Tensor) -> Tensor:
        """Return new weights by torch.optim.SGD's rule."""
        g = self.decayed(name, w, g)
        if self.sgd.momentum:
            self.buffers[name] = self.velocity(name, self.buffers.get(name), g)
            g = self.direction(name, g, self.buffers[name])
        return w - self.sgd.lr * g


def parts(layer: Conv2d, dz: Tensor, x: Tensor, w: Tensor, which: int) -> Tensor:
    """Return one of the gradients (input, filter, bias) of a convolution."""
    found = torch.ops.aten.convolution_backward(
        dz,
        x,
        w,
        [layer.out_channels] if layer.bias else None,
        layer.stride,
        layer.padding,
        layer.dilation,
        False,
        [0, 0],
        layer.groups,
        [which == i for i in range(3)],
    )
    return found[which]


def replace(**methods: Callable[..., Any]) -> type[Operations]:
    """Return operations of which some are replaced; each replacement gets ``self`` first."""
    return type("Wrong", (Operations,), methods)


def only(layer_name: str, method: str, change: Callable[..., Tensor]) -> type[Operations]:
    """Return operations of which one, of one layer, gives ``change(right value, *arguments)``."""

    def wrong(self: Operations, layer: Any, *arguments: Tensor) -> Tensor:
        right = getattr(Operations, method)(self, layer, *arguments)
        name = layer if isinstance(layer, str) else layer.name
        return change(right, *arguments) if name == layer_name else right

    return replace(**{method: wrong})


def fed(layer_name: str, method: str, **operands: Callable[[Tensor], Tensor]) -> type[Operations]:
    """Return operations of which one, of one layer, takes operands (x, w, b, dz) that were changed before.

    A wrong program often computes rightly with the wrong thing.
    """
    order = {
        "conv": ("x", "w", "b"),
        "data_gradient": ("dz", "x", "w"),
        "filter_gradient": ("dz", "x", "w"),
        "bias_gradient": ("dz",),
    }[method]

    def wrong(self: Operations, layer: Conv2d, *arguments: Any) -> Tensor:
        if layer.name == layer_name:
            given = zip(order, arguments, strict=True)
            arguments = tuple(operands[name](value) if name in operands else value for name, value in given)
        return getattr(Operations, method)(self, layer, *arguments)

    return replace(**{method: wrong})
