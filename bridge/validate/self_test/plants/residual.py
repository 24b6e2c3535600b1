# SPDX-License-Identifier: MIT
"""Faults of a residual network of images: rectifiers, pooling, products, enlarged images, Huber's loss, SGD."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from bridge.validate.self_test.fixtures import RESIDUAL
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters, backward, layer, replaced, through
from bridge.validate.self_test.plants.graph_record import loss, loss_gradient, of, own_gradient, sends, wrong
from bridge.validate.self_test.plants.record import Plant

Tensor = torch.Tensor


def _planted(kind: int, name: str, operations: type[GraphOperations]) -> Plant:
    return wrong(kind, name, operations, RESIDUAL)


def _prelu_on_the_positive_side(self: GraphOperations, node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
    return torch.where(inputs[0] > 0, w["weight"][:, None, None] * inputs[0], inputs[0])


def _slope_of_all(dy: Tensor, x: Tensor, w: Parameters) -> Tensor:
    return (dy * x).sum((0, 2, 3))


def _groups(x: Tensor, groups: int, correction: int = 0, eps: float = 1e-3, outside: bool = False) -> Tensor:
    rows = x.reshape(len(x), groups, -1)
    variance, mean = torch.var_mean(rows, -1, correction=correction, keepdim=True)
    root = variance.sqrt() + eps if outside else (variance + eps).sqrt()
    return ((rows - mean) / root).reshape(x.shape)


def group_norm(**settings: Any) -> type[GraphOperations]:
    """Groups that are normalised otherwise."""
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
        given = {"groups": node.num_groups} | settings
        return _groups(inputs[0], **given) * w["weight"][:, None, None] + w["bias"][:, None, None]

    return layer("group", forward)


def _interleaved(self: GraphOperations, node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
    order = [0, 2, 1, 3]
    return _groups(inputs[0][:, order], 2)[:, order] * w["weight"][:, None, None] + w["bias"][:, None, None]


def _windows(x: Tensor, fill: float) -> Tensor:
    """What each window of 3 x 3 with stride 2 sees, in a last axis."""
    padded = functional.pad(x, (1, 1, 1, 1), value=fill)
    return padded.unfold(2, 3, 2).unfold(3, 3, 2).flatten(4)


def _to_all_tied(self: GraphOperations, dy: Tensor, inputs: list[Tensor], w: Parameters) -> list[Tensor]:
    seen = _windows(inputs[0], -math.inf)
    sent = (dy[..., None] * (seen == seen.amax(-1, keepdim=True))).permute(0, 1, 4, 2, 3)
    return [functional.fold(sent.flatten(3).flatten(1, 2), inputs[0].shape[2:], 3, padding=1, stride=2)]


def _not_summed(self: GraphOperations, dy: Tensor, inputs: list[Tensor], w: Parameters) -> list[Tensor]:
    """The gate's gradient is that of its first pixel: the kernel has a thread for each element of the gate."""
    return [dy * inputs[1], (dy * inputs[0])[:, :, :1, :1]]


def _empty_before(self: GraphOperations, node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
    """What output_padding adds stands above and to the left of the image, and is nothing but the bias."""
    larger = functional.conv_transpose2d(inputs[0], w["weight"], None, node.stride, node.padding)
    return functional.pad(larger, (1, 0, 1, 0)) + w["bias"][:, None, None]


def _before(self: GraphOperations, node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
    """The rows and columns that are cut off are those of the other side."""
    whole = functional.conv_transpose2d(inputs[0], w["weight"], w["bias"], node.stride)
    return whole[..., :-1, :-1]


def _kernel_turned(self: GraphOperations, node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
    return GraphOperations.forward(self, node, inputs, {**w, "weight": w["weight"].flip(2, 3)})


def _of_batch(self: GraphOperations, node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
    return functional.batch_norm(inputs[0], None, None, w["weight"], w["bias"], True, eps=node.eps)


def _without_the_limit(y: Tensor, target: Tensor) -> Tensor:
    return (y - target) / y.numel()


def _clip_passes_all(self: GraphOperations, dy: Tensor, inputs: list[Tensor], w: Parameters) -> list[Tensor]:
    return [dy]


def _late(self: GraphOperations, name: str, w: Tensor, g: Tensor, sgd: Any) -> Tensor:
    rate = self.rates[max(self.step - 1, 0)]
    moved = GraphOperations.sgd(self, name, w, g, sgd)
    return w + (moved - w) * (rate / sgd.lr)


def _thaws(self: GraphOperations, name: str, w: Tensor, g: Tensor) -> Tensor:
    return self.sgd(name, w, g, self.settings)  # type: ignore[arg-type]


class Resumed(GraphOperations):
    """The optimiser's memory is not saved: every step is the first after a restart."""

    def sgd(self, name: str, w: Tensor, g: Tensor, sgd: Any) -> Tensor:
        self.memory.pop(name, None)
        return super().sgd(name, w, g, sgd)


PLANTS: list[Plant] = [
    _planted(22, "a rectifier's slope on the positive side", layer("prelu", _prelu_on_the_positive_side)),
    _planted(55, "a ReLU for a rectifier that learns", of("prelu", lambda x: x.relu())),
    _planted(50, "the gradient of a learned slope of positive elements, too", own_gradient(
        "prelu", "weight", _slope_of_all)),
    _planted(55, "the gradient of a learned slope without the input", own_gradient(
        "prelu", "weight", lambda dy, x, w: torch.where(x > 0, 0.0, dy).sum((0, 2, 3)))),
    _planted(18, "groups with a variance divided by n - 1", group_norm(correction=1)),
    _planted(56, "groups with eps outside the root", group_norm(outside=True)),
    _planted(52, "one group for all channels", group_norm(groups=1)),
    _planted(52, "groups of channels that are not neighbours", layer("group", _interleaved)),
    _planted(60, "the gradient of a group's weight without the normalised input", own_gradient(
        "group", "weight", lambda dy, x, w: (dy * x).sum((0, 2, 3)))),
    _planted(51, "the gradient of a maximum to all that are equal", backward("pool", _to_all_tied)),
    _planted(51, "a mean that does not count its padding", of(
        "mean", lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False))),
    _planted(51, "a mean's gradient that does not count the padding", backward("mean", through(
        lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)))),
    _planted(51, "the largest number of each channel for its mean", of("squeeze", lambda x: x.amax((2, 3), True))),
    _planted(18, "a mean over each channel that is a sum", of("squeeze", lambda x: x.sum((2, 3), keepdim=True))),
    _planted(15, "a gate's gradient not summed over the pixels", backward("mul", _not_summed)),
    _planted(60, "a product's gradient by its own input", backward(
        "mul", lambda self, dy, xs, w: [dy * xs[0], (dy * xs[1]).sum((2, 3), keepdim=True)])),
    _planted(49, "a sum for a product", of("mul", lambda x, gate: x + gate)),
    _planted(21, "a residual added after the activation", of("add", lambda x, skip: x.relu() + skip)),
    _planted(48, "a residual's gradient overwritten", sends("add", 1, 0)),
    _planted(9, "zeros around an image in place of its mirror", of(
        "mirror", lambda x: functional.pad(x, (1, 1, 1, 1)))),
    _planted(9, "mirrored with the outermost pixels", of(
        "mirror", lambda x: functional.pad(x, (1, 1, 1, 1), mode="replicate"))),
    _planted(50, "gelu by the tangent", of("gelu", lambda x: functional.gelu(x, approximate="tanh"))),
    _planted(50, "gelu's gradient by the tangent", backward("gelu", through(
        lambda x: functional.gelu(x, approximate="tanh")))),
    _planted(50, "gelu by the error function", of("tanh", functional.gelu)),
    _planted(50, "gelu as x times the sigmoid of 1.702 x", of("gelu", lambda x: x * (1.702 * x).sigmoid())),
    _planted(10, "output padding on the wrong side", layer("transposed", _before)),
    _planted(10, "output padding on the wrong side, empty", layer("transposed", _empty_before)),
    _planted(1, "a transposed convolution with its kernel turned", layer("transposed", _kernel_turned)),
    _planted(51, "an interpolation for copies", of(
        "nearest", lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"))),
    _planted(51, "the image repeated as a whole", of("nearest", lambda x: x.repeat(1, 1, 2, 2))),
    _planted(51, "the gradient of one of four copies", backward(
        "nearest", lambda self, dy, xs, w: [dy[..., ::2, ::2]])),
    _planted(51, "corners not aligned", of(
        "bilinear", lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"))),
    _planted(51, "an interpolation's gradient with corners not aligned", backward("bilinear", through(
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear")))),
    _planted(49, "a difference the other way round", of("sub", lambda x, y: y - x)),
    _planted(49, "a difference's gradient without its sign", backward("sub", lambda self, dy, xs, w: [dy, dy])),
    _planted(52, "statistics of the batch after training", layer("fixed", _of_batch)),
    _planted(50, "clipped below alone", of("clip", lambda x: x.clamp(min=0.1))),
    _planted(50, "a clip's gradient passes everywhere", backward("clip", _clip_passes_all)),
    _planted(50, "Huber's loss with delta 1", loss(functional.huber_loss)),
    _planted(50, "smooth L1 for Huber's loss", loss(lambda y, t: functional.smooth_l1_loss(y, t, beta=0.5))),
    _planted(50, "Huber's gradient without its limit", loss_gradient(_without_the_limit)),
    _planted(33, "a schedule one step late", replaced(sgd=_late)),
    _planted(37, "a frozen bias updated", replaced(update=_thaws)),
    _planted(36, "the momentum not saved", Resumed),
]
