# SPDX-License-Identifier: MIT
"""Kinds 13 to 18 and 32: biases, sums over a part, factors, counts, the order of a sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bridge.validate.self_test.operations import Operations, fed, only, replace
from bridge.validate.self_test.plants.record import Plant, wrong

Tensor = torch.Tensor


def bias_along(axis: int) -> type[Operations]:
    """The bias of conv2 by the place along another axis; -1 by the place in memory."""

    def conv(self: Operations, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        if layer.name != "conv2" or b is None:
            return Operations.conv(self, layer, x, w, b)
        z = Operations.conv(self, layer, x, w, None)
        if axis < 0:
            return z + b[torch.arange(z.numel()) % len(b)].reshape(z.shape)
        shape = [1] * 4
        shape[axis] = z.shape[axis]
        return z + b[torch.arange(z.shape[axis]) % len(b)].reshape(shape)

    return replace(conv=conv)


def biased(name: str, factor: float) -> type[Operations]:
    """The bias some more times."""
    return only(name, "conv", lambda z, x, w, b: z + factor * b[:, None, None])


def scaled_dy(factor: Callable[[Tensor], float]) -> type[Operations]:
    """The gradient of the loss times a number that depends on the output's shape."""
    return replace(loss_gradient=lambda self, y, t: Operations.loss_gradient(self, y, t) * factor(y))


def scaled_loss(factor: Callable[[Tensor], float]) -> type[Operations]:
    """The loss times a number that depends on the output's shape."""
    return replace(loss=lambda self, y, t: Operations.loss(self, y, t) * factor(y))


def padded_count(y: Tensor) -> int:
    """Elements of the output with a border of one pixel."""
    n, c, h, w = y.shape
    return n * c * (h + 2) * (w + 2)


def sequential(x: Tensor) -> Tensor:
    """A real(4) loop over the memory.

    >>> float(sequential(torch.tensor([2.0**24, 1.0, 1.0]))) == 2.0**24
    True
    """
    return torch.tensor(np.add.accumulate(x.numpy().ravel(), dtype=np.float32)[-1])


def _naive_loss(self: Operations, y: Tensor, target: Tensor) -> Tensor:
    return sequential((y - target) ** 2) / y.numel()


def _naive_bias_gradient(self: Operations, layer: Any, dz: Tensor) -> Tensor:
    return torch.stack([sequential(dz[:, k]) for k in range(dz.shape[1])])


def _part_of_loss(self: Operations, y: Tensor, target: Tensor) -> Tensor:
    return ((y - target)[:-1] ** 2).sum() / y.numel()


def _every_bias_gradient(change: Callable[[Tensor], Tensor]) -> type[Operations]:
    return replace(bias_gradient=lambda self, layer, dz: Operations.bias_gradient(self, layer, change(dz)))


def row_times(row: int, times: int) -> Callable[[Tensor], Tensor]:
    """A row of images counts several times, or not."""

    def change(dz: Tensor) -> Tensor:
        dz = dz.clone()
        dz[:, :, row] *= times
        return dz

    return change


def _part_of_filter(name: str) -> type[Operations]:
    return fed(name, "filter_gradient", dz=lambda dz: dz * (torch.arange(len(dz)) < len(dz) - 1)[:, None, None, None])


PLANTS: list[Plant] = [
    wrong(13, "bias missing", biased("conv2", -1)),
    wrong(13, "first bias missing", biased("conv1", -1)),
    wrong(13, "bias added twice", biased("conv2", 1)),
    wrong(13, "last bias added twice", biased("conv3", 1)),
    wrong(14, "bias along w", bias_along(3)),
    wrong(14, "bias along h", bias_along(2)),
    wrong(14, "bias along memory", bias_along(-1)),
    wrong(15, "bias gradients without the last image", _every_bias_gradient(lambda dz: dz[:-1])),
    wrong(15, "bias gradient of the first image", fed("conv2", "bias_gradient", dz=lambda dz: dz[:1])),
    wrong(15, "bias gradients without the last row", _every_bias_gradient(lambda dz: dz[:, :, :-1])),
    wrong(15, "filter gradient without the last image", _part_of_filter("conv2")),
    wrong(15, "first filter gradient without the last image", _part_of_filter("conv1")),
    wrong(15, "an image summed twice", _every_bias_gradient(lambda dz: torch.cat([dz, dz[1:2]]))),
    wrong(15, "filter gradient with a row summed twice", fed("conv2", "filter_gradient", dz=row_times(11, 2))),
    wrong(15, "filter gradient without a row", fed("conv2", "filter_gradient", dz=row_times(7, 0))),
    wrong(15, "bias gradient with the last row summed twice", fed("conv1", "bias_gradient", dz=row_times(-1, 2))),
    wrong(15, "bias gradient without a row in the middle", fed("conv2", "bias_gradient", dz=row_times(9, 0))),
    wrong(15, "loss without the last image", replace(loss=_part_of_loss)),
    wrong(16, "sum in place of mean", scaled_dy(lambda y: y.numel())),
    wrong(16, "mean over the batch a second time", scaled_dy(lambda y: 1 / len(y))),
    wrong(16, "mean over the batch only", scaled_dy(lambda y: y.numel() / len(y))),
    wrong(16, "loss is a sum", scaled_loss(lambda y: y.numel())),
    wrong(16, "loss is half of it", scaled_loss(lambda y: 0.5)),
    wrong(16, "filter gradient divided by the batch", only("conv2", "filter_gradient", lambda g, dz, *_: g / len(dz))),
    wrong(
        16, "bias gradient divided by the pixels", only("conv1", "bias_gradient", lambda g, dz: g / dz[0, 0].numel())
    ),
    wrong(16, "strided filter gradient averaged over pixels",
          only("0", "filter_gradient", lambda g, dz, *_: g / dz[0, 0].numel()), "strided"),
    wrong(16, "bias gradient averaged over images and pixels",
          only("2", "bias_gradient", lambda g, dz: dz.mean((0, 2, 3))), "wide"),
    wrong(17, "gradient of the loss without its 2", scaled_dy(lambda y: 0.5)),
    wrong(18, "gradient of a mean over N - 1", scaled_dy(lambda y: y.numel() / (y.numel() - 1))),
    wrong(18, "loss over N - 1", scaled_loss(lambda y: y.numel() / (y.numel() - 1))),
    wrong(18, "gradient of a mean over the padded count", scaled_dy(lambda y: y.numel() / padded_count(y))),
    wrong(32, "loss by a sequential float32 loop", replace(loss=_naive_loss), "bright"),
    wrong(
        32,
        "bias gradient by a sequential float32 loop",
        replace(bias_gradient=_naive_bias_gradient),
        "brighter",
    ),
]
