# SPDX-License-Identifier: MIT
"""Kinds 48 to 53: branches, joins, activations, pooling and normalisation of graphs, and the rules of Adam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import torch
from torch.nn import functional

from bridge.validate.self_test.fixtures import SKIPPED
from bridge.validate.self_test.graph_candidate import (
    GraphOperations,
    Parameters,
    backward,
    layer,
    replaced,
    through,
)
from bridge.validate.self_test.plants.graph_record import of, own_gradient, sends, wrong
from bridge.validate.self_test.plants.record import Plant

Tensor = torch.Tensor


def _centre_less(x: Tensor) -> Tensor:
    """Twice as large by interpolation at i / 2."""
    for axis in (2, 3):
        last = x.shape[axis] - 1
        following = x.index_select(axis, torch.arange(1, last + 2).clamp(max=last))
        x = torch.stack([x, (x + following) / 2], axis + 1).flatten(axis, axis + 1)
    return x


def _first_of_window(self: GraphOperations, dy: Tensor, inputs: list[Tensor], parameters: Parameters) -> list[Tensor]:
    return [functional.pad(dy[..., None, :, None], (0, 1, 0, 0, 0, 1)).flatten(4, 5).flatten(2, 3)]


def _to_all_of_window(self: GraphOperations, dy: Tensor, inputs: list[Tensor], w: Parameters) -> list[Tensor]:
    largest, each = (functional.interpolate(one, scale_factor=2) for one in (functional.max_pool2d(inputs[0], 2), dy))
    return [each * (inputs[0] == largest)]


def _to_all_of_row(self: GraphOperations, dy: Tensor, inputs: list[Tensor], w: Parameters) -> list[Tensor]:
    return [dy * (inputs[0] == inputs[0].amax(3, keepdim=True))]


def norm(statistics: Callable[[Tensor], tuple[Tensor, Tensor]]) -> type[GraphOperations]:
    """A normalisation by another mean and root; what it keeps is right."""
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        GraphOperations.forward(self, node, [inputs[0].detach()], parameters)
        mean, root = statistics(inputs[0])
        w, b = (parameters[name][:, None, None] for name in ("weight", "bias"))
        return (inputs[0] - mean) / root * w + b

    return layer("norm", forward)


def _batch(x: Tensor, over: tuple[int, ...] = (0, 2, 3), correction: int = 0) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(x, over, correction=correction, keepdim=True)
    return mean, variance


def _constant(self: GraphOperations, dy: Tensor, inputs: list[Tensor], parameters: Parameters) -> list[Tensor]:
    _, variance = _batch(inputs[0])
    return [dy * parameters["weight"][:, None, None] / (variance + 1e-3).sqrt()]


def kept(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> type[GraphOperations]:
    """Another running variance: of the old one, the right new one, and that of the batch divided by n."""
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        old = parameters["running_var"].clone()
        y = GraphOperations.forward(self, node, inputs, parameters)
        biased = _batch(inputs[0].detach())[1].flatten()
        parameters["running_var"] = change(old, parameters["running_var"], biased)
        return y

    return layer("norm", forward)


def momentum(of: Callable[[float], float]) -> type[GraphOperations]:
    """Running statistics with another part of the batch's."""
    return layer("norm", lambda self, node, inputs, parameters: GraphOperations.forward(
        self, changed(node, momentum=of(node.momentum)), inputs, parameters))


def _by_running_statistics(self: GraphOperations, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
    old = {name: parameters[name].clone() for name in ("running_mean", "running_var")}
    GraphOperations.forward(self, node, [inputs[0].detach()], parameters)
    return functional.batch_norm(inputs[0], old["running_mean"], old["running_var"], parameters["weight"],
                                 parameters["bias"], eps=node.eps)


class Late(GraphOperations):
    """A batch is normalised by mean and variance of the batch before, which are constant; the first one by its own."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.before: tuple[Tensor, Tensor] | None = None

    def forward(self, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        if node.name != "norm":
            return super().forward(node, inputs, parameters)
        right = super().forward(node, inputs, parameters)
        statistics, self.before = self.before, _batch(inputs[0].detach())
        if statistics is None:
            return right
        w, b = (parameters[name][:, None, None] for name in ("weight", "bias"))
        return (inputs[0] - statistics[0]) / (statistics[1] + node.eps).sqrt() * w + b


class Reset(GraphOperations):
    """Running statistics are not in the file from which a training goes on: each step begins with 0 and 1."""

    def forward(self, node: Any, inputs: list[Tensor], parameters: Parameters) -> Tensor:
        if node.name == "norm":
            parameters["running_mean"] = torch.zeros_like(parameters["running_mean"])
            parameters["running_var"] = torch.ones_like(parameters["running_var"])
        return super().forward(node, inputs, parameters)


def adam(rule: Callable[[GraphOperations, Tensor, Tensor, Any], Tensor]) -> type[GraphOperations]:
    """Another step from Adam's averages."""
    def update(self: GraphOperations, name: str, w: Tensor, g: Tensor, settings: Any) -> Tensor:
        return w - settings.lr * rule(self, *self.averages(name, g, settings), settings)

    return replaced(adam=update)


def _eps_inside(self: GraphOperations, m: Tensor, v: Tensor, settings: Any) -> Tensor:
    first, second = self.corrections(settings)
    return m / first / (v / second + settings.eps).sqrt()


def _next_correction(self: GraphOperations, settings: Any) -> tuple[float, float]:
    return 1 - settings.beta1 ** (self.step + 2), 1 - settings.beta2 ** (self.step + 2)


def _exchanged(self: GraphOperations, name: str, w: Tensor, g: Tensor, settings: Any) -> Tensor:
    return GraphOperations.adam(self, name, w, g, changed(settings, beta1=settings.beta2, beta2=settings.beta1))


class ForgetsStates(GraphOperations):
    """The averages begin anew at every step, and so does its number."""

    def averages(self, name: str, g: Tensor, adam: Any) -> tuple[Tensor, Tensor]:
        self.memory.clear()
        return super().averages(name, g, adam)

    def corrections(self, adam: Any) -> tuple[float, float]:
        return 1 - adam.beta1, 1 - adam.beta2


PLANTS: list[Plant] = [
    wrong(48, "the gradient through a skip missing", sends("cat", 0, 1)),
    wrong(48, "the gradient through the deep branch missing", sends("pool", 0)),
    wrong(48, "the gradient through a skip twice", sends("add", 1, 2)),
    wrong(49, "concatenation in the other order", of("cat", lambda x, y: torch.cat([y, x], 1))),
    wrong(49, "gradients of a concatenation exchanged", backward(
        "cat", lambda self, dy, inputs, parameters: [dy[:, 6:], dy[:, :6]])),
    wrong(49, "a difference for a sum", of("add", lambda x, y: x - y)),
    wrong(49, "one input of a sum alone", of("add", lambda x, y: x + 0 * y)),
    wrong(50, "a sigmoid's derivative without 1 - y", backward(
        "gate", lambda self, dy, inputs, parameters: [dy * inputs[0].sigmoid()])),
    wrong(50, "a sigmoid's derivative missing", backward("gate", lambda self, dy, inputs, parameters: [dy])),
    wrong(50, "a dropout not scaled", layer("drop", lambda self, node, inputs, w: inputs[0] * w["mask"])),
    wrong(50, "a dropout's mask turned round", layer(
        "drop", lambda self, node, inputs, w: inputs[0] * (1 - w["mask"]) / (1 - node.p))),
    wrong(55, "a dropout without its mask backwards", backward(
        "drop", lambda self, dy, inputs, parameters: [dy / 0.75])),
    wrong(51, "a mean for a maximum", of("pool", lambda x: functional.avg_pool2d(x, 2))),
    wrong(51, "the gradient of a maximum to the first of its window", backward("pool", _first_of_window)),
    wrong(51, "the gradient of a maximum to all that are equal, beside a skip", backward(
        "pool", _to_all_of_window), SKIPPED),
    wrong(51, "the gradient of a row's maximum to all that are equal", backward("max_1", _to_all_of_row), SKIPPED),
    wrong(51, "the gradient of a maximum as of a mean", backward("pool", through(
        lambda x: functional.avg_pool2d(x, 2)))),
    wrong(51, "interpolation without the centres of pixels", of("larger", _centre_less)),
    wrong(51, "copies for an interpolation", of("larger", lambda x: functional.interpolate(x, scale_factor=2))),
    wrong(18, "variance divided by n - 1", norm(lambda x: (_batch(x)[0], (_batch(x, correction=1)[1] + 1e-3).sqrt()))),
    wrong(56, "eps outside the root", norm(lambda x: (_batch(x)[0], _batch(x)[1].sqrt() + 1e-3))),
    wrong(52, "statistics of each image", norm(lambda x: (_batch(x, (2, 3))[0], (_batch(x, (2, 3))[1] + 1e-3).sqrt()))),
    wrong(54, "mean and variance constant backwards", backward("norm", _constant)),
    wrong(18, "running variance divided by n", kept(lambda old, new, biased: 0.75 * old + 0.25 * biased)),
    wrong(52, "running variance not updated", kept(lambda old, new, biased: old)),
    wrong(52, "running statistics with the momentum reversed", momentum(lambda m: 1 - m)),
    wrong(52, "running statistics with torch's own momentum", momentum(lambda m: 0.1)),
    wrong(52, "running statistics used in training", layer("norm", _by_running_statistics)),
    wrong(52, "statistics of the batch before", Late),
    wrong(60, "the gradient of a norm's weight without the normalised input", own_gradient(
        "norm", "weight", lambda dy, x, w: (dy * x).sum((0, 2, 3)))),
    wrong(55, "the state of a norm not saved", Reset),
    wrong(53, "no bias correction", adam(lambda self, m, v, settings: m / (v.sqrt() + settings.eps))),
    wrong(53, "eps inside the root", adam(_eps_inside)),
    wrong(53, "the bias correction of the next step", replaced(corrections=_next_correction)),
    wrong(53, "the betas exchanged", replaced(adam=_exchanged)),
    wrong(53, "the averages forgotten", ForgetsStates),
]
