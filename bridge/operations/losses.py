# SPDX-License-Identifier: MIT
"""Losses: operations of the network's output and a target of its shape, which give one number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Number, Shape
from bridge.operations.softmax import LogSoftmax


@dataclass(frozen=True)
class Loss:
    """A mean or a sum.

    Attributes
    ----------
    mean : the mean, else the sum
    kind : its type in an exchange file, torch's name
    """

    mean: bool = True
    kind: ClassVar[str]

    def scale(self, shape: Shape) -> float:
        """Return the factor of the sum, for an output of this shape."""
        return 1.0 / math.prod(shape) if self.mean else 1.0

    @property
    def reduction(self) -> str:
        """Return torch's name of it, "mean" or "sum"."""
        return "mean" if self.mean else "sum"

    def forward(self, output: Number, target: Number) -> Number:
        """Return the loss."""
        raise NotImplementedError

    def backward(self, output: Number, target: Number) -> Number:
        """Return its gradient with respect to the output."""
        raise NotImplementedError

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return what PyTorch computes for it, from torch tensors."""
        raise NotImplementedError


@dataclass(frozen=True)
class MeanSquaredError(Loss):
    """``(output - target)**2``, over all elements."""

    kind: ClassVar[str] = "mse"

    def forward(self, output: Number, target: Number) -> Number:
        """Return the mean or the sum of squared differences."""
        return (output - target).squared().sum(None) * self.scale(output.shape)

    def backward(self, output: Number, target: Number) -> Number:
        """Return ``2 * (output - target)`` times the scale."""
        return (output - target) * (2.0 * self.scale(output.shape))

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return ``torch.nn.functional.mse_loss``."""
        from torch.nn import functional

        return functional.mse_loss(output, target, reduction=self.reduction)


@dataclass(frozen=True)
class MeanAbsoluteError(Loss):
    """``|output - target|``, over all elements; the derivative at 0 is 0, as torch's."""

    kind: ClassVar[str] = "l1"

    def forward(self, output: Number, target: Number) -> Number:
        """Return the mean or the sum of absolute differences."""
        d = output - target
        return (d > 0).choose(d, -d).sum(None) * self.scale(output.shape)

    def backward(self, output: Number, target: Number) -> Number:
        """Return the sign of the difference times the scale."""
        d = output - target
        one = d * 0.0 + self.scale(output.shape)
        return (d > 0).choose(one, (-d > 0).choose(-one, 0.0))

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return ``torch.nn.functional.l1_loss``."""
        from torch.nn import functional

        return functional.l1_loss(output, target, reduction=self.reduction)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """``-target * log_softmax(output)`` over the channels; the targets are probabilities of classes.

    The mean is over images and pixels, not over channels. A class is a probability 1 among zeros.
    """

    kind: ClassVar[str] = "cross_entropy"

    def scale(self, shape: Shape) -> float:
        """Return the factor of the sum over images and pixels."""
        return shape[1] / math.prod(shape) if self.mean else 1.0

    def forward(self, output: Number, target: Number) -> Number:
        """Return the cross entropy of targets and the output's softmax."""
        return -(target * LogSoftmax("").forward([output], {})).sum(None) * self.scale(output.shape)

    def backward(self, output: Number, target: Number) -> Number:
        """Return ``softmax(output) * sum(target) - target`` times the scale.

        The softmax is the exponential of the rounded logarithm, as torch's: the least exact way there is.
        """
        total = target.sum((1,)).reshape((target.shape[0], 1, *target.shape[2:]))
        shares = LogSoftmax("").forward([output], {}).exp()
        return (shares * total - target) * self.scale(output.shape)

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return ``torch.nn.functional.cross_entropy``."""
        from torch.nn import functional

        return functional.cross_entropy(output, target, reduction=self.reduction)


LOSSES: dict[str, type[Loss]] = {one.kind: one for one in (CrossEntropy, MeanAbsoluteError, MeanSquaredError)}
