# SPDX-License-Identifier: MIT
"""Normalisations by other means and variances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.normalization import OVER, BatchNorm2d
from bridge.operations.operation import Gradients, Number, Operation

#: Numbers that are often added to a variance
USUAL = (1e-3, 1e-5, 1e-6, 1e-8)


def batch_norm(node: BatchNorm2d) -> Wrong:
    """Yield other statistics, forward and backward."""
    yield "statistics", "variance divided by n - 1", _scaled(node, lambda s, n: 1.0 / (s / (n - 1) + node.eps).sqrt())
    yield "statistics", "eps outside the root", _scaled(node, lambda s, n: 1.0 / ((s / n).sqrt() + node.eps))
    yield "statistics", "without eps", _scaled(node, lambda s, n: 1.0 / (s / n).sqrt())
    yield "statistics", "divided by the variance, not by its root", _scaled(node, lambda s, n: 1.0 / (s / n + node.eps))
    for eps in USUAL:
        if eps != node.eps:
            yield "statistics", f"eps = {eps:g}", replace(node, eps=eps)
    for mean, variance, said in ((False, False, "mean and variance"), (False, True, "the mean"),
                                 (True, False, "the variance")):
        yield "statistics", f"the gradient takes {said} for constant", changed(
            node, backward=partial(_backward, node, mean, variance))
    for said, of in (("the input, not the normalised one", lambda x, w: x),
                     ("the output", lambda x, w: node.forward([x], w))):
        yield "statistics", f"the gradient of the weight is of {said}", changed(
            node, backward=partial(_weight_gradient, node, of))
    yield "statistics", "no weight", changed(node, forward=lambda xs, w: _normal(node, xs) + _wide(w["bias"]))
    yield "bias", "no bias", changed(node, forward=lambda xs, w: _normal(node, xs) * _wide(w["weight"]))
    yield "statistics", "mean and variance of each image by itself", changed(
        node, forward=partial(_forward_of_images, node), backward=partial(_backward_of_images, node))


def _wide(channels: Number) -> Number:
    return channels.reshape((1, -1, 1, 1))


def _normal(node: BatchNorm2d, xs: Numbers) -> Number:
    found, _ = node._normalised(xs[0])
    return found


def _scaled(node: BatchNorm2d, scale: Callable[[Number, int], Number]) -> Operation:
    """With another factor of each channel, from the sum of squared distances and the number of elements."""

    def normalised(x: Number) -> tuple[Number, Number]:
        count = x.size // node.num_features
        distance = x - _wide(x.sum(OVER) / count)
        factor = _wide(scale(distance.squared().sum(OVER), count))
        return distance * factor, factor

    return changed(node, _normalised=normalised)


def _backward(node: BatchNorm2d, mean: bool, variance: bool, dy: Number, xs: Numbers, w: Parameters) -> Gradients:
    """Through the mean, the variance, or neither."""
    normal, scale = node._normalised(xs[0])
    of_weight, of_bias = (dy * normal).sum(OVER), dy.sum(OVER)
    count = xs[0].size // node.num_features
    if mean:
        dy = dy - _wide(of_bias / count)
    if variance:
        dy = dy - normal * _wide(of_weight / count)
    return [dy * (scale * _wide(w["weight"]))], {"weight": of_weight, "bias": of_bias}


def _weight_gradient(node: BatchNorm2d, of: Callable[[Number, Parameters], Number], dy: Number, xs: Numbers,
                     w: Parameters) -> Gradients:
    inputs, parameters = node.backward(dy, xs, w)
    return inputs, parameters | {"weight": (dy * of(xs[0], w)).sum(OVER)}


def _images(one: Number) -> list[Number]:
    return [one[i : i + 1] for i in range(one.shape[0])]


def _forward_of_images(node: BatchNorm2d, xs: Numbers, w: Parameters) -> Number:
    first, *rest = [node.forward([x], w) for x in _images(xs[0])]
    return first.concatenated(rest, axis=0)


def _backward_of_images(node: BatchNorm2d, dy: Number, xs: Numbers, w: Parameters) -> Gradients:
    found = [node.backward(one, [x], w) for one, x in zip(_images(dy), _images(xs[0]), strict=True)]
    first, *rest = [inputs[0] for inputs, _ in found]
    sums = {name: sum((one[name] for _, one in found[1:]), found[0][1][name]) for name in found[0][1]}
    return [first.concatenated(rest, axis=0)], sums
