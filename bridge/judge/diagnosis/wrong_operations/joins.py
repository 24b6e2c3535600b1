# SPDX-License-Identifier: MIT
"""Concatenations and flattened images that are wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from bridge.judge.diagnosis.faults.convolution_faults import order_detail
from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.joins import Concat, Flatten
from bridge.operations.operation import Gradients, Number

#: Inputs that are tried in every order
MOST_JOINED = 4


def orders(count: int) -> Iterator[tuple[int, ...]]:
    """Yield orders of inputs other than theirs: all of a few, else two exchanged, and all reversed.

    >>> list(orders(2)), len(list(orders(4))), len(list(orders(6)))
    ([(1, 0)], 23, 16)
    """
    right = tuple(range(count))
    if count <= MOST_JOINED:
        yield from itertools.islice(itertools.permutations(right), 1, None)
        return
    yield right[::-1]
    for i, j in itertools.combinations(right, 2):
        yield tuple({i: j, j: i}.get(k, k) for k in right)


def concat(node: Concat) -> Wrong:
    """Yield the inputs in other orders."""
    for order in orders(len(node.inputs)):
        def forward(xs: Numbers, w: Parameters, order: tuple[int, ...] = order) -> Number:
            return xs[order[0]].concatenated([xs[i] for i in order[1:]], axis=1)

        def backward(dy: Number, xs: Numbers, w: Parameters, order: tuple[int, ...] = order) -> Gradients:
            found, start = {}, 0
            for i in order:
                found[i] = dy[:, start : start + xs[i].shape[1]]
                start += xs[i].shape[1]
            return [found[i] for i in sorted(found)], {}

        yield "joined", order_detail("inputs", order), changed(node, forward=forward, backward=backward)


def flatten(node: Flatten) -> Wrong:
    """Yield elements in the order of other memory."""
    for key, axes, said in (("nhwc", (0, 2, 3, 1), "(n, h, w, c)"), ("column_major", (0, 3, 2, 1), "(n, w, h, c)")):
        def forward(xs: Numbers, w: Parameters, axes: tuple[int, ...] = axes) -> Number:
            if len(xs[0].shape) != 4:
                return node.forward(xs, w)
            return xs[0].transpose(axes).reshape(node.output_shape(xs[0].shape))

        def backward(dy: Number, xs: Numbers, w: Parameters, axes: tuple[int, ...] = axes) -> Gradients:
            if len(xs[0].shape) != 4:
                return node.backward(dy, xs, w)
            turned = dy.reshape(tuple(xs[0].shape[i] for i in axes))
            return [turned.transpose(tuple(axes.index(i) for i in range(4)))], {}

        yield key, f"flattened in the order {said}", changed(node, forward=forward, backward=backward)
