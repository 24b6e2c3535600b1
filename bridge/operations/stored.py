# SPDX-License-Identifier: MIT
"""What is learned by itself, as another operation's operand (an embedding of places, a token), and tables whose rows
whole numbers choose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.operations.hyperparameters import MOST_DIMENSIONS
from bridge.operations.operation import Gradients, Number, Operation, Shape
from bridge.operations.rearrangement import Axis, Extents, Index, positive

#: Of a dimension, from 0
Indices = tuple[int, ...]


@dataclass(frozen=True)
class Parameter(Operation):
    """The same numbers for each image, torch's ``weight.expand(len(x), *shape)``; of its input it takes nothing else.

    What is not learned, such as a mask or a table, is a frozen parameter.
    """

    shape: Extents
    kind: ClassVar[str] = "parameter"
    without_gradient: ClassVar[tuple[int, ...]] = (0,)

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


@dataclass(frozen=True)
class Embedding(Operation):
    """The rows of a table that whole numbers choose, torch's `Embedding`; they have no gradient, and no other number is
    one of them.

    The row ``padding_idx`` is not learned; -1: all are. torch's ``sparse`` computes the same.
    """

    num_embeddings: int
    embedding_dim: int
    padding_idx: Index = -1
    kind: ClassVar[str] = "embedding"
    without_gradient: ClassVar[tuple[int, ...]] = (0,)
    takes_whole_numbers: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse a row that there is not."""
        _check_row(self, self.padding_idx, self.num_embeddings)

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return that of the table."""
        return {"weight": (self.num_embeddings, self.embedding_dim)}

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the numbers, with those of a row behind."""
        return _of_rows(self, shapes[0], self.embedding_dim)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the rows."""
        at = inputs[0].whole_numbers(self.num_embeddings)
        table = parameters["weight"].reshape((1, self.num_embeddings, self.embedding_dim))
        found = table.rows(at.reshape(1, -1)).reshape((*at.shape, self.embedding_dim))
        return found.unless(inputs[0].may_be_others()[..., None])

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return nothing for the numbers, and for each row the sum of dy where it was chosen."""
        (x,) = inputs
        at = x.whole_numbers(self.num_embeddings).reshape(-1)
        learned = (at >= 0) & (at != self.padding_idx)
        shape = (self.num_embeddings, self.embedding_dim)
        found = _summed(dy, at, learned, shape).unless(x.may_be_others().any())
        return [x.moved(np.zeros_like)], {"weight": found}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.embedding(x, weight, padding_idx)``."""
        from torch.nn import functional

        return functional.embedding(inputs[0].long(), parameters["weight"],
                                    None if self.padding_idx < 0 else self.padding_idx)


@dataclass(frozen=True)
class GatherRows(Operation):
    """The rows that whole numbers choose of a table which another operation gives: ``table[i][x[i]]`` of each image i.

    A table (n, rows, numbers of a row) of learned numbers is a `Parameter`, which others may take, too: the last layer
    of a language model. The row ``padding_idx`` gets no gradient; -1: all do.
    """

    padding_idx: Index = -1
    kind: ClassVar[str] = "gather_rows"
    arity: ClassVar[int] = 2
    without_gradient: ClassVar[tuple[int, ...]] = (1,)
    takes_whole_numbers: ClassVar[bool] = True

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the numbers, with those of a row behind."""
        table, numbers = shapes
        if len(table) != 3:
            raise self.refuse(f"tables {table}", "a shape (n, rows, numbers of a row)")
        shape = _of_rows(self, numbers, table[-1])
        if table[0] != numbers[0]:
            raise self.refuse(f"tables {table} and numbers {numbers}", "as many images")
        _check_row(self, self.padding_idx, table[1])
        return shape

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the rows."""
        table, x = inputs
        at = x.whole_numbers(table.shape[1])
        found = table.rows(at.reshape(table.shape[0], -1)).reshape((*at.shape, table.shape[2]))
        return found.unless(x.may_be_others()[..., None])

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return for each row of the tables the sum of dy where it was chosen, and nothing for the numbers."""
        table, x = inputs
        at = x.whole_numbers(table.shape[1]).reshape(table.shape[0], -1)
        places = (at + np.arange(table.shape[0])[:, None] * table.shape[1]).reshape(-1)
        flat = (table.shape[0] * table.shape[1], table.shape[2])
        learned = ((at >= 0) & (at != self.padding_idx)).reshape(-1)
        found = _summed(dy, places, learned, flat).reshape(table.shape).unless(x.may_be_others().any())
        return [found, x.moved(np.zeros_like)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``table[i][x[i]]`` of each image."""
        table, x = inputs
        at = x.long().reshape(x.shape[0], -1, 1).expand(-1, -1, table.shape[2])
        found = table.gather(1, at)
        return found.where(at != self.padding_idx, found.detach()).reshape(*x.shape, table.shape[2])


def _check_row(operation: Operation, row: int, rows: int) -> None:
    if not -1 <= row < rows:
        raise operation.refuse(f"padding_idx {row}", f"one from 0 to {rows - 1}, or -1")


def _of_rows(operation: Operation, shape: Shape, width: int) -> Shape:
    """The shape of whole numbers, each with a row."""
    if not 1 <= len(shape) < MOST_DIMENSIONS:
        raise operation.refuse(f"input {shape}", f"1 to {MOST_DIMENSIONS - 1} dimensions")
    return (*shape, width)


def _summed(dy: Number, at: Any, learned: Any, shape: Shape) -> Number:
    """dy in rows, of which those that are learned are added to their places in a table."""
    rows = dy.reshape((math.prod(dy.shape[:-1]), shape[1])).moved(lambda a: a[learned])
    return rows.scattered((at[learned], range(shape[1])), shape)
