# SPDX-License-Identifier: MIT
"""Kinds 19 to 22: masks and slopes of the ReLUs."""

from __future__ import annotations

from typing import Any

import torch

from bridge.validate.self_test.operations import Operations, only, replace
from bridge.validate.self_test.plants.record import Plant, wrong

Tensor = torch.Tensor


class FirstMask(Operations):
    """relu2 takes the mask of relu1."""

    first: Tensor

    def relu(self, name: str, z: Tensor) -> Tensor:
        self.first = z if name == "relu1" else self.first
        return super().relu(name, z)

    def relu_backward(self, name: str, da: Tensor, z: Tensor) -> Tensor:
        return super().relu_backward(name, da, self.first)


class PreviousMask(Operations):
    """The masks of the previous batch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.old: dict[str, Tensor] = {}

    def relu_backward(self, name: str, da: Tensor, z: Tensor) -> Tensor:
        z, self.old[name] = self.old.get(name, z), z
        return super().relu_backward(name, da, z)


def _no_mask(self: Operations, name: str, da: Tensor, z: Tensor) -> Tensor:
    return da


def _last_relu(z: Tensor, *_: Any) -> Tensor:
    return z.clamp(min=0)


def _leaky(slope: float, *methods: str) -> type[Operations]:
    def relu(self: Operations, name: str, z: Tensor) -> Tensor:
        return torch.where(z > 0, z, slope * z)

    def backward(self: Operations, name: str, da: Tensor, z: Tensor) -> Tensor:
        return torch.where(z > 0, da, slope * da)

    chosen: dict[str, Any] = {"relu": relu, "relu_backward": backward}
    return replace(**{method: chosen[method] for method in methods})


PLANTS: list[Plant] = [
    wrong(19, "no mask", only("relu2", "relu_backward", lambda dz, da, z: da)),
    wrong(19, "no mask in the first ReLU", only("relu1", "relu_backward", lambda dz, da, z: da)),
    wrong(19, "no mask anywhere", replace(relu_backward=_no_mask)),
    wrong(20, "mask of the gradient itself", only("relu2", "relu_backward", lambda dz, da, z: da * (da > 0))),
    wrong(20, "mask of another layer", FirstMask),
    wrong(20, "mask of the previous batch", PreviousMask),
    wrong(20, "mask inverted", only("relu1", "relu_backward", lambda dz, da, z: da * (z <= 0))),
    wrong(21, "no ReLU", only("relu2", "relu", lambda a, z: z)),
    wrong(21, "ReLU after the last layer", only("conv3", "conv", _last_relu)),
    wrong(21, "ReLU before the ReLU", only("conv2", "conv", _last_relu)),
    wrong(21, "absolute value", only("relu1", "relu", lambda a, z: z.abs())),
    wrong(22, "leaky forward", _leaky(0.01, "relu")),
    wrong(22, "leaky backward", _leaky(0.2, "relu_backward")),
    wrong(22, "leaky", _leaky(0.1, "relu", "relu_backward")),
]
