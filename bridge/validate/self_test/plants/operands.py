# SPDX-License-Identifier: MIT
"""Kinds 44 and 47, and relatives of 19 and 21: right operations with what belongs to another layer, image or pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bridge.validate.self_test.operations import Operations, replace
from bridge.validate.self_test.plants.layouts import transposed
from bridge.validate.self_test.plants.record import Plant, wrong

Tensor = torch.Tensor


class KeepsOperands(Operations):
    """Keeps the operands of every operation by its method and the name of its layer."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kept: dict[tuple[str, str], tuple[Any, ...]] = {}


def taking(layer: str, method: str, place: int, other: str, of: str, at: int) -> type[Operations]:
    """An operation of a layer takes as its operand number `place` the operand `at` of another operation."""

    def keeping(name: str) -> Callable[..., Tensor]:
        def operation(self: KeepsOperands, layer_: Any, *arguments: Any) -> Tensor:
            own = layer_ if isinstance(layer_, str) else layer_.name
            self.kept[name, own] = arguments
            if (own, name) == (layer, method):
                taken = self.kept[of, other][at]
                arguments = (*arguments[:place], taken, *arguments[place + 1 :])
            return getattr(Operations, name)(self, layer_, *arguments)

        return operation

    return type("Taking", (KeepsOperands,), {name: keeping(name) for name in {method, of}})


class LateTarget(Operations):
    """From the second batch on the targets are those of the batch before."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.targets: list[Tensor] = []

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        self.targets.append(target)
        return super().loss(y, self.targets[max(0, len(self.targets) - 2)])

    def loss_gradient(self, y: Tensor, target: Tensor) -> Tensor:
        return super().loss_gradient(y, self.targets[max(0, len(self.targets) - 2)])


def of_target(change: Callable[[Tensor], Tensor], *methods: str) -> type[Operations]:
    """The loss, its gradient, or both take a changed target."""

    def changed(name: str) -> Callable[..., Tensor]:
        return lambda self, y, target: getattr(Operations, name)(self, y, change(target))

    return replace(**{name: changed(name) for name in methods or ("loss", "loss_gradient")})


def _next(x: Tensor) -> Tensor:
    return x.roll(1, 0)


PLANTS: list[Plant] = [
    wrong(5, "targets transposed", of_target(transposed)),
    wrong(19, "bias gradient before the mask", taking("conv2", "bias_gradient", 0, "relu2", "relu_backward", 0)),
    wrong(19, "filter gradient before the mask", taking("conv2", "filter_gradient", 0, "relu2", "relu_backward", 0)),
    wrong(19, "data gradient before the mask", taking("conv2", "data_gradient", 0, "relu2", "relu_backward", 0)),
    wrong(21, "second layer sees its input before the ReLU", taking("conv2", "conv", 0, "relu1", "relu", 0)),
    wrong(21, "filter gradient of the input before the ReLU",
          taking("conv3", "filter_gradient", 1, "relu2", "relu", 0)),
    wrong(44, "bias of another layer", taking("conv2", "conv", 2, "conv1", "conv", 2)),
    wrong(44, "bias gradient of another layer", taking("conv1", "bias_gradient", 0, "conv2", "bias_gradient", 0)),
    wrong(44, "filter gradient with dz of another layer",
          taking("conv1", "filter_gradient", 0, "conv2", "filter_gradient", 0)),
    wrong(44, "filter gradient with the input of another layer",
          taking("conv2", "filter_gradient", 1, "conv3", "filter_gradient", 1)),
    wrong(47, "targets exchanged", of_target(_next)),
    wrong(47, "targets exchanged in the gradient", of_target(_next, "loss_gradient")),
    wrong(47, "targets exchanged in the loss", of_target(_next, "loss")),
    wrong(47, "targets of the batch before", LateTarget),
]
