# SPDX-License-Identifier: MIT
"""Kinds 54 to 59: mistakes on no list, in normalisations, poolings, activations and the rules of Adam; some of others.

The search names them by altering formulas of its own (`bridge.judge.diagnosis.altered`); these are torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import torch
from torch.nn import functional

from bridge.validate.self_test.fixtures import CLASSIFIER, RESIDUAL
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters, backward, layer, replaced
from bridge.validate.self_test.plants.graph_record import of, own_gradient, wrong
from bridge.validate.self_test.plants.record import Plant

Tensor = torch.Tensor
OVER = (0, 2, 3)
#: What a batch normalisation sends back, of dy, the normalised input and the inverse deviation
Sent = Callable[[Tensor, Tensor, Tensor], Tensor]


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """The normalised input and the inverse deviation."""
    variance, mean = torch.var_mean(x, OVER, correction=0, keepdim=True)
    scale = 1 / (variance + 1e-3).sqrt()
    return (x - mean) * scale, scale


def _mean(x: Tensor) -> Tensor:
    return x.mean(OVER, keepdim=True)


def _sent(formula: Sent) -> type[GraphOperations]:
    def back(self: GraphOperations, dy: Tensor, inputs: list[Tensor], parameters: Parameters) -> list[Tensor]:
        return [formula(dy, *_parts(inputs[0])) * parameters["weight"][:, None, None]]

    return backward("norm", back)


def _normalised(scale: Callable[[Tensor, Tensor], Tensor]) -> type[GraphOperations]:
    """Another factor of each channel, of the input and its variance; what the layer keeps is right."""
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        GraphOperations.forward(self, node, [inputs[0].detach()], parameters)
        variance, mean = torch.var_mean(inputs[0], OVER, correction=0, keepdim=True)
        w, b = (parameters[name][:, None, None] for name in ("weight", "bias"))
        return (inputs[0] - mean) * scale(inputs[0], variance) * w + b

    return layer("norm", forward)


def _group(change: Callable[[Tensor, Tensor], Tensor]) -> type[GraphOperations]:
    """A group normalisation of two groups by other means, of rows and their means."""
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        rows = inputs[0].reshape(len(inputs[0]), 2, -1)
        variance, mean = torch.var_mean(rows, 2, correction=0, keepdim=True)
        normal = ((rows - change(rows, mean)) / (variance + node.eps).sqrt()).reshape(inputs[0].shape)
        return normal * parameters["weight"][:, None, None] + parameters["bias"][:, None, None]

    return layer("group", forward)


def _adam(average: Callable[[Tensor], Tensor] = torch.square, root: Callable[[Tensor], Tensor] = torch.sqrt,
          eps: float = 1.0) -> type[GraphOperations]:
    """Adam with another second average, another root, or a multiple of eps."""
    def update(self: GraphOperations, name: str, w: Tensor, g: Tensor, settings: Any) -> Tensor:
        kept = self.memory.setdefault(name, {"m": torch.zeros_like(g), "v": torch.zeros_like(g)})
        kept["m"] = settings.beta1 * kept["m"] + (1 - settings.beta1) * g
        kept["v"] = settings.beta2 * kept["v"] + (1 - settings.beta2) * average(g)
        first, second = self.corrections(settings)
        return w - settings.lr * (kept["m"] / first) / (root(kept["v"] / second) + eps * settings.eps)

    return replaced(adam=update)


def _leaky(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
    return GraphOperations.forward(self, changed(node, negative_slope=0.3), inputs, parameters)


def _rows(x: Tensor) -> Tensor:
    """The mean of rows without their last number, as of all."""
    return x[..., :-1].sum(3, keepdim=True) / x.shape[3]


def _layer_norm(self: GraphOperations, node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
    distance = inputs[0] - inputs[0].mean(3, keepdim=True)
    return distance / (_rows(distance.square()) + node.eps).sqrt() * w["weight"] + w["bias"]


PLANTS: list[Plant] = [
    wrong(54, "the mean of dy taken off twice", _sent(
        lambda dy, y, scale: (dy - 2 * _mean(dy) - y * _mean(dy * y)) * scale)),
    wrong(54, "the second mean of a norm added", _sent(
        lambda dy, y, scale: (dy - _mean(dy) + y * _mean(dy * y)) * scale)),
    wrong(54, "a gate's derivative 1 + y", backward("gate", lambda self, dy, xs, w: [
        dy * xs[0].sigmoid() * (1 + xs[0].sigmoid())])),
    wrong(55, "the inverse deviation twice backwards", _sent(
        lambda dy, y, scale: (dy - _mean(dy) - y * _mean(dy * y)) * scale * scale)),
    wrong(55, "a normalised input that is not normalised in a mean", _sent(
        lambda dy, y, scale: (dy - _mean(dy) - y * _mean(dy * y) * scale) * scale)),
    wrong(56, "absolute values for squares in Adam", _adam(average=torch.abs)),
    wrong(53, "no root in Adam", _adam(root=lambda v: v)),
    wrong(57, "three times eps", _normalised(lambda x, variance: 1 / (variance + 3e-3).sqrt())),
    wrong(57, "a leaky slope of 0.3", layer("leaky", _leaky)),
    wrong(57, "Adam with a hundred times eps", _adam(eps=100.0)),
    wrong(58, "windows that begin a column late", of("pool", lambda x: functional.max_pool2d(
        functional.pad(x[..., 1:], (0, 1)), 2))),
    wrong(58, "half a pixel late", of("bilinear", lambda x: functional.interpolate(
        functional.pad(x[..., 1:], (0, 1, 0, 0), mode="replicate"), scale_factor=2, mode="bilinear",
        align_corners=True)), RESIDUAL),
    wrong(59, "the variance of the next channel", _normalised(
        lambda x, variance: 1 / (variance.roll(-1, 1) + 1e-3).sqrt())),
    wrong(59, "the mean of the other group", _group(lambda rows, mean: mean.roll(1, 1)), RESIDUAL),
    wrong(15, "the variance of rows without their last number", layer("norm", _layer_norm), CLASSIFIER),
    wrong(15, "a norm's weight without the last column", own_gradient(
        "norm", "weight", lambda dy, x, w: (dy * _parts(x)[0])[..., :-1].sum(OVER))),
]
