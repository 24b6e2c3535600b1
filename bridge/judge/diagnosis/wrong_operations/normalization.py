# SPDX-License-Identifier: MIT
"""Normalisations by means of other images, axes and groups."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import numpy as np

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.normalization import OVER, BatchNorm2d, GroupNorm, LayerNorm, as_before, as_images
from bridge.operations.operation import Gradients, Number, Operation

Array = np.ndarray


def batch_norm(node: BatchNorm2d) -> Wrong:
    """Yield gradients by means of each image, and what is kept for the backward pass in the place of a variance."""
    if not node.training:
        return
    for first, second, said in ((True, True, "both means"), (True, False, "the mean of dy"),
                                (False, True, "the mean of dy times the normalised input")):
        yield "statistics", f"the gradient takes off {said} of each image, not of the batch", changed(
            node, backward=partial(_backward_by_image, node, first, second))
    if node.track_running_stats:
        yield "statistics", "mean and inverse deviation of this batch, as they are kept for the backward pass", changed(
            node, new_state=lambda xs, w: {
                "running_mean": node.batch_statistics(as_images(xs[0]), w)["running_mean"],
                "running_var": node._normalised(as_images(xs[0]), w)[1].reshape((node.num_features,))})


def by_statistics_of(node: BatchNorm2d, images: Array) -> Operation:
    """Return a normalisation by mean and variance of other images, which are constants."""

    def statistics(x: Number) -> tuple[Number, Number]:
        others = as_images(x.exact(images))
        mean = node._mean(others, {})
        return mean, _wide(node._scale(node._variance(others - mean)))

    def forward(xs: Numbers, w: Parameters) -> Number:
        x = as_images(xs[0])
        mean, scale = statistics(x)
        factor, bias = scale * _wide(w["weight"]), _wide(w["bias"])
        found = (x - mean) * scale * _wide(w["weight"]) + bias
        return as_before(found.or_as(x * factor + (bias - mean * factor)), xs[0])

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        x, dy = as_images(xs[0]), as_images(dy)
        mean, scale = statistics(x)
        of_weight = (dy * ((x - mean) * scale)).sum(OVER)
        return [as_before(dy * (scale * _wide(w["weight"])), xs[0])], {"weight": of_weight, "bias": dy.sum(OVER)}

    return changed(node, forward=forward, backward=backward)


def _wide(channels: Number) -> Number:
    return channels.reshape((1, -1, 1, 1))


def _backward_by_image(node: BatchNorm2d, first: bool, second: bool, dy: Number, xs: Numbers, w: Parameters
                       ) -> Gradients:
    """Means of each image in the place of the batch's: of dy, of dy times the normalised input, or of both."""
    of_parameters = node.backward(dy, xs, w)[1]
    normal, scale = node._normalised(as_images(xs[0]), w)
    dy = as_images(dy)
    means = [_mean_of_images(one) if by_image else _wide(one.sum(OVER) / (one.size // node.num_features))
             for one, by_image in ((dy, first), (dy * normal, second))]
    return [as_before((dy - means[0] - normal * means[1]) * (scale * _wide(w["weight"])), xs[0])], of_parameters


def _mean_of_images(one: Number) -> Number:
    n, c, h, width = one.shape
    return (one.sum((2, 3)) / (h * width)).reshape((n, c, 1, 1))


def layer_norm(node: LayerNorm) -> Wrong:
    """Yield statistics over other axes."""
    for rank in (2, 3, 4):
        behind = range(1, rank)
        for axes in itertools.chain.from_iterable(itertools.combinations(behind, n) for n in behind):
            if axes != tuple(range(rank - len(node.normalized_shape), rank)):
                yield "statistics", f"over the axes {', '.join(map(str, axes))} of {rank}", _over(node, axes, rank)


def group_norm(node: GroupNorm) -> Wrong:
    """Yield groups of other channels."""
    if 1 < node.num_groups < node.num_channels:
        g, size = node.num_groups, node.num_channels // node.num_groups
        yield "statistics", f"channel c is in group c mod {g}, not in group c // {size}", _interleaved(node)


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
