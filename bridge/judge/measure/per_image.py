# SPDX-License-Identifier: MIT
"""The un-reduced tensors of one step, image by image, against the oracle."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import numpy as np

from bridge.common.parallel import alone
from bridge.common.threads import numpy_on_one_core, shared_cores
from bridge.judge.measure.error_statistics import Statistic, measure, measure_all
from bridge.judge.measure.file_pair import FilePair, Parameters
from bridge.judge.oracle import step as bounds
from bridge.judge.oracle.fast_convolution import wanted
from bridge.judge.oracle.reductions import Local, Sums

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

    def __init__(self, pair: FilePair, step: int, image: int) -> None:
        self.pair, self.step, self.image = pair, step, image
        self.candidate: dict[str, Statistic] = {}
        self.local: dict[str, Statistic] = {}
        self.reference: dict[str, Statistic] = {}
        self.twin: dict[str, Statistic] = {}
        self.roundings: dict[str, int] = {}

    def __call__(self, name: str, value: Array, bound: Array, /, *local: Local) -> Array | None:
        path, shape = f"steps/{self.step}/{name}", self.pair.shapes[name]
        reference, found = self.pair.reference, {}
        if reference_counts(self.pair, self.step) and reference.has(path):
            found["reference"] = reference.read(path, shape, self.image)
        if twin_counts(self.pair, self.step) and reference.has(f"oracle/{path}"):
            found["twin"] = reference.read(f"oracle/{path}", shape, self.image)
        if self.pair.candidate.has(path):
            found["candidate"] = self.pair.candidate.read(path, shape, self.image)
        for kind, statistic in zip(found, measure_all([*found.values()], value, bound, image=self.image), strict=True):
            getattr(self, kind)[name] = statistic
        if "candidate" not in found:
            return None
        self.look(name, found["candidate"], value, bound)
        for one in local:
            self._replayed(name, found["candidate"], one)
        return found["candidate"]

    def _replayed(self, name: str, found: Array, one: Local) -> None:
        """Against the candidate's own inputs, unless those give what is not finite."""
        if one.n == 0 and min(one.stored, found.dtype.itemsize) < self.pair.dtype.itemsize:
            return
        statistic = measure(found, one.value, one.bound, image=self.image)
        if statistic.nonfinite == 0 or np.isfinite(one.value).all():
            self.local[name], self.roundings[name] = statistic, one.n
            self.look(name, found, one.value, one.bound)

    def look(self, name: str, found: Array, value: Array, bound: Array) -> None:
        """For those who want the elements: called with what each statistic of the candidate was made of."""

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


def reference_counts(pair: FilePair, step: int) -> bool:
    """Return whether the reference's own tensors belong to these weights (step 0) and this bound (its precision)."""
    return step == 0 and pair.reference.precision == pair.precision


def twin_counts(pair: FilePair, step: int) -> bool:
    """Return whether the twins belong to these weights and images, which may be rounded for the candidate."""
    return step == 0 and (pair.reference.precision == "float32" or pair.precision == "float64")


def visit_batch(
    pair: FilePair, step: int, weights: Parameters, done: Callable[[int], None]
) -> tuple[Sums, ImageVisitor]:
    """Take all images of a batch through the oracle, several at a time.

    Parameters
    ----------
    weights : float64
    done : called with the number of finished images
    """

    def one(image: int) -> tuple[Sums, ImageVisitor]:
        visitor = ImageVisitor(pair, step, image)
        x, target = pair.batch(step, "input", image), pair.batch(step, "target", image)
        sums = bounds.step_of_image(pair.model, weights, x, target, pair.loss_scale, pair.arithmetic, visitor)
        return sums, visitor

    total, merged = Sums(), ImageVisitor(pair, step, 0)
    images = pair.batch_shape[0]
    # Large images use all cores each, and then no more than one needs to be in memory
    workers = 1 if wanted(pair.model, pair.batch_shape) else min(images, os.cpu_count() or 1)
    with _shared(workers), ThreadPoolExecutor(workers) as pool:
        found = map(one, range(images)) if workers == 1 else pool.map(alone(one), range(images))
        for image, (sums, visitor) in enumerate(found):
            total.add(sums)
            merged.merge(visitor)
            done(image + 1)
    return total, merged


def _shared(workers: int) -> AbstractContextManager[None]:
    """Cores for so many images at a time; numpy's own threads would be in the way of those of `parallel`."""
    return shared_cores(workers) if workers > 1 else numpy_on_one_core()
