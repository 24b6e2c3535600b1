# SPDX-License-Identifier: MIT
"""Normalisations by other means and variances."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.normalization import OVER, BatchNorm2d, GroupNorm, LayerNorm, RowNorm, mean_of_rows
from bridge.operations.operation import Gradients, Number, Operation

Array = np.ndarray

#: Numbers that are often added to a variance
USUAL = (1e-3, 1e-5, 1e-6, 1e-8)
#: Usual parts of a batch in running statistics
MOMENTA = (0.01, 0.1)


def batch_norm(node: BatchNorm2d) -> Wrong:
    """Yield other statistics, forward and backward, and other running ones."""
    if node.training:
        yield "statistics", "variance divided by n - 1", changed(node, _variance=lambda distance: _unbiased(
            node._variance(distance), distance.size // node.num_features))
    yield from _scales(node)
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


def _scales(node: BatchNorm2d | RowNorm) -> Wrong:
    yield "statistics", "eps outside the root", changed(node, _scale=lambda v: 1.0 / (v.sqrt() + node.eps))
    yield "statistics", "without eps", changed(node, _scale=lambda v: 1.0 / v.sqrt())
    yield "statistics", "divided by the variance, not by its root", changed(
        node, _scale=lambda v: 1.0 / (v + node.eps))
    for eps in USUAL:
        if eps != node.eps:
            yield "statistics", f"eps = {eps:g}", changed(node, _scale=lambda v, eps=eps: 1.0 / (v + eps).sqrt())


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


def by_statistics_of(node: BatchNorm2d, images: Array) -> Operation:
    """Return a normalisation by mean and variance of other images, which are constants."""

    def statistics(x: Number) -> tuple[Number, Number]:
        others = x.exact(images)
        mean = node._mean(others, {})
        return mean, _wide(node._scale(node._variance(others - mean)))

    def forward(xs: Numbers, w: Parameters) -> Number:
        mean, scale = statistics(xs[0])
        factor, bias = scale * _wide(w["weight"]), _wide(w["bias"])
        found = (xs[0] - mean) * scale * _wide(w["weight"]) + bias
        return found.or_as(xs[0] * factor + (bias - mean * factor))

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        mean, scale = statistics(xs[0])
        of_weight = (dy * ((xs[0] - mean) * scale)).sum(OVER)
        return [dy * (scale * _wide(w["weight"]))], {"weight": of_weight, "bias": dy.sum(OVER)}

    return changed(node, forward=forward, backward=backward)


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


def layer_norm(node: LayerNorm) -> Wrong:
    """Yield statistics over other axes, and what rows may have instead."""
    for rank in (2, 3, 4):
        behind = range(1, rank)
        for axes in itertools.chain.from_iterable(itertools.combinations(behind, n) for n in behind):
            if axes != tuple(range(rank - len(node.normalized_shape), rank)):
                yield "statistics", f"over the axes {', '.join(map(str, axes))} of {rank}", _over(node, axes, rank)
    yield from _rows(node)


def group_norm(node: GroupNorm) -> Wrong:
    """Yield other groups, and what rows may have instead."""
    for number in sorted({1, node.num_groups // 2, 2 * node.num_groups, node.num_channels} - {0, node.num_groups}):
        if node.num_channels % number == 0:
            yield "statistics", f"{number} groups", replace(node, num_groups=number)
    if 1 < node.num_groups < node.num_channels:
        yield "statistics", "each group of channels that lie as many apart as there are groups", _interleaved(node)
    yield from _rows(node)


def _rows(node: RowNorm) -> Wrong:
    """Other statistics, forward and backward, of rows."""
    yield "statistics", "variance divided by n - 1", changed(node, _variance=lambda distance: _unbiased(
        node._variance(distance), distance.shape[2] * distance.shape[3]))
    yield from _scales(node)
    ways: dict[str, Callable[[Number, Number], Number]] = {
        "mean and variance": lambda dy, normal: dy,
        "the mean": lambda dy, normal: dy - normal * mean_of_rows(dy * normal),
        "the variance": lambda dy, normal: dy - mean_of_rows(dy)}
    for said, through in ways.items():
        yield "statistics", f"the gradient takes {said} for constant", changed(node, _through=through)
    if "weight" not in node.parameter_shapes():
        return
    yield "statistics", "no weight", changed(node, forward=lambda xs, w: node.forward(xs, _without(w, "weight")))
    yield "statistics", "the gradient of the input without the weight", changed(node, backward=lambda dy, xs, w: (
        node.backward(dy, xs, _without(w, "weight"))[0], node.backward(dy, xs, w)[1]))
    if "bias" in node.parameter_shapes():
        yield "bias", "no bias", changed(node, forward=lambda xs, w: node.forward(xs, _without(w, "bias")))

    def of_weight(of: Callable[[Number, Parameters], Number]) -> Operation:
        def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
            form = node._form(dy.shape)
            inputs, parameters = node.backward(dy, xs, w)
            products = dy.reshape(form) * of(xs[0], w).reshape(form)
            return inputs, parameters | {"weight": products.sum((0, 3)).reshape(w["weight"].shape)}

        return changed(node, backward=backward)

    yield "statistics", "the gradient of the weight is of the input, not the normalised one", of_weight(lambda x, w: x)
    yield "statistics", "the gradient of the weight is of the output", of_weight(lambda x, w: node.forward([x], w))


def _without(w: Parameters, name: str) -> Parameters:
    return {key: one for key, one in w.items() if key != name}


def _over(node: LayerNorm, axes: tuple[int, ...], rank: int) -> Operation:
    """Statistics over some axes of inputs of so many; of others it is the right one."""
    order = (*(i for i in range(rank) if i not in axes), *axes)
    back = tuple(order.index(i) for i in range(rank))

    def bare(x: Number) -> LayerNorm:
        return replace(node, normalized_shape=tuple(x.shape[i] for i in axes))

    def forward(xs: Numbers, w: Parameters) -> Number:
        if len(xs[0].shape) != rank:
            return node.forward(xs, w)
        y = bare(xs[0]).forward([xs[0].transpose(order)], {}).transpose(back)
        y = y * w["weight"] if "weight" in w else y
        return y + w["bias"] if "bias" in w else y

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        found = node.backward(dy, xs, w)
        if len(xs[0].shape) != rank:
            return found
        normal = forward(xs, {})
        of = {"weight": dy * normal} if "weight" in w else {}
        dy = dy * w["weight"] if "weight" in w else dy
        (dx,), _ = bare(xs[0]).backward(dy.transpose(order), [xs[0].transpose(order)], {})
        return [dx.transpose(back)], found[1] | {name: one.summed_to(w[name].shape) for name, one in of.items()}

    return changed(node, forward=forward, backward=backward)


def _interleaved(node: GroupNorm) -> Operation:
    """Channels 0, g, 2g, ... are the first group of g."""

    def turned(one: Number, axis: int, back: bool = False) -> Number:
        groups, columns = node.num_groups, node.num_channels // node.num_groups
        extents = (groups, columns) if back else (columns, groups)
        shape = (*one.shape[:axis], *extents, *one.shape[axis + 1:])
        axes = tuple({axis: axis + 1, axis + 1: axis}.get(i, i) for i in range(len(shape)))
        return one.reshape(shape).transpose(axes).reshape(one.shape)

    def forward(xs: Numbers, w: Parameters) -> Number:
        return turned(node.forward([turned(xs[0], 1)], {name: turned(one, 0) for name, one in w.items()}), 1, True)

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        (dx,), found = node.backward(turned(dy, 1), [turned(xs[0], 1)], {
            name: turned(one, 0) for name, one in w.items()})
        return [turned(dx, 1, True)], {name: turned(one, 0, True) for name, one in found.items()}

    return changed(node, forward=forward, backward=backward)
