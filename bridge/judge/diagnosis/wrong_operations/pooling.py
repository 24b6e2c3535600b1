# SPDX-License-Identifier: MIT
"""Windows of which something else is taken."""

from __future__ import annotations

import math

import numpy as np

from bridge.judge.diagnosis.wrong_operations.change import Wrong, changed
from bridge.operations.operation import Number
from bridge.operations.pooling import AvgPool2d, GlobalAvgPool2d
from bridge.operations.reductions import Amax


def global_avg_pool(node: GlobalAvgPool2d) -> Wrong:
    """Yield the largest number."""
    yield "pooling", "the largest number of each channel", Amax(node.name, (2, 3), True, inputs=node.inputs)


def avg_pool(node: AvgPool2d) -> Wrong:
    """Yield another number to divide by at the border."""
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
