# SPDX-License-Identifier: MIT
"""Operations that join branches of a network."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Gradients, Number, Operation, Shape


@dataclass(frozen=True)
class Concat(Operation):
    """Inputs one behind the other along the channels, torch's ``cat(..., dim=1)``."""

    kind: ClassVar[str] = "concat"
    arity: ClassVar[int] = 0

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the first shape with the channels of all."""
        first = shapes[0]
        for name, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) < 2 or (shape[0], *shape[2:]) != (first[0], *first[2:]):
                raise self.refuse(f"the shape {shape} of {name} beside {first} of {self.inputs[0]}",
                                  "shapes that differ in their channels alone")
        return (first[0], sum(shape[1] for shape in shapes), *first[2:])

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return all channels."""
        return inputs[0].concatenated(inputs[1:], axis=1)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return each input's channels of dy."""
        ends = list(itertools.accumulate(one.shape[1] for one in inputs))
        return [dy[:, end - one.shape[1]:end] for one, end in zip(inputs, ends, strict=True)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.cat(inputs, dim=1)``."""
        import torch

        return torch.cat(list(inputs), dim=1)


@dataclass(frozen=True)
class Flatten(Operation):
    """All but the first axis as one, torch's ``flatten(start_dim=1)``."""

    kind: ClassVar[str] = "flatten"

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, all other elements)."""
        return shapes[0][0], math.prod(shapes[0][1:])

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the same numbers in the same order."""
        (x,) = inputs
        return x.reshape(self.output_shape(x.shape))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy in the shape of the input."""
        return [dy.reshape(inputs[0].shape)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.flatten(1)``."""
        return inputs[0].flatten(1)
