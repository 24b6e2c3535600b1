# SPDX-License-Identifier: MIT
"""Operations that join branches of a network."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.rearrangement import Axis, positive


@dataclass(frozen=True)
class Concat(Operation):
    """Inputs one behind the other along a dimension that is not the batch, torch's ``cat(..., dim)``."""

    dim: Axis = 1
    kind: ClassVar[str] = "concat"
    arity: ClassVar[int] = 0

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the first shape with the extents of all along the dimension."""
        first = shapes[0]
        axis = positive(self, self.dim, len(first)) if len(first) > 1 else 1
        if axis == 0:
            raise self.refuse(f"dimension {self.dim} of {len(first)}", "another than the batch")
        where = "their channels" if self.dim == 1 else f"dimension {self.dim}"
        for name, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) < 2 or (*shape[:axis], *shape[axis + 1:]) != (*first[:axis], *first[axis + 1:]):
                raise self.refuse(f"the shape {shape} of {name} beside {first} of {self.inputs[0]}",
                                  f"shapes that differ in {where} alone")
        return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1:])

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return all of them."""
        return inputs[0].concatenated(inputs[1:], axis=positive(self, self.dim, len(inputs[0].shape)))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return each input's part of dy."""
        axis = positive(self, self.dim, len(dy.shape))
        ends, before = list(itertools.accumulate(one.shape[axis] for one in inputs)), (slice(None),) * axis
        return [dy[(*before, slice(end - one.shape[axis], end))] for one, end in zip(inputs, ends, strict=True)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.cat(inputs, dim)``."""
        import torch

        return torch.cat(list(inputs), dim=self.dim)


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
