# SPDX-License-Identifier: MIT
"""Windows of which something else is taken."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.judge.oracle.bounded import Choice
from bridge.operations.operation import Gradients, Number
from bridge.operations.pooling import AvgPool2d, MaxPool2d

Array = np.ndarray


def max_pool(node: MaxPool2d) -> Wrong:
    """Yield other elements of windows, forward and backward."""

    def windows(x: Number, fill: float = -math.inf) -> Number:
        return x.windows(node.kernel_size, node.stride, node.padding, fill)

    def back_to(chosen: Callable[[Number], Choice]) -> Callable[..., Gradients]:
        def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
            found = chosen(windows(xs[0])).choose(dy.reshape((*dy.shape, 1, 1)), 0.0)
            return [found.folded(node.stride, node.padding, xs[0].shape)], {}
        return backward

    yield "pooling", "the smallest of each window", changed(
        node, forward=lambda xs, w: -windows(-xs[0]).max((-2, -1)), backward=back_to(lambda one: (-one).where_max()))
    if any(node.padding):
        yield "pooling", "padded with zeros", changed(node, forward=lambda xs, w: windows(xs[0], 0.0).max((-2, -1)))
    yield "pooling", "the mean of each window", AvgPool2d(
        node.name, node.kernel_size, node.stride, node.padding, inputs=node.inputs)
    for said, chosen in (("to all that are equal to the largest", largest), ("to the last of equal ones", last),
                         ("to the first element of each window", _first)):
        yield "pooling", f"the gradient goes {said}", changed(node, backward=back_to(chosen))


def avg_pool(node: AvgPool2d) -> Wrong:
    """Yield other numbers to divide by."""
    yield "pooling", "the largest of each window", MaxPool2d(
        node.name, node.kernel_size, node.stride, node.padding, inputs=node.inputs)
    if not any(node.padding):
        return

    def inside(x: Number, y: Number) -> Number:
        """y by the number of elements that are inside the image."""
        ones = x.moved(np.ones_like).windows(node.kernel_size, node.stride, node.padding, 0.0)
        share = ones.value.sum((-2, -1)) / math.prod(node.kernel_size)
        return y * y.moved(lambda a: np.broadcast_to(1 / share, a.shape))

    yield "pooling", "the mean of what is inside the image, without the padding", changed(
        node, forward=lambda xs, w: inside(xs[0], node.forward(xs, w)),
        backward=lambda dy, xs, w: node.backward(inside(xs[0], dy), xs, w))


def _chosen(true: Array) -> Choice:
    return Choice(true, np.zeros_like(true))


def largest(windows: Number) -> Choice:
    return _chosen(windows.value == windows.value.max((-2, -1), keepdims=True))


def last(windows: Number) -> Choice:
    flat = windows.value.reshape(*windows.shape[:-2], -1)
    last = np.zeros(flat.shape, bool)
    np.put_along_axis(last, flat.shape[-1] - 1 - flat[..., ::-1].argmax(-1)[..., None], True, -1)
    return _chosen(last.reshape(windows.shape))


def _first(windows: Number) -> Choice:
    first = np.zeros(windows.shape, bool)
    first[..., 0, 0] = True
    return _chosen(first)
