# SPDX-License-Identifier: MIT
"""Operations that put numbers beside those of a tensor, or take the outermost away, along any dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.operations.operation import Gradients, Number, Operation, Real, Shape

#: Torch's `pad`: how many numbers before and behind those of the last dimension, of the one before it, ...; as many are
#: taken away where they are negative
Shifts = tuple[int, ...]
#: Before and behind those of each dimension
Sides = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Pad(Operation):
    """Numbers beside those of the last dimensions."""

    pad: Shifts

    def check(self) -> None:
        """Refuse half a pair."""
        if len(self.pad) % 2:
            raise self.refuse(f"pad {self.pad}", "two numbers for each dimension")

    def sides(self, shape: Shape) -> Sides:
        """Return how many are put before and behind those of each dimension of a shape.

        Raises
        ------
        FileError
            If the batch would be padded, or nothing remains of what is there.
        """
        pairs = list(zip(self.pad[::2], self.pad[1::2], strict=True))
        if len(pairs) >= len(shape):
            raise self.refuse(f"pad {self.pad} of the input {shape}", "others than the batch")
        found = ((0, 0),) * (len(shape) - len(pairs)) + tuple(pairs[::-1])
        if any(n + min(one[0], 0) + min(one[1], 0) < 1 for n, one in zip(shape, found, strict=True)):
            raise self.refuse(f"pad {self.pad} of the input {shape}", "one number or more that remains")
        return found

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the extents with what is put beside them."""
        return tuple(n + sum(one) for n, one in zip(shapes[0], self.sides(shapes[0]), strict=True))


@dataclass(frozen=True)
class ConstantPad(_Pad):
    """One number beside those of the last dimensions, torch's ``pad(x, pad, value=value)``."""

    value: Real = 0.0
    kind: ClassVar[str] = "constant_pad"

    def check(self) -> None:
        """Refuse half a pair, and an infinite number, of which no error is known."""
        super().check()
        if not math.isfinite(self.value):
            raise self.refuse(f"value {self.value}", "a finite number")

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the numbers, and those beside them."""
        (x,) = inputs
        return x.padded(self.sides(x.shape), self.value)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return dy where numbers came from, and 0 where they were taken away."""
        return [dy.padded(tuple((-before, -behind) for before, behind in self.sides(inputs[0].shape)), 0.0)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.pad`` in the mode "constant"."""
        from torch.nn import functional

        return functional.pad(inputs[0], self.pad, value=self.value)


@dataclass(frozen=True)
class CircularPad(_Pad):
    """Numbers of the opposite side beside those of the last dimensions, torch's ``pad(x, pad, "circular")``."""

    kind: ClassVar[str] = "circular_pad"

    def sides(self, shape: Shape) -> Sides:
        """Return how many are put before and behind those of each dimension of a shape."""
        found = super().sides(shape)
        if any(max(one) > n + min(one[0], 0) + min(one[1], 0) for n, one in zip(shape, found, strict=True)):
            raise self.refuse(f"pad {self.pad} of the input {shape}", "at most as many numbers as remain")
        return found

    def places(self, shape: Shape) -> tuple[tuple[int, ...], ...]:
        """Return of each dimension the numbers of the input, in the order of the output's."""
        remaining = (range(n)[max(-before, 0):n - max(-behind, 0)] for n, (before, behind) in zip(
            shape, self.sides(shape), strict=True))
        return tuple((*(one[len(one) - before:] if before > 0 else ()), *one, *(one[:behind] if behind > 0 else ()))
                     for one, (before, behind) in zip(remaining, self.sides(shape), strict=True))

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the numbers, and those beside them."""
        (x,) = inputs
        return x.moved(lambda a: a[np.ix_(*self.places(x.shape))])

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return for each number the sum of dy over all places that it went to."""
        shape = inputs[0].shape
        return [dy.scattered(self.places(shape), shape)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.pad`` in the mode "circular", which torch has of up to three dimensions."""
        import torch
        from torch.nn import functional

        x = inputs[0]
        if len(self.pad) == 2 * (x.ndim - 2):
            return functional.pad(x, self.pad, "circular")
        # Of other dimensions the same by indices
        for dim, places in enumerate(self.places(tuple(x.shape))):
            x = x.index_select(dim, torch.tensor(places))
        return x
