# SPDX-License-Identifier: MIT
"""Losses: operations of the network's output and a target of its shape, which give one number."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bridge.common.errors import FileError
from bridge.operations.hyperparameters import Weights, check_value
from bridge.operations.operation import Number, Shape
from bridge.operations.softmax import LogSoftmax


@dataclass(frozen=True)
class Loss:
    """A mean or a sum; settings are fields of its class, torch's names.

    Attributes
    ----------
    mean : the mean, else the sum
    kind : its type in an exchange file, torch's name
    """

    mean: bool = True
    kind: ClassVar[str]

    def check(self) -> None:
        """Refuse settings that torch refuses.

        Raises
        ------
        FileError
        """

    def scale(self, shape: Shape, target: Any = None) -> float:
        """Return the factor of the sum, for an output of this shape; few losses look at the target for it."""
        return 1.0 / math.prod(shape) if self.mean else 1.0

    def shared(self, slopes: Number, shape: Shape, factor: float = 1.0) -> Number:
        """Return derivatives of what is added up, times a factor and the `scale`, as the least exact mean has it."""
        return slopes.averaged(round(1.0 / self.scale(shape)), factor)

    @property
    def reduction(self) -> str:
        """Return torch's name of it, "mean" or "sum"."""
        return "mean" if self.mean else "sum"

    @property
    def given(self) -> dict[str, Any]:
        """Return the settings that are not torch's own, by name; flags are 0 or 1."""
        found = {one.name: getattr(self, one.name) for one in settings(self) if getattr(self, one.name) != one.default}
        return {name: int(value) if isinstance(value, bool) else value for name, value in found.items()}

    @property
    def text(self) -> str:
        """Return its type and what is `given`, as `loss_from` reads it.

        >>> Huber(delta=0.5).text, CrossEntropy(weight=(1.0, 2.5), class_indices=True).text
        ('huber delta=0.5', 'cross_entropy weight=1.0,2.5 class_indices=1')
        """
        return " ".join([self.kind, *(f"{name}={_numbers(value)}" for name, value in self.given.items())])

    def forward(self, output: Number, target: Number) -> Number:
        """Return the loss."""
        raise NotImplementedError

    def backward(self, output: Number, target: Number) -> Number:
        """Return its gradient with respect to the output."""
        raise NotImplementedError

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return what PyTorch computes for it, from torch tensors."""
        raise NotImplementedError


class PairLoss(Loss):
    """A loss of each output and its target by themselves: a `value`, its `slope`, and torch's function."""

    def value(self, y: Number, t: Number) -> Number:
        """Return the losses of the elements."""
        raise NotImplementedError

    def slope(self, y: Number, t: Number) -> Number:
        """Return their derivatives with respect to y."""
        raise NotImplementedError

    def forward(self, output: Number, target: Number) -> Number:
        """Return the mean or the sum of the values."""
        return (self.value(output, target).sum(None) * self.scale(output.shape)).by_terms(output.size * self.mean)

    def backward(self, output: Number, target: Number) -> Number:
        """Return the slopes times the scale."""
        return self.shared(self.slope(output, target), output.shape)


@dataclass(frozen=True)
class MeanSquaredError(Loss):
    """``(output - target)**2``, over all elements."""

    kind: ClassVar[str] = "mse"

    def forward(self, output: Number, target: Number) -> Number:
        """Return the mean or the sum of squared differences."""
        found = (output - target).squared().sum(None) * self.scale(output.shape)
        return found.by_terms(output.size * self.mean)

    def backward(self, output: Number, target: Number) -> Number:
        """Return ``2 * (output - target)`` times the scale."""
        return self.shared(output - target, output.shape, 2.0)

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return ``torch.nn.functional.mse_loss``."""
        from torch.nn import functional

        return functional.mse_loss(output, target, reduction=self.reduction)


@dataclass(frozen=True)
class MeanAbsoluteError(PairLoss):
    """``|output - target|``, over all elements; the derivative at 0 is 0, as torch's."""

    kind: ClassVar[str] = "l1"

    def value(self, y: Number, t: Number) -> Number:
        """Return the absolute differences."""
        return _size(y - t)

    def slope(self, y: Number, t: Number) -> Number:
        """Return the sign of the difference."""
        return _sign(y - t)

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return ``torch.nn.functional.l1_loss``."""
        from torch.nn import functional

        return functional.l1_loss(output, target, reduction=self.reduction)


@dataclass(frozen=True)
class SmoothL1(PairLoss):
    """``|d|`` of differences d from `beta` on, less beta/2; ``d**2 / (2*beta)`` of smaller ones.

    Source: R. Girshick, Fast R-CNN (2015), https://arxiv.org/abs/1504.08083
    """

    beta: float = 1.0
    kind: ClassVar[str] = "smooth_l1"

    def value(self, y: Number, t: Number) -> Number:
        """Return the absolute differences, or halves of their squares."""
        d = y - t
        size = _size(d)
        if not self.beta:
            return size
        return (size > self.beta).choose(size - 0.5 * self.beta, d.squared() * 0.5 / self.beta)

    def slope(self, y: Number, t: Number) -> Number:
        """Return the difference over beta, from -1 to 1; torch's of beta = 0 at 0 is 0.

        As a Huber loss over beta it is divided by beta and multiplied again, and rounds as that does.
        """
        d = y - t
        if not self.beta:
            return _sign(d)
        beta, share = d.exact(self.beta), d / self.beta
        outside = _sign(d).or_as(_sign(d) / beta * beta)
        return (_size(d) > self.beta).choose(outside, share.or_as(_from_end(share, 1.0)))

    def backward(self, output: Number, target: Number) -> Number:
        """Return the slopes times the scale, by which torch multiplies before it divides by beta."""
        found, scale = super().backward(output, target), self.scale(output.shape)
        if not self.beta:
            return found
        d = output - target
        return found.or_as((_size(d) > self.beta).choose(_sign(d) * scale, d * scale / self.beta))

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return ``torch.nn.functional.smooth_l1_loss``."""
        from torch.nn import functional

        return functional.smooth_l1_loss(output, target, reduction=self.reduction, beta=self.beta)


@dataclass(frozen=True)
class Huber(PairLoss):
    """``d**2 / 2`` of differences d up to `delta`, ``delta*(|d| - delta/2)`` of larger ones.

    Source: P. J. Huber, Annals of Mathematical Statistics 35 (1964), https://doi.org/10.1214/aoms/1177703732
    """

    delta: float = 1.0
    kind: ClassVar[str] = "huber"

    def check(self) -> None:
        """Refuse 0."""
        if not self.delta > 0:
            raise FileError("model: loss huber has delta 0, expected a number larger than 0")

    def value(self, y: Number, t: Number) -> Number:
        """Return halves of squares, or the lines that go on from there."""
        d = y - t
        size = _size(d)
        return (size > self.delta).choose((size - 0.5 * self.delta) * self.delta, d.squared() * 0.5)

    def slope(self, y: Number, t: Number) -> Number:
        """Return the difference, from -delta to delta."""
        d = y - t
        return (_size(d) > self.delta).choose(_sign(d) * self.delta, d.or_as(_from_end(d, self.delta)))

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return ``torch.nn.functional.huber_loss``."""
        from torch.nn import functional

        return functional.huber_loss(output, target, reduction=self.reduction, delta=self.delta)


@dataclass(frozen=True)
class BinaryCrossEntropy(PairLoss):
    """``-t*log(y) - (1 - t)*log(1 - y)``, of probabilities y; a logarithm is -100 at least, as torch's.

    Where y is no probability torch raises an error; here the loss is NaN.
    """

    kind: ClassVar[str] = "bce"
    #: What torch divides by, at least: its 1e-12 is a float32
    smallest: ClassVar[float] = 9.999999960041972e-13

    def value(self, y: Number, t: Number) -> Number:
        """Return the cross entropies; log(1 - y) by whichever way is the less exact."""
        rest = (-y).log1p(-100.0).or_as((1.0 - y).log(-100.0))
        return (t - 1.0) * rest - t * y.log(-100.0)

    def slope(self, y: Number, t: Number) -> Number:
        """Return ``(y - t) / (y*(1 - y))``, whose divisor is 1e-12 at least, or the derivatives of both logarithms.

        These, ``(1 - t)/(1 - y) - t/y``, are what automatic differentiation has, TensorFlow's by reciprocals; where
        they cancel they round more.
        """
        divisor = (1.0 - y) * y
        enough = divisor > self.smallest
        found = (y - t) / enough.choose(divisor, self.smallest)
        inside = enough.choose(y, 0.5)
        return found.or_as(enough.choose((1.0 - t) * (1.0 / (1.0 - inside)) - t * (1.0 / inside), found))

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return ``torch.nn.functional.binary_cross_entropy``."""
        from torch.nn import functional

        return functional.binary_cross_entropy(output, target, reduction=self.reduction)


@dataclass(frozen=True)
class BinaryCrossEntropyWithLogits(PairLoss):
    """The binary cross entropy of ``sigmoid(y)``, without overflow; what is t counts `pos_weight` times."""

    pos_weight: float = 1.0
    kind: ClassVar[str] = "bce_with_logits"

    def value(self, y: Number, t: Number) -> Number:
        """Return ``(1 - t)*y - w*log(sigmoid(y))``, w the weight of both terms, or the same put together otherwise."""
        positive = y > 0
        less = (-positive.choose(y, -y)).exp().log1p()
        weight = self._weight(t)
        found = (1.0 - t) * y - weight * (positive.choose(0.0, y) - less)
        return found.or_as(positive.choose(y, 0.0) * weight - y * t * self.pos_weight + weight * less)

    def slope(self, y: Number, t: Number) -> Number:
        """Return ``(1 - t) - w*sigmoid(-y)``, or ``w*sigmoid(y) - pos_weight*t``."""
        weight = self._weight(t)
        found = (1.0 - t) - weight * (-y).sigmoid()
        return found.or_as(weight * y.sigmoid() - t * self.pos_weight)

    def _weight(self, t: Number) -> Number:
        return t * (self.pos_weight - 1.0) + 1.0

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return ``torch.nn.functional.binary_cross_entropy_with_logits``."""
        from torch.nn import functional

        weight = None if self.pos_weight == 1 else output.new_tensor(self.pos_weight)
        return functional.binary_cross_entropy_with_logits(output, target, reduction=self.reduction, pos_weight=weight)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """``-q * log_softmax(output)`` over the channels, q what is `wanted` of each class; targets are probabilities.

    The mean is over images and pixels, not over channels, as torch's of probabilities. With `class_indices` it is
    torch's of class indices: a target is the probability 1 of one class among zeros, or zeros where the pixel does not
    count, and the mean is over the weights of those that count.

    Attributes
    ----------
    weight : of each class; none: all 1
    ignore_index : a class whose pixels do not count; negative, torch's -100: there is none
    class_indices : see above
    label_smoothing : part of the probability that all classes share
    """

    weight: Weights = ()
    ignore_index: int = -100
    class_indices: bool = False
    label_smoothing: float = 0.0
    kind: ClassVar[str] = "cross_entropy"

    def check(self) -> None:
        """Refuse too much smoothing, and a class to ignore among probabilities."""
        if self.label_smoothing > 1:
            raise FileError(f"model: loss cross_entropy has label_smoothing {self.label_smoothing}, expected 0 to 1")
        if self.ignore_index >= 0 and not self.class_indices:
            raise FileError(f"model: loss cross_entropy has ignore_index {self.ignore_index}, expected class_indices 1 "
                            "beside it: probabilities have no class to ignore")

    def scale(self, shape: Shape, target: Any = None) -> float:
        """Return the factor of the sum over images and pixels; with `class_indices` the target decides it."""
        if not (self.mean and self.class_indices):
            return shape[1] / math.prod(shape) if self.mean else 1.0
        count = float((self._counted(target) * self._of_classes(shape)).sum())
        return 1.0 / count if count else math.nan

    def wanted(self, target: Number) -> Number:
        """Return q: the target, smoothed, of classes that are not ignored, times their weights."""
        if not (self.weight or self.class_indices or self.label_smoothing):
            return target
        found, classes = target.moved(self._counted), target.shape[1]
        if self.label_smoothing:
            share = self.label_smoothing / classes
            spread = self._given(found) * share if self.class_indices else share
            found = found * (1.0 - self.label_smoothing) + spread
        return found * self._weights(target) if self.weight else found

    def forward(self, output: Number, target: Number) -> Number:
        """Return the cross entropy of what is wanted and the output's softmax."""
        terms = self.wanted(target) * LogSoftmax("").forward([output], {})
        if self.class_indices:
            # What is no target is not looked at: its logarithm may be -infinity
            found = target.moved(self._counted)
            shared = self._given(found).broadcast(found.shape) if self.label_smoothing else found
            terms = (shared > 0).choose(terms, 0.0)
        return self._scaled(-terms.sum(None), output, target).by_terms(output.size * self.mean)

    def backward(self, output: Number, target: Number) -> Number:
        """Return ``softmax(output) * sum(q) - q`` times the scale.

        The softmax is the exponential of the rounded logarithm, as torch's: the least exact way there is.
        """
        wanted = self.wanted(target)
        shares = LogSoftmax("").forward([output], {}).exp()
        return self._scaled(shares * self._given(wanted) - wanted, output, target)

    def _scaled(self, found: Number, output: Number, target: Number) -> Number:
        """Times the scale, which a program may have to add up."""
        if not (self.mean and self.class_indices):
            return self.shared(found, output.shape)
        counted = target.moved(self._counted) * self._weights(target)
        return found / counted.sum(None)

    @staticmethod
    def _given(found: Number) -> Number:
        """The sum over the classes."""
        return found.sum((1,)).reshape((found.shape[0], 1, *found.shape[2:]))

    def _counted(self, target: Any) -> Any:
        """The array with zeros for the class that is ignored."""
        if not 0 <= self.ignore_index < target.shape[1]:
            return target
        kept = target.copy()
        kept[:, self.ignore_index] = 0
        return kept

    def _weights(self, target: Number) -> Number:
        return target.constants(self._of_classes(target.shape)).named("the weights of the classes")

    def _of_classes(self, shape: Shape) -> Any:
        """The weights along the axis of the classes, 1 where there are none.

        Raises
        ------
        FileError
            If there are weights of another number of classes.
        """
        if self.weight and len(self.weight) != shape[1]:
            raise FileError(f"loss cross_entropy: {len(self.weight)} weights, and the output has {shape[1]} channels")
        return np.array(self.weight or (1.0,) * shape[1]).reshape((-1, *(1,) * (len(shape) - 2)))

    def torch_forward(self, output: Any, target: Any) -> Any:
        """Return ``torch.nn.functional.cross_entropy`` of probabilities, or of class indices."""
        from torch.nn import functional

        if self.class_indices:
            target = target.argmax(1).where(target.sum(1) > 0, self.ignore_index)
        return functional.cross_entropy(
            output, target, weight=output.new_tensor(self.weight) if self.weight else None, reduction=self.reduction,
            ignore_index=self.ignore_index, label_smoothing=self.label_smoothing)


LOSSES: dict[str, type[Loss]] = dict(sorted(
    (one.kind, one) for one in tuple(globals().values())
    if isinstance(one, type) and issubclass(one, Loss) and "kind" in vars(one)))


def settings(loss: type[Loss] | Loss) -> list[dataclasses.Field[Any]]:
    """Return the settings of a loss: what its class declares besides the mean.

    >>> [one.name for one in settings(Huber)]
    ['delta']
    """
    return [one for one in dataclasses.fields(loss) if one.name != "mean"]


def loss_from(text: str, mean: bool = True) -> Loss:
    """Return the loss of a text: its type, and perhaps settings.

    Raises
    ------
    FileError
        If the type or a setting is unknown, or one is out of its range.

    Examples
    --------
    >>> loss_from("smooth_l1 beta=0.5")
    SmoothL1(mean=True, beta=0.5)
    >>> loss_from("huber beta=0.5")
    Traceback (most recent call last):
    bridge.common.errors.FileError: model: loss huber has the unknown attribute 'beta'
    """
    kind, *words = text.split()[:100] if isinstance(text, str) and text.split() else [text]
    if kind not in LOSSES:
        raise FileError(f"model: loss {kind!r:.80}, expected one of {', '.join(LOSSES)}")
    given: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            numbers = [float(one) for one in value.split(",")]
        except ValueError:
            raise FileError(f"model: loss {kind} has {name:.80} {value!r:.60}, expected numbers") from None
        found = tuple(int(one) if one.is_integer() else one for one in numbers)
        given[name] = found[0] if len(found) == 1 else found
    return described_loss(kind, given, mean)


def described_loss(kind: str, given: Mapping[str, Any], mean: bool) -> Loss:
    """Return a loss from its settings as files have them: flags are 0 or 1, and what is missing has its default.

    Raises
    ------
    FileError
        If one is unknown or out of its range.
    """
    found: dict[str, Any] = {}
    for field in settings(LOSSES[kind]):
        if field.name in given:
            value = given[field.name]
            is_flag = str(field.type) == "bool" and isinstance(value, int) and value in (0, 1)
            found[field.name] = check_value(f"loss {kind}", field, bool(value) if is_flag else value)
    if unknown := sorted(given.keys() - found.keys()):
        raise FileError(f"model: loss {kind} has the unknown attribute {unknown[0]!r:.80}")
    made = LOSSES[kind](mean, **found)
    made.check()
    return made


def _size(d: Number) -> Number:
    return (d > 0).choose(d, -d).named("the size of the difference")


def _from_end(d: Number, end: float) -> Number:
    """The size of d as ``((|d|/2 - end) + |d|/2) + end``, which rounds at the size of the end.

    So automatic differentiation adds it up of optax' Huber loss, ``q*q/2 + delta*(|d| - q)`` with ``q = min(|d|,
    delta)``, each q by itself or both at once. The end is one number of the candidate, whose rounding cancels.
    """
    half, end = _size(d) * 0.5, d.exact(end)
    return ((half - end) + half) + end


def _sign(d: Number) -> Number:
    """-1, 0 or 1; NaN stays what it is."""
    return (d > 0).choose(1.0, (-d > 0).choose(-1.0, d * 0.0)).named("the sign of the difference")


def _numbers(value: Any) -> str:
    """Of a setting, with commas between them."""
    return ",".join(map(repr, value)) if isinstance(value, tuple) else repr(value)
