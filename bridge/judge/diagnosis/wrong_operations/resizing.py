# SPDX-License-Identifier: MIT
"""Images that are enlarged or padded in another way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bridge.judge.diagnosis.wrong_operations.change import Wrong, changed
from bridge.operations.operation import Operation
from bridge.operations.resizing import (
    AdaptiveAvgPool2d,
    UpsampleBilinear2d,
    UpsampleNearest2d,
    ZeroPad2d,
    _Padding,
    window_means,
)

Array = np.ndarray


def upsample(node: UpsampleNearest2d | UpsampleBilinear2d) -> Wrong:
    """Yield other copies, other places, and gradients of some of them."""
    scale = node.scale_factor
    if isinstance(node, UpsampleBilinear2d):
        yield "pooling", "the pixels' centres left out: place = i / scale, not (i + 1/2) / scale - 1/2", _with(
            node, lambda length, axis: _between(np.arange(length * scale[axis]) / scale[axis], length))
        return
    yield "pooling", "the image repeated as a whole, not each pixel", _with(
        node, lambda length, axis: np.tile(np.eye(length), (scale[axis], 1)))
    for said, rounded in (("to the nearest whole number, halves up", lambda place: np.floor(place + 0.5)),
                          ("to the nearest whole number, halves to even", np.rint), ("up", np.ceil)):
        yield "pooling", f"the place i / scale is rounded {said}, not down", _with(
            node, lambda length, axis, rounded=rounded: np.eye(length)[np.minimum(
                rounded(np.arange(length * scale[axis]) / scale[axis]), length - 1).astype(int)])

    def first(length: int, axis: int) -> Array:
        weights = node.weights(length, axis)
        weights[np.arange(len(weights)) % scale[axis] > 0] = 0
        return weights

    yield "pooling", "the gradient of the first copy alone", changed(node, backward=_with(node, first).backward)


def adaptive(node: AdaptiveAvgPool2d) -> Wrong:
    """Yield other windows, sums, and copies."""

    def windows(begin: Callable[[Array, int, int], Array], end: Callable[[Array, int, int], Array]) -> Operation:
        def weights(length: int, axis: int) -> Array:
            i, size = np.arange(node.output_size[axis]), node.output_size[axis]
            return window_means(length, begin(i, length, size), end(i, length, size))

        return _with(node, weights)

    def floor(i: Array, length: int, size: int) -> Array:
        return i * length // size

    def ceiling(i: Array, length: int, size: int) -> Array:
        return -(-i * length // size)

    yield "pooling", "windows that end before floor((i + 1)*L/n), not the ceiling", windows(
        floor, lambda i, length, size: np.maximum(floor(i + 1, length, size), floor(i, length, size) + 1))
    yield "pooling", "windows that begin at ceil(i*L/n), not the floor", windows(
        lambda i, length, size: np.minimum(ceiling(i, length, size), length - 1),
        lambda i, length, size: ceiling(i + 1, length, size))
    yield "pooling", "windows of the size and at the distance floor(L/n)", windows(
        lambda i, length, size: i * max(length // size, 1) % length,
        lambda i, length, size: i * max(length // size, 1) % length + max(length // size, 1))
    yield "pooling", "windows of one size at the distance floor(L/n), the last to the end", windows(
        lambda i, length, size: i * (length // size),
        lambda i, length, size: i * (length // size) + length - (size - 1) * (length // size))
    yield "pooling", "the sum of each window, not the mean", _with(
        node, lambda length, axis: (node.weights(length, axis) > 0) * 1.0)
    yield "pooling", "the first pixel of each window", windows(
        floor, lambda i, length, size: floor(i, length, size) + 1)


def padding(node: _Padding) -> Wrong:
    """Yield what else may stand around an image, and gradients that do not come back from there."""
    for padding_mode, said in (("symmetric", "mirrored with the outermost pixels repeated"),
                               ("wrap", "the pixels of the opposite side")):
        yield "padding_mode", said, _with(node, lambda length, axis, mode=padding_mode: np.pad(
            np.eye(length), (node._sides(axis), (0, 0)), mode=mode))
    if not isinstance(node, ZeroPad2d):
        bare = ZeroPad2d(node.name, node.padding, inputs=node.inputs)
        yield "padding_mode", "the gradient does not come back from the border", changed(node, backward=bare.backward)


def _with(node: Operation, weights: Callable[..., Array]) -> Operation:
    """With other weights (out, in) of an axis, forward and backward."""
    return changed(node, _weights=lambda x, length, axis: x.exact(weights(length, axis)))


def _between(places: Array, length: int) -> Array:
    """Weights of linear interpolation at these places."""
    distance = np.abs(np.clip(places, 0, length - 1)[:, None] - np.arange(length))
    return np.maximum(1 - distance, 0.0)
