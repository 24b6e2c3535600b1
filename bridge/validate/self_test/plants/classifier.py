# SPDX-License-Identifier: MIT
"""Faults of a network that classifies: rows, matrices, probabilities, the cross entropy, AdamW."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Any

import torch
from torch.nn import functional

from bridge.exchange.optimizers import Adam
from bridge.validate.self_test.fixtures import CLASSIFIER
from bridge.validate.self_test.graph_candidate import GraphOperations, Parameters, backward, layer, replaced
from bridge.validate.self_test.plants.graph_record import of, own_gradient, wrong
from bridge.validate.self_test.plants.record import Plant

Tensor = torch.Tensor


def _planted(kind: int, name: str, operations: type[GraphOperations]) -> Plant:
    return wrong(kind, name, operations, CLASSIFIER)


def _transposed(self: GraphOperations, node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
    return inputs[0] @ w["weight"] + w["bias"]


def _with_transposed_gradient(self: GraphOperations, dy: Tensor, inputs: list[Tensor], w: Parameters) -> list[Tensor]:
    return [dy @ w["weight"].T]


def layer_norm(axes: tuple[int, ...] = (3,), correction: int = 0, outside: bool = False) -> type[GraphOperations]:
    """Rows that are normalised otherwise."""
    def forward(self: GraphOperations, node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
        variance, mean = torch.var_mean(inputs[0], axes, correction=correction, keepdim=True)
        root = variance.sqrt() + node.eps if outside else (variance + node.eps).sqrt()
        return (inputs[0] - mean) / root * w["weight"] + w["bias"]

    return layer("norm", forward)


def _constant_variance(self: GraphOperations, dy: Tensor, inputs: list[Tensor], w: Parameters) -> list[Tensor]:
    dy = dy * w["weight"]
    return [(dy - dy.mean(3, keepdim=True)) / (inputs[0].var(3, correction=0, keepdim=True) + 1e-3).sqrt()]


def cross_entropy(**settings: Any) -> type[GraphOperations]:
    """The loss with other settings, or a divisor."""
    def value(self: GraphOperations, y: Tensor, target: Tensor) -> Tensor:
        right = self.model.criterion
        given = {"weight": right.weight, "ignore_index": right.ignore_index,  # type: ignore[attr-defined]
                 "label_smoothing": right.label_smoothing} | settings  # type: ignore[attr-defined]
        classes = target.argmax(1).where(target.sum(1) > 0, -100)
        weight = y.new_tensor(given["weight"]) if given["weight"] else None
        count = given.pop("count", None)
        found = functional.cross_entropy(y, classes, weight, ignore_index=given["ignore_index"],
                                         label_smoothing=given["label_smoothing"],
                                         reduction="mean" if count is None else "sum")
        return found if count is None else found / count(classes)

    return replaced(loss=value)


def _softmax_without_the_others(self: GraphOperations, dy: Tensor, inputs: list[Tensor], w: Parameters) -> list[Tensor]:
    y = inputs[0].softmax(1)
    return [dy * y * (1 - y)]


def _dropped(change: Any) -> type[GraphOperations]:
    return layer("drop", lambda self, node, inputs, w: change(inputs[0], w["mask"]))


def _drawn_anew(self: GraphOperations, dy: Tensor, inputs: list[Tensor], w: Parameters) -> list[Tensor]:
    """The generator is not put back: the backward pass draws a mask of its own."""
    drawn = torch.rand(w["mask"].shape, generator=torch.Generator().manual_seed(5 + self.step)) > 0.25
    return [dy * drawn / 0.75]


def _only_elements_dropped(self: GraphOperations, node: Any, inputs: list[Tensor], w: Parameters) -> Tensor:
    return GraphOperations.forward(self, node, inputs, {"mask": torch.ones_like(w["mask"])})


def _coupled(self: GraphOperations, name: str, w: Tensor, g: Tensor, settings: Any) -> Tensor:
    numbers = {one: getattr(settings, one) for one in ("lr", "beta1", "beta2", "eps", "weight_decay")}
    return GraphOperations.adam(self, name, w, g, Adam(**numbers))


def _eps_inside(self: GraphOperations, name: str, w: Tensor, g: Tensor, settings: Any) -> Tensor:
    m, v = self.averages(name, g, settings)
    first, second = self.corrections(settings)
    w = w - settings.lr * settings.weight_decay * w
    return w - settings.lr * m / first / (v / second + settings.eps).sqrt()


def counted(number: int) -> type[GraphOperations]:
    """The number of the step in the bias correction is so many ahead."""
    def corrections(self: GraphOperations, settings: Any) -> tuple[float, float]:
        t = self.step + 1 + number
        return 1 - settings.beta1**t, 1 - settings.beta2**t

    return replaced(corrections=corrections)


def _of_clipped(self: GraphOperations, name: str, g: Tensor, settings: Any) -> tuple[Tensor, Tensor]:
    """The average of the square is of gradients that are clipped, that of the gradient is not."""
    m, _ = GraphOperations.averages(self, name, g, settings)
    kept, limited = self.memory[name], g.clamp(-0.01, 0.01)
    before = kept.get("before", torch.zeros_like(g))
    kept["v"] = kept["before"] = settings.beta2 * before + (1 - settings.beta2) * limited**2
    return m, kept["v"]


def _no_decay(self: GraphOperations, name: str, w: Tensor, g: Tensor, settings: Any) -> Tensor:
    return GraphOperations.adam(self, name, w, g, changed(settings, weight_decay=0.0))


def _decay_without_rate(self: GraphOperations, name: str, w: Tensor, g: Tensor, settings: Any) -> Tensor:
    return GraphOperations.adam(self, name, w * (1 - settings.weight_decay), g, changed(settings, weight_decay=0.0))


class Forgetful(GraphOperations):
    """A file has the weights and not the optimiser's averages; the number of the step goes on."""

    def averages(self, name: str, g: Tensor, adam: Any) -> tuple[Tensor, Tensor]:
        self.memory.pop(name, None)
        return super().averages(name, g, adam)


PLANTS: list[Plant] = [
    _planted(3, "a linear layer's weight transposed", layer("square", _transposed)),
    _planted(3, "a linear layer's weight transposed backwards", backward("square", _with_transposed_gradient)),
    _planted(13, "a linear layer without its bias", layer("square", lambda self, node, xs, w: xs[0] @ w["weight"].T)),
    _planted(18, "rows with a variance divided by n - 1", layer_norm(correction=1)),
    _planted(56, "rows with eps outside the root", layer_norm(outside=True)),
    _planted(52, "normalised over channels, not rows", layer_norm((1,))),
    _planted(52, "normalised over the whole image, not rows", layer_norm((2, 3))),
    _planted(55, "a row's variance constant backwards", backward("norm", _constant_variance)),
    _planted(60, "the gradient of a row's weight without the normalised input", own_gradient(
        "norm", "weight", lambda dy, x, w: (dy * x).sum((0, 1, 2)))),
    _planted(50, "softmax over rows", of("softmax", lambda x: x.softmax(3))),
    _planted(50, "softmax over the batch", of("softmax", lambda x: x.softmax(0))),
    _planted(50, "a softmax's gradient without the other channels", backward("softmax", _softmax_without_the_others)),
    _planted(54, "a softmax's gradient without its sum", backward(
        "softmax", lambda self, dy, xs, w: [dy * xs[0].softmax(1)])),
    _planted(50, "the logarithm of softmax over rows", of("logs", lambda x: x.log_softmax(3))),
    _planted(50, "softmax without its logarithm", of("logs", lambda x: x.softmax(1))),
    _planted(50, "the logarithm of softmax without the maximum", of(
        "logs", lambda x: (x.exp() / x.exp().sum(1, keepdim=True)).log())),
    _planted(50, "the sum of exponentials without the maximum", of("logs", lambda x: x - x.exp().sum(1, True).log())),
    _planted(50, "silu's gradient for a constant sigmoid", backward(
        "silu", lambda self, dy, xs, w: [dy * xs[0].sigmoid()])),
    _planted(50, "softplus for silu", of("silu", functional.softplus)),
    _planted(50, "softplus with beta 1", of("softplus", functional.softplus)),
    _planted(55, "softplus not divided by beta", of("softplus", lambda x: functional.softplus(2 * x))),
    _planted(50, "elu for softplus", of("softplus", functional.elu)),
    _planted(50, "elu with alpha 1", of("elu", functional.elu)),
    _planted(56, "elu's gradient y below 0", backward(
        "elu", lambda self, dy, xs, w: [torch.where(xs[0] > 0, dy, dy * functional.elu(xs[0], 0.5))])),
    _planted(55, "a tangent's derivative 1 - y", backward("tanh", lambda self, dy, xs, w: [dy * (1 - xs[0].tanh())])),
    _planted(22, "a leaky slope on the positive side", of("leaky", lambda x: torch.where(x > 0, 0.125 * x, x))),
    _planted(22, "torch's own leaky slope", of("leaky", functional.leaky_relu)),
    _planted(22, "a leaky slope's inverse backwards", backward(
        "leaky", lambda self, dy, xs, w: [torch.where(xs[0] > 0, dy, 8 * dy)])),
    _planted(3, "a matrix product with its second matrix transposed", of("matmul_1", lambda x, y: x @ y.mT)),
    _planted(3, "a matrix product's gradient without the transposition", backward(
        "matmul_1", lambda self, dy, xs, w: [dy @ xs[1], xs[0].mT @ dy])),
    _planted(5, "a reshape for a transposition", of("transpose", lambda x: x.reshape(*x.shape[:2], 6, 5))),
    _planted(18, "a mean over channels divided by one less", of("mean", lambda x: x.sum(1, keepdim=True) / 5)),
    _planted(51, "the gradient of a maximum over channels to all of them", backward(
        "amax", lambda self, dy, xs, w: [dy.expand_as(xs[0])])),
    _planted(51, "a smallest number for the largest", of("amax", lambda x: x.amin(1, keepdim=True))),
    _planted(51, "windows of one size in an adaptive mean", of(
        "pool", lambda x: functional.avg_pool2d(x, (1, 1), (1, 1))[:, :, :5, :6])),
    _planted(55, "a quotient's gradient without the sign", backward("truediv", lambda self, dy, xs, w: [
        dy / xs[1], (dy * xs[0] / xs[1] ** 2).sum(1, keepdim=True)])),
    _planted(15, "a quotient's gradient of the first channel alone", backward("truediv", lambda self, dy, xs, w: [
        dy / xs[1], -(dy * xs[0] / xs[1] ** 2)[:, :1]])),
    _planted(50, "channels dropped and not scaled", _dropped(lambda x, mask: x * mask)),
    _planted(55, "no channel dropped", layer("drop", _only_elements_dropped)),
    _planted(7, "the mask of dropped channels of the image before", _dropped(
        lambda x, mask: x * mask.roll(1, 0) / 0.75)),
    _planted(50, "another mask of dropped channels backwards", backward("drop", _drawn_anew)),
    _planted(50, "weights of the classes ignored", cross_entropy(weight=())),
    _planted(50, "no class ignored", cross_entropy(ignore_index=-100)),
    _planted(50, "labels not smoothed", cross_entropy(label_smoothing=0.0)),
    _planted(50, "a cross entropy averaged over all pixels", cross_entropy(count=lambda classes: classes.numel())),
    _planted(50, "a cross entropy averaged over the pixels that count, not their weights", cross_entropy(
        count=lambda classes: (classes != 2).sum())),
    _planted(50, "a cross entropy averaged over images", cross_entropy(count=len)),
    _planted(50, "softmax before the cross entropy", replaced(loss=lambda self, y, t: GraphOperations.loss(
        self, y.softmax(1), t))),
    _planted(35, "the decay of AdamW in the gradient", replaced(adam=_coupled)),
    _planted(35, "no decay", replaced(adam=_no_decay)),
    _planted(35, "a decay of AdamW without lr", replaced(adam=_decay_without_rate)),
    _planted(53, "AdamW with eps inside the root", replaced(adam=_eps_inside)),
    _planted(53, "AdamW without bias correction", replaced(corrections=lambda self, settings: (1.0, 1.0))),
    _planted(53, "the number of the step one ahead", counted(1)),
    _planted(53, "the average of the square of clipped gradients", replaced(averages=_of_clipped)),
    _planted(53, "the averages not saved", Forgetful),
]
