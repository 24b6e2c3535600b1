# SPDX-License-Identifier: MIT
"""Operations that normalise by a mean and a variance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Gradients, Number, Operation, Shape

#: Axes of an image batch (n, c, h, w) that a channel's statistics are taken over
OVER = (0, 2, 3)


@dataclass(frozen=True)
class BatchNorm2d(Operation):
    """Each channel normalised by its mean and (biased) variance over the batch, as torch's in training.

    Source: S. Ioffe and C. Szegedy, Batch Normalization, ICML 2015, algorithm 1 and section 3.
    """

    num_features: int
    eps: float = 1e-5
    kind: ClassVar[str] = "batch_norm2d"

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return those of the factor and the shift of each channel, (c,)."""
        return {"weight": (self.num_features,), "bias": (self.num_features,)}

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        (shape,) = shapes
        if len(shape) != 4 or shape[1] != self.num_features:
            raise self.refuse(f"input {shape}", f"a shape (n, {self.num_features}, h, w)")
        if shape[0] * shape[2] * shape[3] < 2:
            raise self.refuse(f"input {shape}", "more than one number in each channel")
        return shape

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return ``weight * (x - mean) / sqrt(variance + eps) + bias``.

        Many programs, PyTorch among them, multiply out: one factor and one shift for each channel.
        """
        (x,) = inputs
        normal, scale = self._normalised(x)
        weight, bias = (parameters[name].reshape((1, -1, 1, 1)) for name in ("weight", "bias"))
        factor = scale * weight
        return (normal * weight + bias).or_as(x * factor + (bias - self._mean(x) * factor))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradients with respect to input, weight and bias."""
        (x,) = inputs
        normal, scale = self._normalised(x)
        d_bias, d_weight = dy.sum(OVER), (dy * normal).sum(OVER)
        count = x.size // self.num_features
        mean, along = ((d / count).reshape((1, -1, 1, 1)) for d in (d_bias, d_weight))
        factor = scale * parameters["weight"].reshape((1, -1, 1, 1))
        return [(dy - mean - normal * along) * factor], {"weight": d_weight, "bias": d_bias}

    def _mean(self, x: Number) -> Number:
        return (x.sum(OVER) / (x.size // self.num_features)).reshape((1, -1, 1, 1))

    def _normalised(self, x: Number) -> tuple[Number, Number]:
        """x with mean 0 and variance 1, and the factor of each channel."""
        count = x.size // self.num_features
        distance = x - self._mean(x)
        variance = (distance.squared()).sum(OVER) / count
        scale = (1.0 / (variance + self.eps).sqrt()).reshape((1, -1, 1, 1))
        return distance * scale, scale

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.batch_norm`` in training."""
        from torch.nn import functional

        return functional.batch_norm(inputs[0], None, None, parameters["weight"], parameters["bias"], training=True,
                                     eps=self.eps)
