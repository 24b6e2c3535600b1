# SPDX-License-Identifier: MIT
"""Operations that normalise by a mean and a variance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.operations.operation import Gradients, Number, Operation, Shape

#: Axes of an image batch (n, c, h, w) that a channel's statistics are taken over
OVER = (0, 2, 3)
#: Extents of the last axes
Sizes = tuple[int, ...]
#: Share of a variance that the difference of the mean square and the squared mean may lose: three digits
LOST = 2.0**-10


@dataclass(frozen=True)
class BatchNorm2d(Operation):
    """Each channel normalised by a mean and a variance, those of the batch in training, else the running ones.

    The input is images (n, c, h, w), or volumes (n, c, d, h, w).
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
        if len(shape) not in (4, 5) or shape[1] != self.num_features:
            raise self.refuse(f"input {shape}", f"a shape (n, {self.num_features}, h, w)")
        if self.training and math.prod(shape) // self.num_features < 2:
            raise self.refuse(f"input {shape}", "more than one number in each channel")
        return shape

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return ``weight * (x - mean) / sqrt(variance + eps) + bias``.

        Many programs, PyTorch among them, multiply out: one factor and one shift for each channel.
        """
        x = as_images(inputs[0])
        normal, scale = self._normalised(x, parameters)
        weight, bias = (_wide(parameters[name]) for name in ("weight", "bias"))
        factor = scale * weight
        y = (normal * weight + bias).or_as(x * factor + (bias - self._mean(x, parameters) * factor))
        return as_before(y, inputs[0])

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradients with respect to input, weight and bias.

        Many programs multiply dy by the distance from the mean, and what that gives by powers of the scale: numbers
        between may underflow.
        """
        x, dy = as_images(inputs[0]), as_images(dy)
        normal, scale = self._normalised(x, parameters)
        distance = (x - self._mean(x, parameters)).named("the distance from the mean")
        along_distance = (dy * distance).named("dy times the distance from the mean")
        along_normal = (dy * normal).named("dy times the normalised input").or_as(along_distance * scale)
        found = {"weight": along_normal.sum(OVER), "bias": dy.sum(OVER)}
        factor = scale * _wide(parameters["weight"])
        if not self.training:
            return [as_before(dy * factor, inputs[0])], found
        count = x.size // self.num_features
        mean = _wide(found["bias"] / count).named("the mean of dy")
        along = _wide(found["weight"] / count).named("the mean of dy times the normalised input")
        slope = _wide(along_distance.sum(OVER) / count) * scale * scale * factor
        dx = ((dy - mean - normal * along) * factor).or_as((dy - mean) * factor - distance * slope)
        return [as_before(dx, inputs[0])], found

    def new_state(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> dict[str, Number]:
        """Return the running statistics after a batch.

        Some programs move the old ones by a part of the distance.
        """
        if not self.new_state_shapes():
            return {}
        return {name: (parameters[name] * (1 - self.momentum) + new * self.momentum).or_as(
            parameters[name] + (new - parameters[name]) * self.momentum)
            for name, new in self.batch_statistics(as_images(inputs[0]), parameters).items()}

    def batch_statistics(self, x: Number, parameters: Mapping[str, Number]) -> dict[str, Number]:
        """Return mean and unbiased variance of a batch by the names of the running ones."""
        mean = self._mean(x, parameters)
        count = x.size // self.num_features
        variance = ((x - mean).squared().sum(OVER) / (count - 1)).by_terms(count)
        variance = variance.or_as(lambda: self._of_squares(x) * (count / (count - 1)), LOST)
        return {"running_mean": mean.reshape((self.num_features,)), "running_var": variance}

    def _mean(self, x: Number, parameters: Mapping[str, Number]) -> Number:
        return _wide(self._mean_of(x) if self.training else parameters["running_mean"]).named("the mean")

    def _normalised(self, x: Number, parameters: Mapping[str, Number]) -> tuple[Number, Number]:
        """x with mean 0 and variance 1, and the factor of each channel."""
        distance = (x - self._mean(x, parameters)).named("the distance from the mean")
        variance = self._variance(distance).or_as(
            lambda: self._of_squares(x), LOST) if self.training else parameters["running_var"]
        scale = _wide(self._scale(variance)).named("the inverse deviation")
        return (distance * scale).named("the normalised input"), scale

    def _variance(self, distance: Number) -> Number:
        """Of a batch, from the distances of its mean."""
        return self._mean_of(distance.squared()).named("the variance")

    def _mean_of(self, x: Number) -> Number:
        """Of each channel."""
        count = x.size // self.num_features
        return (x.sum(OVER) / count).by_terms(count)

    def _of_squares(self, x: Number) -> Number:
        """The same as the mean square less the squared mean, as Flax has it: with fewer digits where that is large."""
        square, mean = self._mean_of(x.squared()), self._mean_of(x)
        return square - mean.squared()

    def _scale(self, variance: Number) -> Number:
        return 1.0 / (variance + self.eps).sqrt()

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.batch_norm``."""
        from torch.nn import functional

        return functional.batch_norm(
            inputs[0], parameters.get("running_mean"), parameters.get("running_var"), parameters["weight"],
            parameters["bias"], self.training, self.momentum, self.eps)


def as_images(x: Number) -> Number:
    """Return volumes as images of all rows of all planes; images as they are."""
    return x if len(x.shape) == 4 else x.reshape((*x.shape[:2], -1, x.shape[-1]))


def as_before(y: Number, x: Number) -> Number:
    """Return what was computed from images as volumes, where x is these."""
    return y if len(x.shape) == 4 else y.reshape(x.shape)


def _wide(channels: Number) -> Number:
    """A number for each channel, as images of one pixel."""
    return channels.reshape((1, -1, 1, 1))


class RowNorm(Operation):
    """Rows of numbers that lie one behind the other, each normalised by its own mean and variance (divided by n).

    Its formulas see the input as (samples, groups, columns, inner): a row is the last two axes, and has one factor and
    one shift for each column, others in each group.

    Attributes
    ----------
    eps : of the classes that extend it
    """

    eps: float
    #: what the four extents are called
    axes: ClassVar[tuple[str, ...]] = ("image", "group", "channel", "pixel")

    def _rows(self, x: Number) -> Number:
        return x.reshape(self._form(x.shape)).named(x.label, *self.axes)

    def _form(self, shape: Shape) -> Shape:
        """Those four extents of an input of this shape."""
        raise NotImplementedError

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return ``weight * (x - mean) / sqrt(variance + eps) + bias``.

        Many programs multiply out: one factor and one shift for each row, or for each number.
        """
        x = self._rows(inputs[0])
        normal, scale = self._normalised(x)
        factor = scale
        if "weight" in parameters:
            weight = _of_columns(x, parameters["weight"])
            normal, factor = normal * weight, scale * weight
        y = normal.or_as(x * factor - self._mean(x) * factor)
        if "bias" in parameters:
            bias = _of_columns(x, parameters["bias"])
            y = (normal + bias).or_as(x * factor + (bias - self._mean(x) * factor))
        return y.reshape(inputs[0].shape)

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradients with respect to input, weight and bias, in the same two ways."""
        x, dy = self._rows(inputs[0]), self._rows(dy)
        normal, scale = self._normalised(x)
        distance = (x - self._mean(x)).named("the distance from the mean")
        along = (dy * normal).named("dy times the normalised input").or_as(dy * distance * scale)
        found = {name: one.sum((0, 3)).reshape(parameters[name].shape)
                 for name, one in (("weight", along), ("bias", dy)) if name in parameters}
        if "weight" in parameters:
            dy = (dy * _of_columns(x, parameters["weight"])).named("dy times the weight")
        slope = mean_of_rows((dy * distance).named("dy times the distance from the mean")) * scale * scale * scale
        dx = (self._through(dy, normal) * scale).or_as((dy - mean_of_rows(dy)) * scale - distance * slope)
        return [dx.reshape(inputs[0].shape)], found

    def _through(self, dy: Number, normal: Number) -> Number:
        """Through mean and variance, too."""
        along = mean_of_rows((dy * normal).named("dy times the normalised input"))
        return dy - mean_of_rows(dy) - normal * along

    def _mean(self, x: Number) -> Number:
        return mean_of_rows(x).named("the mean")

    def _normalised(self, x: Number) -> tuple[Number, Number]:
        """Rows with mean 0 and variance 1, and the factor of each."""
        distance = (x - self._mean(x)).named("the distance from the mean")
        scale = self._scale(self._variance(distance).or_as(lambda: self._of_squares(x), LOST))
        scale = scale.named("the inverse deviation")
        return (distance * scale).named("the normalised input"), scale

    def _variance(self, distance: Number) -> Number:
        """Of rows, from the distances of their means."""
        return mean_of_rows(distance.squared()).named("the variance")

    def _of_squares(self, x: Number) -> Number:
        """The same as the mean square less the squared mean, as Flax has it: with fewer digits where that is large."""
        return mean_of_rows(x.squared()) - mean_of_rows(x).squared()

    def _scale(self, variance: Number) -> Number:
        return 1.0 / (variance + self.eps).sqrt()


@dataclass(frozen=True)
class LayerNorm(RowNorm):
    """The last axes, of the extents `normalized_shape`, normalised together.

    Source: J. L. Ba, J. R. Kiros and G. E. Hinton, Layer Normalization, https://arxiv.org/abs/1607.06450
    """

    normalized_shape: Sizes
    eps: float = 1e-5
    elementwise_affine: bool = True
    bias: bool = True
    kind: ClassVar[str] = "layer_norm"
    axes: ClassVar[tuple[str, ...]] = ("row", "group", "number", "number")
    sample_rank: ClassVar[int | None] = 0

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return those of the factor and the shift of each number, `normalized_shape`, where there are any."""
        names = ("weight", "bias")[:1 + self.bias] if self.elementwise_affine else ()
        return dict.fromkeys(names, self.normalized_shape)

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        (shape,) = shapes
        rank = len(self.normalized_shape)
        if len(shape) <= rank or shape[-rank:] != self.normalized_shape:
            raise self.refuse(f"input {shape}", f"{self.normalized_shape} behind another axis")
        return shape

    def _form(self, shape: Shape) -> Shape:
        length = math.prod(self.normalized_shape)
        return math.prod(shape) // length, 1, length, 1

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.layer_norm``."""
        from torch.nn import functional

        return functional.layer_norm(inputs[0], self.normalized_shape, parameters.get("weight"), parameters.get("bias"),
                                     self.eps)


@dataclass(frozen=True)
class GroupNorm(RowNorm):
    """The channels of each group normalised together, of each image by itself; (n, c), or (n, c, h, w).

    Source: Y. Wu and K. He, Group Normalization, ECCV 2018, https://arxiv.org/abs/1803.08494
    """

    num_groups: int
    num_channels: int
    eps: float = 1e-5
    affine: bool = True
    kind: ClassVar[str] = "group_norm"

    def check(self) -> None:
        """Refuse channels that the groups do not divide."""
        if self.num_channels % self.num_groups:
            raise self.refuse(f"{self.num_channels} channels in {self.num_groups} groups", "a multiple of the groups")

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return those of the factor and the shift of each channel, (c,), where there are any."""
        return dict.fromkeys(("weight", "bias") if self.affine else (), (self.num_channels,))

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the input."""
        (shape,) = shapes
        if len(shape) < 2 or shape[1] != self.num_channels:
            raise self.refuse(f"input {shape}", f"{self.num_channels} channels")
        return shape

    def _form(self, shape: Shape) -> Shape:
        return shape[0], self.num_groups, self.num_channels // self.num_groups, math.prod(shape[2:])

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``torch.nn.functional.group_norm``."""
        from torch.nn import functional

        return functional.group_norm(inputs[0], self.num_groups, parameters.get("weight"), parameters.get("bias"),
                                     self.eps)


def mean_of_rows(x: Number) -> Number:
    """Return the means of rows (samples, groups, columns, inner), as rows of one number."""
    samples, groups, columns, inner = x.shape
    return (x.sum((2, 3)) / (columns * inner)).by_terms(columns * inner).reshape((samples, groups, 1, 1))


def _of_columns(x: Number, parameter: Number) -> Number:
    """A number for each column, beside rows x."""
    return parameter.reshape((1, x.shape[1], -1, 1))
