# SPDX-License-Identifier: MIT
"""The un-reduced tensors of one step, image by image, against the oracle."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bridge import bounds
from bridge.memory import shared_cores
from bridge.pair import Pair, Parameters
from bridge.statistic import Statistic, measure
from bridge.sums import Local, Sums

Array = np.ndarray


class ImageVisitor:
    """Compares what the oracle says of one image; parts of a batch are merged.

    Attributes
    ----------
    candidate, local, reference, twin : dict of Statistic by tensor name
        The candidate's tensors, the same against its own inputs, PyTorch's own, and PyTorch's float64 twins.
    roundings : dict of int by tensor name
        Largest number of roundings in an element of `local`.
    """

    def __init__(self, pair: Pair, step: int, image: int) -> None:
        self.pair, self.step, self.image = pair, step, image
        self.candidate: dict[str, Statistic] = {}
        self.local: dict[str, Statistic] = {}
        self.reference: dict[str, Statistic] = {}
        self.twin: dict[str, Statistic] = {}
        self.roundings: dict[str, int] = {}

    def __call__(self, name: str, value: Array, bound: Array, /, *local: Local) -> Array | None:
        path, shape = f"steps/{self.step}/{name}", self.pair.shapes[name]
        reference = self.pair.reference
        if reference_counts(self.pair, self.step) and reference.has(path):
            self._measure(self.reference, name, reference.read(path, shape, self.image), value, bound)
        if twin_counts(self.pair, self.step) and reference.has(f"oracle/{path}"):
            self._measure(self.twin, name, reference.read(f"oracle/{path}", shape, self.image), value, bound)
        if not self.pair.candidate.has(path):
            return None
        found = self.pair.candidate.read(path, shape, self.image)
        self._measure(self.candidate, name, found, value, bound)
        for one in local:
            sharp = one.n > 0 or min(one.stored, found.dtype.itemsize) >= self.pair.dtype.itemsize
            if sharp and np.isfinite(one.value).all():
                self._measure(self.local, name, found, one.value, one.bound)
                self.roundings[name] = one.n
        return found

    def _measure(self, statistics: dict[str, Statistic], name: str, found: Array, value: Array, bound: Array) -> None:
        statistics[name] = measure(found, value, bound, image=self.image)

    def merge(self, other: ImageVisitor) -> None:
        """Join the next image."""
        for mine, theirs in (
            (self.candidate, other.candidate),
            (self.local, other.local),
            (self.reference, other.reference),
            (self.twin, other.twin),
        ):
            for name, statistic in theirs.items():
                mine.setdefault(name, Statistic()).merge(statistic)
        self.roundings |= other.roundings


def reference_counts(pair: Pair, step: int) -> bool:
    """The reference's own tensors belong to these weights only at step 0, to this bound only at its precision."""
    return step == 0 and pair.reference.precision == pair.precision


def twin_counts(pair: Pair, step: int) -> bool:
    """The twins belong to the fixture's weights and images, not to ones rounded for a candidate of less precision."""
    return step == 0 and (pair.reference.precision == "float32" or pair.precision == "float64")


def visit_batch(pair: Pair, step: int, weights: Parameters, done: Callable[[int], None]) -> tuple[Sums, ImageVisitor]:
    """All images of a batch through the oracle, several at a time.

    Parameters
    ----------
    weights : float64
    done : called with the number of finished images
    """

    def one(image: int) -> tuple[Sums, ImageVisitor]:
        visitor = ImageVisitor(pair, step, image)
        x, target = pair.batch(step, "input", image), pair.batch(step, "target", image)
        sums = bounds.step_of_image(pair.model, weights, x, target, pair.loss_scale, pair.u, visitor, pair.operand)
        return sums, visitor

    total, merged = Sums(), ImageVisitor(pair, step, 0)
    images = pair.batch_shape[0]
    workers = min(images, os.cpu_count() or 1)
    with shared_cores(workers), ThreadPoolExecutor(workers) as pool:
        for image, (sums, visitor) in enumerate(pool.map(one, range(images))):
            total.add(sums)
            merged.merge(visitor)
            done(image + 1)
    return total, merged
