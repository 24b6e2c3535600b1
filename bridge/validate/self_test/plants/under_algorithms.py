# SPDX-License-Identifier: MIT
"""Faults of programs whose convolutions are no sums of products: their wider bounds must not hide them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.validate.self_test.fast_algorithms import PROGRAMS
from bridge.validate.self_test.operations import Operations
from bridge.validate.self_test.plants.record import Plant, wrong

#: The most and the least exact of each family
UNDER = ("Winograd F(2x2,3x3)", "Winograd F(6x6,3x3)", "FFT", "FFT tiles of 16x16", "Strassen, two levels",
         "three bf16 products")


def _but(kind: type[Operations], **methods: Callable[..., Any]) -> type[Operations]:
    return type("Wrong", (kind,), methods)


def _plants(name: str, kind: type[Operations]) -> list[Plant]:
    def flipped(self: Operations, layer: Any, dz: Any, x: Any, w: Any) -> Any:
        return kind.filter_gradient(self, layer, dz, x, w).flip(2, 3)

    def no_rotation(self: Operations, layer: Any, dz: Any, x: Any, w: Any) -> Any:
        return kind.data_gradient(self, layer, dz, x, w.flip(2, 3))

    def no_bias(self: Operations, layer: Any, x: Any, w: Any, b: Any) -> Any:
        return kind.conv(self, layer, x, w, None if layer.name == "conv2" else b)

    return [
        wrong(1, f"filter gradients flipped, {name}", _but(kind, filter_gradient=flipped)),
        wrong(8, f"data gradients not rotated, {name}", _but(kind, data_gradient=no_rotation)),
        wrong(13, f"bias missing, {name}", _but(kind, conv=no_bias)),
        wrong(19, f"no mask, {name}", _but(kind, relu_backward=lambda self, name, da, z: da)),
        wrong(17, f"half the gradient of the loss, {name}", _but(
            kind, loss_gradient=lambda self, y, target: kind.loss_gradient(self, y, target) / 2)),
    ]


PLANTS: list[Plant] = [plant for name in UNDER for plant in _plants(name, PROGRAMS[name])]
