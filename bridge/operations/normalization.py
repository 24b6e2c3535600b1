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
    """Each channel normalised by a mean and a variance, those of the batch in training, else the running ones.

    The variance of the batch is the biased one (divided by n); the running statistics, torch's buffers, are
    ``(1 - momentum) * old + momentum * batch's`` with the unbiased one (n - 1), and change in training alone.

    Source: S. Ioffe and C. Szegedy, Batch Normalization, ICML 2015, algorithm 1 and section 3.
    """

    num_features: int
    eps: float = 1e-5
    momentum: float = 0.1
    track_running_stats: bool = False
    training: bool = True
    kind: ClassVar[str] = "batch_norm2d"

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return those of the factor and the shift of each channel, (c,)."""
        return {"weight": (self.num_features,), "bias": (self.num_features,)}

    def state_shapes(self) -> dict[str, Shape]:
        """Return those of the running mean and variance, (c,), where they are kept."""
        shape = (self.num_features,)
        return {"running_mean": shape, "running_var": shape} if self.track_running_stats else {}

    def initial_state(self) -> dict[str, float]:
        """Return mean 0 and variance 1, as torch's."""
        return {name: float(name == "running_var") for name in self.state_shapes()}

    def new_state_shapes(self) -> dict[str, Shape]:
        """Return those of all state in training, and none else."""
        return self.state_shapes() if self.training else {}

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        (shape,) = shapes
        if not (self.training or self.track_running_stats):
            raise self.refuse("training 0 without running statistics", "track_running_stats 1")
        if len(shape) != 4 or shape[1] != self.num_features:
            raise self.refuse(f"input {shape}", f"a shape (n, {self.num_features}, h, w)")
        if self.training and shape[0] * shape[2] * shape[3] < 2:
            raise self.refuse(f"input {shape}", "more than one number in each channel")
        return shape

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return ``weight * (x - mean) / sqrt(variance + eps) + bias``.

        Many programs, PyTorch among them, multiply out: one factor and one shift for each channel.
        """
        (x,) = inputs
        normal, scale = self._normalised(x, parameters)
        weight, bias = (_wide(parameters[name]) for name in ("weight", "bias"))
        factor = scale * weight
        return (normal * weight + bias).or_as(x * factor + (bias - self._mean(x, parameters) * factor))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradients with respect to input, weight and bias."""
        (x,) = inputs
        normal, scale = self._normalised(x, parameters)
        found = {"weight": (dy * normal).sum(OVER), "bias": dy.sum(OVER)}
        factor = scale * _wide(parameters["weight"])
        if not self.training:
            return [dy * factor], found
        count = x.size // self.num_features
        mean, along = (_wide(found[name] / count) for name in ("bias", "weight"))
        return [(dy - mean - normal * along) * factor], found

    def new_state(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> dict[str, Number]:
        """Return the running statistics after a batch.

        Some programs move the old ones by a part of the distance.
        """
        if not self.new_state_shapes():
            return {}
        return {name: (parameters[name] * (1 - self.momentum) + new * self.momentum).or_as(
            parameters[name] + (new - parameters[name]) * self.momentum)
            for name, new in self.batch_statistics(inputs[0], parameters).items()}

    def batch_statistics(self, x: Number, parameters: Mapping[str, Number]) -> dict[str, Number]:
        """Return mean and unbiased variance of a batch by the names of the running ones."""
        mean = self._mean(x, parameters)
        variance = (x - mean).squared().sum(OVER) / (x.size // self.num_features - 1)
        return {"running_mean": mean.reshape((self.num_features,)), "running_var": variance}

    def _mean(self, x: Number, parameters: Mapping[str, Number]) -> Number:
        return _wide(x.sum(OVER) / (x.size // self.num_features) if self.training else parameters["running_mean"])

    def _normalised(self, x: Number, parameters: Mapping[str, Number]) -> tuple[Number, Number]:
        """x with mean 0 and variance 1, and the factor of each channel."""
        distance = x - self._mean(x, parameters)
        scale = _wide(self._scale(self._variance(distance) if self.training else parameters["running_var"]))
        return distance * scale, scale

    def _variance(self, distance: Number) -> Number:
        """Of a batch, from the distances of its mean."""
        return distance.squared().sum(OVER) / (distance.size // self.num_features)

    def _scale(self, variance: Number) -> Number:
        return 1.0 / (variance + self.eps).sqrt()

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.batch_norm``."""
        from torch.nn import functional

        return functional.batch_norm(
            inputs[0], parameters.get("running_mean"), parameters.get("running_var"), parameters["weight"],
            parameters["bias"], self.training, self.momentum, self.eps)


def _wide(channels: Number) -> Number:
    """A number for each channel, as images of one pixel."""
    return channels.reshape((1, -1, 1, 1))
