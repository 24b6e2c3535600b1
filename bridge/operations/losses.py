# SPDX-License-Identifier: MIT
"""Losses: operations of the network's output and a target, which give one number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Number, Shape


@dataclass(frozen=True)
class MeanSquaredError:
    """``(output - target)**2``, the mean or the sum over all elements."""

    mean: bool = True
    kind: ClassVar[str] = "mse"

    def scale(self, shape: Shape) -> float:
        """Return the factor of the sum of squares."""
        return 1.0 / math.prod(shape) if self.mean else 1.0

    def forward(self, output: Number, target: Number) -> Number:
        """Return the loss."""
        return (output - target).squared().sum(None) * self.scale(output.shape)

    def backward(self, output: Number, target: Number) -> Number:
        """Return its gradient with respect to the output."""
        return (output - target) * (2.0 * self.scale(output.shape))

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return ``torch.nn.functional.mse_loss``."""
        from torch.nn import functional

        return functional.mse_loss(output, target, reduction="mean" if self.mean else "sum")
