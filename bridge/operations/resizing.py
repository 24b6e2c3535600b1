# SPDX-License-Identifier: MIT
"""Operations that change the size of an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Gradients, Number, Operation, Shape

Pair = tuple[int, int]


@dataclass(frozen=True)
class UpsampleNearest2d(Operation):
    """Each pixel repeated, ``scale_factor`` = (height, width) times."""

    scale_factor: Pair
    kind: ClassVar[str] = "upsample_nearest2d"

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, c, h and w times the factors)."""
        (shape,) = shapes
        if len(shape) != 4:
            raise self.refuse(f"input {shape}", "a shape (n, c, h, w)")
        return (*shape[:2], shape[2] * self.scale_factor[0], shape[3] * self.scale_factor[1])

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the larger images."""
        down, across = self.scale_factor
        return inputs[0].moved(lambda a: a.repeat(down, 2).repeat(across, 3))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the sum of dy over the copies of each pixel."""
        n, c, h, w = inputs[0].shape
        return [dy.reshape((n, c, h, self.scale_factor[0], w, self.scale_factor[1])).sum((3, 5))], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.interpolate`` in the mode "nearest"."""
        from torch.nn import functional

        return functional.interpolate(inputs[0], scale_factor=tuple(map(float, self.scale_factor)), mode="nearest")
