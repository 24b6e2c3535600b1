# SPDX-License-Identifier: MIT
"""Kinds 33 to 37 and 40: the update of the weights, and how new weights are saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import torch

from bridge.validate.self_test.operations import Operations, replace
from bridge.validate.self_test.plants.record import Plant, stored, wrong

Tensor = torch.Tensor


def rate(factor: float, where: str = "") -> type[Operations]:
    """Another learning rate, for all parameters or those whose name ends so."""

    def update(self: Operations, name: str, w: Tensor, g: Tensor) -> Tensor:
        right = self.sgd
        if name.endswith(where):
            self.sgd = changed(right, lr=factor * right.lr)
        new = Operations.update(self, name, w, g)
        self.sgd = right
        return new

    return replace(update=update)


def stored_rate(dtype: torch.dtype) -> type[Operations]:
    """The learning rate is kept in a type of 16 bits."""

    def update(self: Operations, name: str, w: Tensor, g: Tensor) -> Tensor:
        right = self.sgd
        self.sgd = changed(right, lr=float(torch.tensor(right.lr, dtype=dtype)))
        new = Operations.update(self, name, w, g)
        self.sgd = right
        return new

    return replace(update=update)


def _clipped(self: Operations, name: str, w: Tensor, g: Tensor) -> Tensor:
    limit = float(f"{0.4 * g.abs().max():.1g}")
    return Operations.update(self, name, w, g.clamp(-limit, limit))


def _divided_by_batch(self: Operations, name: str, w: Tensor, g: Tensor) -> Tensor:
    return w - self.sgd.lr / 3 * g


def _ascent(self: Operations, name: str, w: Tensor, g: Tensor) -> Tensor:
    return w + self.sgd.lr * g


def _ascent_with_momentum(self: Operations, name: str, g: Tensor, v: Tensor) -> Tensor:
    return -Operations.direction(self, name, g, v)


def _never(names: str) -> type[Operations]:
    def update(self: Operations, name: str, w: Tensor, g: Tensor) -> Tensor:
        return w if name.startswith(names) else Operations.update(self, name, w, g)

    return replace(update=update)


class Swapped(Operations):
    """conv1/bias is updated with the gradient of conv2/bias."""

    def bias_gradient(self, layer: Any, dz: Tensor) -> Tensor:
        found = super().bias_gradient(layer, dz)
        if layer.name == "conv2":
            self.other = found
        return found

    def update(self, name: str, w: Tensor, g: Tensor) -> Tensor:
        return super().update(name, w, self.other if name == "conv1/bias" else g)


def decay(change: Callable[[Operations, str, Tensor, Tensor], Tensor]) -> type[Operations]:
    """Another rule for the weight decay."""
    return replace(decayed=change)


def _plain(self: Operations, name: str, w: Tensor, g: Tensor) -> Tensor:
    return g


def decoupled(factor: Callable[[Operations], float]) -> type[Operations]:
    """Weights shrink besides the step, as in AdamW."""

    def update(self: Operations, name: str, w: Tensor, g: Tensor) -> Tensor:
        return Operations.update(self, name, w, g) - factor(self) * w

    return replace(update=update, decayed=_plain)


class NotKept(Operations):
    """The momentum buffer is forgotten after every step."""

    def velocity(self, name: str, old: Tensor | None, g: Tensor) -> Tensor:
        return g


def velocity(rule: Callable[[Operations, Tensor, Tensor], Tensor], *, first: bool = False) -> type[Operations]:
    """Another rule for the momentum buffer; with `first` in the first step, from a buffer of zeros, too."""

    def found(self: Operations, name: str, old: Tensor | None, g: Tensor) -> Tensor:
        if old is None:
            return rule(self, torch.zeros_like(g), g) if first else g
        return rule(self, old, g)

    return replace(velocity=found)


def _column_major(w: Any) -> Any:
    return w.ravel().reshape(w.shape, order="F")


PLANTS: list[Plant] = [
    wrong(33, "learning rate 1 % too large", rate(1.01)),
    wrong(33, "learning rate twice as large", rate(2.0)),
    wrong(33, "learning rate ten times as large for biases", rate(10.0, "bias")),
    wrong(33, "learning rate divided by the batch", replace(update=_divided_by_batch)),
    wrong(33, "learning rate 1 % too large, momentum", rate(1.01), "momentum"),
    wrong(33, "learning rate in bf16", stored_rate(torch.bfloat16), "nesterov"),
    wrong(33, "learning rate in fp16", stored_rate(torch.float16), "nesterov"),
    wrong(45, "update with clipped gradients", replace(update=_clipped)),
    wrong(34, "sign of the update", replace(update=_ascent)),
    wrong(34, "sign of the update, momentum", replace(direction=_ascent_with_momentum), "momentum"),
    wrong(35, "weight decay missing", decay(_plain), "momentum"),
    wrong(
        35,
        "weight decay not on biases",
        decay(lambda self, name, w, g: g if name.endswith("bias") else Operations.decayed(self, name, w, g)),
        "momentum",
    ),
    wrong(
        35, "weight decay twice as large", decay(lambda self, name, w, g: g + 2 * self.sgd.weight_decay * w), "momentum"
    ),
    wrong(
        35, "weight decay of the other sign", decay(lambda self, name, w, g: g - self.sgd.weight_decay * w), "momentum"
    ),
    wrong(35, "weight decay decoupled", decoupled(lambda self: self.sgd.lr * self.sgd.weight_decay), "momentum"),
    wrong(35, "weight decay decoupled, without lr", decoupled(lambda self: self.sgd.weight_decay), "momentum"),
    wrong(35, "weight decay although none is asked for", decay(lambda self, name, w, g: g + 0.01 * w)),
    wrong(36, "dampening ignored", velocity(lambda self, v, g: self.sgd.momentum * v + g), "momentum"),
    wrong(
        36,
        "dampening in the first step",
        velocity(lambda self, v, g: self.sgd.momentum * v + (1 - self.sgd.dampening) * g, first=True),
        "momentum",
    ),
    wrong(
        36,
        "running mean of gradients",
        velocity(lambda self, v, g: self.sgd.momentum * v + (1 - self.sgd.momentum) * g),
        "momentum",
    ),
    wrong(36, "buffer not kept", NotKept, "momentum"),
    wrong(36, "Nesterov missing", replace(direction=lambda self, name, g, v: v), "nesterov"),
    wrong(
        36, "Nesterov not asked for", replace(direction=lambda self, name, g, v: g + self.sgd.momentum * v), "momentum"
    ),
    wrong(37, "a bias not updated", _never("conv2/bias")),
    wrong(37, "a filter not updated", _never("conv3/weight")),
    wrong(37, "updated with the gradient of another bias", Swapped),
    wrong(37, "a filter not updated, momentum", _never("conv1/weight"), "momentum"),
    stored(40, "saved column-major", "1/weights/conv2/weight", _column_major),
    stored(40, "saved with in and out swapped", "3/weights/conv2/weight", lambda w: w.swapaxes(0, 1)),
    stored(40, "saved flipped", "2/weights/conv2/weight", lambda w: w[:, :, ::-1, ::-1]),
    stored(40, "last filter saved flipped", "3/weights/conv3/weight", lambda w: w[..., ::-1]),
    stored(40, "saved column-major, momentum", "1/weights/conv2/weight", _column_major, "momentum"),
]
