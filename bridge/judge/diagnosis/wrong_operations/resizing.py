# SPDX-License-Identifier: MIT
"""Images that are enlarged in another way."""

from __future__ import annotations

import numpy as np

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.operation import Gradients, Number
from bridge.operations.resizing import UpsampleNearest2d


def upsample_nearest(node: UpsampleNearest2d) -> Wrong:
    """Yield other copies, and gradients of some of them."""
    down, across = node.scale_factor
    yield "pooling", "the image repeated as a whole, not each pixel", changed(
        node, forward=lambda xs, w: xs[0].moved(lambda a: _tiled(a, down, across)))

    def first(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        n, c, h, width = xs[0].shape
        blocks = dy.reshape((n, c, h, down, width, across))
        return [blocks.moved(lambda a: a[:, :, :, 0, :, 0])], {}

    yield "pooling", "the gradient of the first copy alone", changed(node, backward=first)


def _tiled(a: np.ndarray, down: int, across: int) -> np.ndarray:
    return np.tile(a, (1, 1, down, across))
