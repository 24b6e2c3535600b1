# SPDX-License-Identifier: MIT
"""What losses may be instead: other losses, settings left out, logarithms and divisors without their limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from bridge.operations.losses import (
    BinaryCrossEntropy,
    BinaryCrossEntropyWithLogits,
    CrossEntropy,
    Huber,
    Loss,
    MeanAbsoluteError,
    MeanSquaredError,
    PairLoss,
    SmoothL1,
)
from bridge.operations.operation import Number
from bridge.operations.softmax import Softmax

#: What exactly, and the loss that has it
WrongLosses = Iterator[tuple[str, Loss]]


def changed(loss: Loss, **methods: Callable[..., Any]) -> Loss:
    """Return the loss with other methods, `value(y, t)` and `slope(y, t)` of a loss of pairs."""
    made = type(type(loss).__name__, (type(loss),), {
        name: lambda self, *given, method=method: method(*given) for name, method in methods.items()})
    found: Loss = made(**{one.name: getattr(loss, one.name) for one in fields(loss)})
    return found


def wrong_losses(right: Loss) -> WrongLosses:
    """Yield what a loss, or its gradient, may be instead."""
    if isinstance(right, PairLoss):
        for other in (MeanAbsoluteError(right.mean), MeanSquaredError(right.mean)):
            if type(other) is not type(right):
                yield f"{other.kind} in its place", other
    if isinstance(right, SmoothL1):
        yield from _smooth_l1(right)
    elif isinstance(right, Huber):
        yield from _huber(right)
    elif isinstance(right, BinaryCrossEntropy):
        yield from _bce(right)
    elif isinstance(right, BinaryCrossEntropyWithLogits):
        yield from _logits(right)
    elif isinstance(right, CrossEntropy):
        yield from _cross_entropy(right)


def _smooth_l1(right: SmoothL1) -> WrongLosses:
    beta = right.beta
    if beta not in (0.0, 1.0):
        yield "beta is 1, torch's own", replace(right, beta=1.0)
        yield "the Huber loss with delta = beta, which is beta times as large", Huber(right.mean, beta)
        yield "beta in the place of 1/beta", changed(
            right, value=lambda y, t: _by_size(y - t, beta, lambda d: d.squared() * (0.5 * beta), 0.5 * beta),
            slope=lambda y, t: _limited(y - t, beta, beta))
    yield "0.5*beta is not subtracted", changed(
        right, value=lambda y, t: right.value(y, t) + ((_size(y - t) > beta).choose(0.5 * beta, (y - t) * 0.0)))


def _huber(right: Huber) -> WrongLosses:
    if right.delta != 1.0:
        yield "delta is 1, torch's own", replace(right, delta=1.0)
        yield "the smooth L1 loss with beta = delta, of which it is delta times", SmoothL1(right.mean, right.delta)


def _bce(right: BinaryCrossEntropy) -> WrongLosses:
    def value(y: Number, t: Number) -> Number:
        return (t - 1.0) * (1.0 - y).log() - t * y.log()

    yield "logarithms that are not limited to -100", changed(right, value=value)
    yield "a divisor y*(1 - y) that is not limited to 1e-12", changed(
        right, slope=lambda y, t: (y - t) / ((1.0 - y) * y))
    for eps in (1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3):
        yield f"log(y + {eps:g}) in the place of log(y)", changed(
            right, value=lambda y, t, eps=eps: (t - 1.0) * (1.0 - y + eps).log() - t * (y + eps).log(),
            slope=lambda y, t, eps=eps: (1.0 - t) / (1.0 - y + eps) - t / (y + eps))
    yield "the outputs are taken for logits, whose sigmoid is taken once more", BinaryCrossEntropyWithLogits(right.mean)
    yield "the part of the target 1 alone, -t*log(y)", changed(
        right, value=lambda y, t: -(t * y.log(-100.0)), slope=lambda y, t: -t / y)
    yield "the derivative y - t, which is that of logits", changed(right, slope=lambda y, t: y - t)


def _logits(right: BinaryCrossEntropyWithLogits) -> WrongLosses:
    if right.pos_weight != 1.0:
        yield "pos_weight is left out", replace(right, pos_weight=1.0)
        yield "pos_weight is of the target 0, too", changed(
            right, value=lambda y, t: _plain(right).value(y, t) * right.pos_weight,
            slope=lambda y, t: _plain(right).slope(y, t) * right.pos_weight)
    of_probabilities = BinaryCrossEntropy(right.mean)
    yield "logits are taken through the sigmoid twice", changed(
        right, value=lambda y, t: right.value(y.sigmoid(), t),
        slope=lambda y, t: right.slope(y.sigmoid(), t) * (y.sigmoid() * (1.0 - y.sigmoid())))
    yield "outputs are taken for probabilities", of_probabilities
    yield "the derivative is that of probabilities", changed(
        right, slope=lambda y, t: of_probabilities.slope(y.sigmoid(), t))


def _plain(right: BinaryCrossEntropyWithLogits) -> BinaryCrossEntropyWithLogits:
    return replace(right, pos_weight=1.0)


def _cross_entropy(right: CrossEntropy) -> WrongLosses:
    if right.weight:
        yield "weights of the classes are left out", replace(right, weight=())
    if right.ignore_index >= 0:
        yield "ignore_index is left out", replace(right, ignore_index=-100)
    if right.label_smoothing:
        yield "label_smoothing is left out", replace(right, label_smoothing=0.0)
    given = {one.name: getattr(right, one.name) for one in fields(right)}
    if right.class_indices and right.mean:
        yield "a mean over all pixels, not over the weights of those that count", _MeanOfAll(**given)
        if right.weight:
            yield "a mean over the pixels that count, not over their weights", _MeanOfCounted(**given)
    yield "outputs are taken through the softmax twice", _Twice(**given)


class _MeanOfAll(CrossEntropy):
    """A mean over all images and pixels, ignored ones too."""

    def _scaled(self, found: Number, output: Number, target: Number) -> Number:
        return found * (output.shape[1] / output.size)


class _MeanOfCounted(CrossEntropy):
    """A mean over the images and pixels that are not ignored."""

    def _scaled(self, found: Number, output: Number, target: Number) -> Number:
        return found / target.moved(self._counted).sum(None)


class _Twice(CrossEntropy):
    """Of the probabilities, as if they were logits."""

    def forward(self, output: Number, target: Number) -> Number:
        return CrossEntropy.forward(self, Softmax("").forward([output], {}), target)

    def backward(self, output: Number, target: Number) -> Number:
        softmax = Softmax("")
        dy = CrossEntropy.backward(self, softmax.forward([output], {}), target)
        (found,), _ = softmax.backward(dy, [output], {})
        return found


def _size(d: Number) -> Number:
    return (d > 0).choose(d, -d)


def _by_size(d: Number, most: float, inside: Callable[[Number], Number], less: float) -> Number:
    size = _size(d)
    return (size > most).choose(size - less, inside(d))


def _limited(d: Number, most: float, slope: float) -> Number:
    sign = (d > 0).choose(1.0, (-d > 0).choose(-1.0, d * 0.0))
    return (_size(d) > most).choose(sign, d * slope)
