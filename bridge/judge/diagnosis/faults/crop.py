# SPDX-License-Identifier: MIT
"""A part of a large batch, as a step of its own: what it shows holds for the whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from bridge.common.errors import FileError
from bridge.exchange.model import Model, Shape
from bridge.judge.measure.file_pair import FilePair, Parameters, tensor_shapes
from bridge.operations.aten.operation import Aten

Array = np.ndarray

#: Pixels of a side, and images, that are enough
SIDE, IMAGES = 128, 2


class Names:
    """What a file holds, without the file."""

    def __init__(self, held: Iterable[str]) -> None:
        self._held = frozenset(held)

    def has(self, name: str) -> bool:
        """Is there a dataset of this name?"""
        return name in self._held


class Crop:
    """The upper left part of the first images of the first batches, with the face of `FilePair` that graphs use.

    All of it is in memory, so that a process of its own can work on it and reads no file.

    Attributes
    ----------
    share : part of the pixels that it holds
    whole_output_shape : shape of the network's output for the whole batch
    candidate : names of the tensors that the result holds
    optimizers : settings of the first two updates
    updates : the fixture's weights and gradients around the first two updates, in float64, by their paths; what the
        fixture lacks is left out
    """

    def __init__(self, pair: FilePair) -> None:
        n, *sample = pair.batch_shape
        # Calls of ATen are those of one shape
        whole = any(isinstance(node, Aten) for node in pair.model.layers)
        if len(sample) == 3 and not whole:
            sample = [sample[0], *_sides(pair.model, *sample)]
        self.batch_shape: Shape = (n if whole else min(n, IMAGES), *sample)
        self.shapes = tensor_shapes(pair.model, self.batch_shape)
        self.share = math.prod(self.batch_shape) / math.prod(pair.batch_shape)
        self.whole_output_shape = pair.output_shape
        self.lower, self.steps, self.frozen = pair.lower, pair.steps, pair.frozen
        self.model, self.start, self.u = pair.model, pair.start, pair.u
        self.optimizers = tuple(pair.optimizer_at(k) for k in range(min(2, pair.steps)))
        self.arithmetic = pair.arithmetic
        names = [f"steps/0/{name}" for name in self.shapes] + ["steps/1/loss"]
        names += [f"steps/{k}/weights/{name}" for k in (1, 2) for name in pair.start]
        self.candidate = Names(name for name in names if pair.candidate.has(name))
        self.updates = dict(_updates(pair))
        self._after_update = pair.parameters(pair.candidate, 1)
        self.first_state = pair.first_state
        self._masks = [{name: mask[self._part(mask.shape, self.shapes[f"forward/{name.rpartition('/')[0]}"])]
                        for name, mask in pair.masks(k).items()} for k in range(min(2, pair.steps))]
        self._images = [[{name: self._cut(pair.batch(k, name, image), name) for name in ("input", "target")}
                         for image in range(self.batch_shape[0])] for k in range(min(2, pair.steps))]

    def _cut(self, image: Array, name: str) -> Array:
        shape = self.batch_shape if name == "input" else self.output_shape
        return image[self._part(image.shape, shape[1:])].copy()

    @staticmethod
    def _part(whole: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
        """The first elements of each axis."""
        assert len(whole) == len(shape)
        return tuple(slice(n) for n in shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Return the shape of the network's output."""
        return self.shapes[f"forward/{self.model.layers[-1].name}"]

    @property
    def loss_scale(self) -> float:
        """Return the factor of the sum of squares."""
        return 1.0 / math.prod(self.output_shape) if self.model.mean else 1.0

    def batch(self, k: int, name: str, image: int) -> Array:
        """Return one image of an input or target of the first two batches, cut."""
        return self._images[k][image][name]

    def state(self, k: int) -> Parameters:
        """Return what the network keeps besides, before the first step."""
        return self.first_state

    def masks(self, k: int) -> Parameters:
        """Return the masks of the first two steps, cut."""
        return self._masks[k]

    def parameters(self, file: Names, k: int) -> Parameters | None:
        """Return all parameters of the candidate before step 1; None of other steps, and where one is missing."""
        assert file is self.candidate
        return self._after_update if k == 1 else None


def _updates(pair: FilePair) -> Iterator[tuple[str, Array]]:
    """See `Crop.updates`."""
    for k in range(min(2, pair.steps) + 1):
        for kind in ("weights", "grads"):
            for name, w in pair.start.items():
                path = f"steps/{k}/{kind}/{name}"
                if pair.reference.has(path):
                    yield path, pair.reference.read(path, w.shape).astype(np.float64)


def _sides(model: Model, c: int, h: int, w: int) -> tuple[int, int]:
    """Small sides, unless a layer needs larger ones."""
    whole = model.output_shapes((1, c, h, w))[-1]
    for side in (SIDE, 2 * SIDE, 4 * SIDE):
        size = (min(h, side), min(w, side))
        try:
            part = model.output_shapes((1, c, *size))[-1]
        except FileError:
            continue
        # Of an output that is no image no part is that of a part of the input
        if len(whole) == 4 or part == whole:
            return size
    return h, w
