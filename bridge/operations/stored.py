# SPDX-License-Identifier: MIT
"""What is learned by itself, as another operation's operand (an embedding of places, a token), and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.rearrangement import Axis, Extents, positive

#: Of a dimension, from 0
Indices = tuple[int, ...]


@dataclass(frozen=True)
class Parameter(Operation):
    """The same numbers for each image, torch's ``weight.expand(len(x), *shape)``; of its input it takes nothing else.

    What is not learned, such as a mask or a table, is a frozen parameter.
    """

    shape: Extents
    kind: ClassVar[str] = "parameter"
    only_counts: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse what is no extent."""
        if min(self.shape) < 1:
            raise self.refuse(f"shape {self.shape}", "integers from 1 on")

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return that of one image."""
        return {"weight": self.shape}

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return (n, and the extents)."""
        (shape,) = shapes
        return (shape[0], *self.shape)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the parameter, for each image."""
        return parameters["weight"].reshape((1, *self.shape)).broadcast(self.output_shape(inputs[0].shape))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the sum of dy over the images, and nothing for the input."""
        return [inputs[0].moved(np.zeros_like)], {"weight": dy.sum((0,))}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``weight.expand(len(x), *shape)``."""
        return parameters["weight"].expand(inputs[0].shape[0], *self.shape)


@dataclass(frozen=True)
class IndexSelect(Operation):
    """The numbers of some indices of a dimension that is not the batch, torch's ``x.index_select(dim, index)``."""

    dim: Axis
    indices: Indices
    kind: ClassVar[str] = "index_select"

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape with as many indices along the dimension as there are."""
        (shape,) = shapes
        axis = positive(self, self.dim, len(shape))
        if axis == 0:
            raise self.refuse(f"dimension {self.dim} of {len(shape)}", "another than the batch")
        if max(self.indices) >= shape[axis]:
            raise self.refuse(f"index {max(self.indices)}", f"one below {shape[axis]}")
        return (*shape[:axis], len(self.indices), *shape[axis + 1:])

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the numbers, some of them several times."""
        (x,) = inputs
        return x.moved(lambda a: a.take(self.indices, positive(self, self.dim, a.ndim)))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return for each number the sum of dy over its indices."""
        (x,) = inputs
        axis = positive(self, self.dim, len(x.shape))
        places = tuple(self.indices if i == axis else tuple(range(n)) for i, n in enumerate(x.shape))
        return [dy.scattered(places, x.shape)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.index_select(dim, index)``."""
        import torch

        return inputs[0].index_select(self.dim, torch.tensor(self.indices, device=inputs[0].device))
