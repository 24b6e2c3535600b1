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
#: Usual parts of a batch in running statistics
MOMENTA = (0.01, 0.1)


def batch_norm(node: BatchNorm2d) -> Wrong:
    """Yield other statistics, forward and backward, and other running ones."""
    if node.training:
        yield "statistics", "variance divided by n - 1", changed(node, _variance=lambda distance: _unbiased(
            node._variance(distance), distance.size // node.num_features))
    yield "statistics", "eps outside the root", changed(node, _scale=lambda v: 1.0 / (v.sqrt() + node.eps))
    yield "statistics", "without eps", changed(node, _scale=lambda v: 1.0 / v.sqrt())
    yield "statistics", "divided by the variance, not by its root", changed(
        node, _scale=lambda v: 1.0 / (v + node.eps))
    for eps in USUAL:
        if eps != node.eps:
            yield "statistics", f"eps = {eps:g}", replace(node, eps=eps)
    if node.training:
        yield from _constant_statistics(node)
    for said, of in (("the input, not the normalised one", lambda x, w: x),
                     ("the output", lambda x, w: node.forward([x], w))):
        yield "statistics", f"the gradient of the weight is of {said}", changed(
            node, backward=partial(_weight_gradient, node, of))
    yield "statistics", "no weight", changed(node, forward=lambda xs, w: _normal(node, xs, w) + _wide(w["bias"]))
    yield "bias", "no bias", changed(node, forward=lambda xs, w: _normal(node, xs, w) * _wide(w["weight"]))
    yield "statistics", "mean and variance of each image by itself", changed(
        replace(node, training=True), forward=partial(_forward_of_images, replace(node, training=True)),
        backward=partial(_backward_of_images, replace(node, training=True)))
    yield from _running(node)


def _running(node: BatchNorm2d) -> Wrong:
    """Running statistics in place of the batch's and the other way round, and other new ones."""
    if not node.training:
        yield "statistics", "mean and variance of the batch, not the running ones", replace(node, training=True)
        return
    if not node.track_running_stats:
        return
    fixed = replace(node, training=False)
    yield "statistics", "the running mean and variance, not the batch's", changed(
        node, forward=fixed.forward, backward=fixed.backward)

    def kept(formula: Callable[[Number, Number], Number], biased: bool = False) -> Operation:
        def new_state(xs: Numbers, w: Parameters) -> dict[str, Number]:
            batch = node.batch_statistics(xs[0], w)
            if biased:
                batch["running_var"] = node._variance(xs[0] - node._mean(xs[0], w))
            return {name: formula(w[name], new) for name, new in batch.items()}

        return changed(node, new_state=new_state)

    m = node.momentum
    yield "statistics", "running variance of a variance divided by n, not n - 1", kept(
        lambda old, new: old * (1 - m) + new * m, biased=True)
    yield "statistics", f"running statistics with {1 - m:g} of the batch's and {m:g} of the old ones", replace(
        node, momentum=1 - m)
    for momentum in MOMENTA:
        if momentum not in (m, 1 - m):
            yield "statistics", f"running statistics with momentum {momentum:g}", replace(node, momentum=momentum)
    yield "statistics", "running statistics as before, without this batch", kept(lambda old, new: old)
    yield "statistics", "running statistics of this batch alone", kept(lambda old, new: new)
    yield "statistics", "mean and inverse deviation of this batch, as they are kept for the backward pass", changed(
        node, new_state=lambda xs, w: {
            "running_mean": node.batch_statistics(xs[0], w)["running_mean"],
            "running_var": node._normalised(xs[0], w)[1].reshape((node.num_features,))})
    yield "statistics", "running statistics that take in the batch twice", kept(
        lambda old, new: (old * (1 - m) + new * m) * (1 - m) + new * m)
    yield "statistics", "running statistics to which the batch's part is added, without the factor 1 - momentum", kept(
        lambda old, new: old + new * m)


def _constant_statistics(node: BatchNorm2d) -> Wrong:
    for mean, variance, said in ((False, False, "mean and variance"), (False, True, "the mean"),
                                 (True, False, "the variance")):
        yield "statistics", f"the gradient takes {said} for constant", changed(
            node, backward=partial(_backward, node, mean, variance))
    for first, second, said in ((True, True, "both means"), (True, False, "the mean of dy"),
                                (False, True, "the mean of dy times the normalised input")):
        yield "statistics", f"the gradient takes off {said} of each image, not of the batch", changed(
            node, backward=partial(_backward_by_image, node, first, second))


def _unbiased(variance: Number, count: int) -> Number:
    return variance * (count / (count - 1))


def _wide(channels: Number) -> Number:
    return channels.reshape((1, -1, 1, 1))


def _normal(node: BatchNorm2d, xs: Numbers, w: Parameters) -> Number:
    found, _ = node._normalised(xs[0], w)
    return found


def _backward(node: BatchNorm2d, mean: bool, variance: bool, dy: Number, xs: Numbers, w: Parameters) -> Gradients:
    """Through the mean, the variance, or neither."""
    normal, scale = node._normalised(xs[0], w)
    of_weight, of_bias = (dy * normal).sum(OVER), dy.sum(OVER)
    count = xs[0].size // node.num_features
    if mean:
        dy = dy - _wide(of_bias / count)
    if variance:
        dy = dy - normal * _wide(of_weight / count)
    return [dy * (scale * _wide(w["weight"]))], {"weight": of_weight, "bias": of_bias}


def _backward_by_image(node: BatchNorm2d, first: bool, second: bool, dy: Number, xs: Numbers, w: Parameters
                       ) -> Gradients:
    """Means of each image in the place of the batch's: of dy, of dy times the normalised input, or of both."""
    normal, scale = node._normalised(xs[0], w)
    of_parameters = node.backward(dy, xs, w)[1]
    means = [_mean_of_images(one) if by_image else _wide(one.sum(OVER) / (one.size // node.num_features))
             for one, by_image in ((dy, first), (dy * normal, second))]
    return [(dy - means[0] - normal * means[1]) * (scale * _wide(w["weight"]))], of_parameters


def _mean_of_images(one: Number) -> Number:
    n, c, h, width = one.shape
    return (one.sum((2, 3)) / (h * width)).reshape((n, c, 1, 1))


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
