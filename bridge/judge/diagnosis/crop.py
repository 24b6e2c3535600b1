# SPDX-License-Identifier: MIT
"""A part of a large batch, as a step of its own: what it shows holds for the whole."""

from __future__ import annotations

import math

import numpy as np

from bridge.common.errors import FileError
from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Model, Shape
from bridge.judge.measure.file_pair import Pair, Parameters, tensor_shapes

Array = np.ndarray

#: Pixels of a side, and images, that are enough
SIDE, IMAGES = 128, 2


class Excerpt:
    """The upper left part of the first images of each batch; the face of `Pair` that chains use.

    Attributes
    ----------
    share : part of the pixels that it holds
    """

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        n, c, h, w = pair.batch_shape
        self.batch_shape: Shape = (min(n, IMAGES), c, *_sides(pair.model, c, h, w))
        self.shapes = tensor_shapes(pair.model, self.batch_shape)
        self.share = math.prod(self.batch_shape) / math.prod(pair.batch_shape)
        self.candidate: ExchangeFile = pair.candidate
        self.lower = pair.lower
        self.model, self.sgd, self.start, self.u, self.operand = pair.model, pair.sgd, pair.start, pair.u, pair.operand

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the network's output."""
        return self.shapes[f"forward/{self.model.layers[-1].name}"]

    @property
    def loss_scale(self) -> float:
        """Factor of the sum of squares."""
        return 1.0 / math.prod(self.output_shape) if self.model.mean else 1.0

    def batch(self, k: int, name: str, image: int) -> Array:
        """One image of an input or target, cut."""
        *_, h, w = self.batch_shape if name == "input" else self.output_shape
        return self.pair.batch(k, name, image)[:, :h, :w]

    def parameters(self, file: ExchangeFile, k: int) -> Parameters | None:
        """As the pair's."""
        return self.pair.parameters(file, k)


def _sides(model: Model, c: int, h: int, w: int) -> tuple[int, int]:
    """Small sides, unless a layer needs larger ones."""
    for side in (SIDE, 2 * SIDE, 4 * SIDE):
        size = (min(h, side), min(w, side))
        try:
            model.output_shapes((1, c, *size))
        except FileError:
            continue
        return size
    return h, w
