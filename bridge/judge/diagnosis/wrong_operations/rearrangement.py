# SPDX-License-Identifier: MIT
"""Numbers in another order than the right one."""

from __future__ import annotations

import itertools
from dataclasses import replace

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.operation import Gradients, Number, Operation
from bridge.operations.rearrangement import Reshape, Transpose


def transpose(node: Transpose) -> Wrong:
    """Yield other dimensions exchanged, and the shape without the order."""
    right = {axis % 4 for axis in (node.dim0, node.dim1)} if min(node.dim0, node.dim1) > 0 else set()
    for pair in itertools.combinations((1, 2, 3), 2):
        if set(pair) != right:
            yield "image_transposed", f"dimensions {pair[0]} and {pair[1]} exchanged", _in_shape(
                node, replace(node, dim0=pair[0], dim1=pair[1]))

    def forward(xs: Numbers, w: Parameters) -> Number:
        return xs[0].reshape(node.output_shape(xs[0].shape))

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        return [dy.reshape(xs[0].shape)], {}

    yield "image_transposed", "another shape, and the numbers in the same order", changed(
        node, forward=forward, backward=backward)


def reshape(node: Reshape) -> Wrong:
    """Yield the numbers of each image taken, and put, in column-major order."""

    def forward(xs: Numbers, w: Parameters) -> Number:
        return _turned(_turned(xs[0]).reshape(_backwards(node.output_shape(xs[0].shape))))

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        return [_turned(_turned(dy).reshape(_backwards(xs[0].shape)))], {}

    yield "column_major", "reshaped in column-major order", changed(node, forward=forward, backward=backward)


def _backwards(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], *shape[:0:-1])


def _turned(one: Number) -> Number:
    """All dimensions behind the batch the other way round."""
    return one.transpose(_backwards(tuple(range(len(one.shape)))))


def _in_shape(node: Transpose, other: Transpose) -> Operation:
    """Other dimensions exchanged where there are these, and the output has the right shape."""

    def fits(x: Number) -> bool:
        return len(x.shape) > max(other.dim0, other.dim1) and (
            other.output_shape(x.shape) == node.output_shape(x.shape))

    return changed(
        node, forward=lambda xs, w: (other if fits(xs[0]) else node).forward(xs, w),
        backward=lambda dy, xs, w: (other if fits(xs[0]) else node).backward(dy, xs, w))
