# SPDX-License-Identifier: MIT
"""Operations that make probabilities of the numbers along a dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.operations.operation import Gradients, Number, Operation, Real, Shape
from bridge.operations.rearrangement import Axis, positive


@dataclass(frozen=True)
class _Along(Operation):
    """One that takes all numbers along a dimension together: the channels, unless `dim` says otherwise."""

    dim: Axis = 1

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        (shape,) = shapes
        if len(shape) < 2:
            raise self.refuse(f"input {shape}", "two dimensions or more")
        if positive(self, self.dim, len(shape)) == 0:
            raise self.refuse(f"dimension {self.dim} of {len(shape)}", "another than the batch")
        return shape

    def _kept(self, x: Number, of: Number) -> Number:
        """What was found along the dimension, which remains as one of one number."""
        axis = positive(self, self.dim, len(x.shape))
        return of.reshape((*x.shape[:axis], 1, *x.shape[axis + 1:]))

    def _summed(self, x: Number) -> Number:
        return self._kept(x, x.sum((positive(self, self.dim, len(x.shape)),)))

    def _below_largest(self, x: Number) -> Number:
        """What no exponential of overflows."""
        largest = self._kept(x, x.max((positive(self, self.dim, len(x.shape)),)))
        return (x - largest).named("the input less its largest")


@dataclass(frozen=True)
class Softmax(_Along):
    """``exp(x) / sum(exp(x))`` along the dimension."""

    kind: ClassVar[str] = "softmax"

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the probabilities, or the exponential of their logarithms: whichever way is the less exact."""
        powers = self._below_largest(inputs[0]).exp()
        return (powers / self._summed(powers)).or_as(LogSoftmax("", self.dim).forward(inputs, parameters).exp())

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return ``y * (dy - sum(dy * y))`` from the output y, or the same multiplied out."""
        y = self.forward(inputs, parameters).named("y")
        return [(y * (dy - self._summed(dy * y))).or_as(y * dy - y * self._summed(dy * y))], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.softmax(dim)``."""
        return inputs[0].softmax(self.dim)


@dataclass(frozen=True)
class LogSoftmax(_Along):
    """``x - log(sum(exp(x)))`` along the dimension."""

    kind: ClassVar[str] = "log_softmax"

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the logarithms of the probabilities."""
        x = self._below_largest(inputs[0])
        return x - self._summed(x.exp()).log()

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return ``dy - exp(y) * sum(dy)`` from the output y."""
        y = self.forward(inputs, parameters).named("y")
        return [dy - y.exp() * self._summed(dy)], {}

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``x.log_softmax(dim)``."""
        return inputs[0].log_softmax(self.dim)


@dataclass(frozen=True)
class Attention(Operation):
    """``softmax(scale * q @ k.T) @ v`` of queries, keys and values (n, ..., length, features or width).

    A causal one has weights up to its own number in each row. A scale of 0 is one over the root of the features.
    """

    is_causal: bool = False
    scale: Real = 0.0
    kind: ClassVar[str] = "attention"
    arity: ClassVar[int] = 3

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the values."""
        q, k, v = shapes
        if len(v) < 3 or q != k or q[:-1] != v[:-1]:
            raise self.refuse(f"the shapes {q}, {k} and {v}",
                              "twice (n, ..., length, features) and (n, ..., length, width)")
        return v

    def factor(self, features: int) -> float:
        """Return what the scores are multiplied by."""
        return self.scale or 1 / math.sqrt(features)

    def in_words(self, name: str, *shapes: Shape) -> str:
        """Return what a scale of 0 stands for."""
        features = shapes[0][-1]
        return f"1/sqrt(d) = {self.factor(features):.6g}" if name == "scale" and not self.scale else ""

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the sums of values by their weights; or the sums before they are divided by those of the weights."""
        return self._sums(*self._weights(inputs), inputs[2].named("the values"))

    def _sums(self, powers: Number, weights: Number, value: Number) -> Number:
        if self.along() != -1:
            return weights @ value
        return (weights @ value).or_as((powers @ value) / self._total(powers))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradients of queries, keys and values, by those of the weights and the scores."""
        q, k, v = inputs
        powers, weights = self._weights(inputs)
        slopes = (dy @ _turned(v)).named("the gradient of the weights")
        found = self.of_scores(weights, slopes, dy, self._sums(powers, weights, v))
        scores = (found * self.factor(q.shape[-1])).named("the gradient of the scores")
        return [scores @ k, _turned(scores) @ q, _turned(weights) @ dy], {}

    def of_scores(self, weights: Number, slopes: Number, dy: Number, y: Number) -> Number:
        """Return the gradient of the scaled scores from that of the weights, ``slopes``.

        Its sum over the keys is that of dy times y over the values, too.
        """
        parts = weights * slopes
        total = self._total(parts)
        found = (weights * (slopes - total)).or_as(parts - weights * total)
        rows = (dy * y).sum((len(dy.shape) - 1,)).reshape((*dy.shape[:-1], 1))
        return found.or_as(weights * (slopes - rows))

    def seen(self, length: int) -> Any:
        """Return which keys each row has weights of; None where it is all."""
        return np.tri(length, dtype=bool) if self.is_causal else None

    def along(self) -> int:
        """Return the axis of the scores along which the weights' sum is 1: that of the keys."""
        return -1

    def _weights(self, inputs: Sequence[Number]) -> tuple[Number, Number]:
        """The exponentials of the scores less their largest, and these divided by their sums."""
        q, k, _ = inputs
        factor, turned = self.factor(q.shape[-1]), _turned(k)
        # Who scales queries or keys rounds them once more
        scores = ((q.rounded() @ turned) * factor).named("the scores")
        seen = self.seen(scores.shape[-1])
        if seen is not None:
            # Others are as the row's own, so that none of them is the largest alone
            scores = scores.moved(lambda a: np.where(seen, a, np.diagonal(a, axis1=-2, axis2=-1)[..., None]))
        largest = self._kept(scores, scores.max((len(scores.shape) + self.along(),)))
        powers = (scores - largest).named("the scores less their largest").exp()
        if seen is not None:
            powers = powers.moved(lambda a: np.where(seen, a, 0.0))
        return powers, (powers / self._total(powers)).named("the weights")

    def _total(self, of: Number) -> Number:
        return self._kept(of, of.sum((len(of.shape) + self.along(),)))

    def _kept(self, x: Number, of: Number) -> Number:
        """What was found along the axis, which remains as one of one number."""
        axis = len(x.shape) + self.along()
        return of.reshape((*x.shape[:axis], 1, *x.shape[axis + 1:]))

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.scaled_dot_product_attention``."""
        from torch.nn import functional

        query, key, value = inputs
        return functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal,
                                                       scale=self.scale or None)


def _turned(matrices: Number) -> Number:
    """The last two axes exchanged."""
    count = len(matrices.shape)
    return matrices.transpose((*range(count - 2), count - 1, count - 2))
