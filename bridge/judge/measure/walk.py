# SPDX-License-Identifier: MIT
"""The oracle's walk over a step of a pair of files: every tensor is shown with its value and bound, once.

There are two ways to go. A graph whose operations may join the images of a batch is taken as a whole. A chain is taken
image by image, several at a time: what is not summed over the batch is shown and forgotten, so memory does not grow
with the batch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from bridge.common.parallel import alone
from bridge.common.threads import numpy_on_one_core, shared_cores
from bridge.exchange.model import Conv2d, Model, Relu
from bridge.judge.measure.file_pair import FilePair, Parameters
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.choices import Sums as ChosenSums
from bridge.judge.oracle.fast_convolution import wanted
from bridge.judge.oracle.graph_step import UNUSABLE, GraphStep
from bridge.judge.oracle.reductions import (
    StepSums,
    Truth,
    gradient_bound,
    local_gradient_bound,
    local_loss_bound,
    loss_bound,
)
from bridge.judge.oracle.step import step_of_image
from bridge.operations.losses import MeanSquaredError

Array = np.ndarray

#: In place of an infinite bound
VAST = 1e300


class Look(Protocol):
    """Receives every tensor of a step, from several threads at a time."""

    def __call__(self, name: str, truth: Truth, local: Truth | None, image: int | None, /) -> Array | None:
        """Take a tensor by its name under /steps/<k>; `image` says which image of it, None the whole.

        `local` is what the candidate's own tensors give. It may give back the candidate's own tensor, or `UNUSABLE`
        (`bridge.judge.oracle.graph_step`).
        The arrays are used again after the call.
        """


class LookAtSums(Protocol):
    """Receives the sums of gradients that operations send to a number that they choose."""

    def __call__(self, name: str, readers: tuple[str, ...], right: ChosenSums, /) -> None:
        """See `bridge.judge.oracle.graph_step.SumsVisitor`."""


def streams(model: Model) -> bool:
    """Return whether its steps are taken image by image."""
    return (isinstance(model.criterion, MeanSquaredError) and bool(model.convolutions) and model.graph.is_path
            and model.graph.consists_of(Conv2d, Relu))


def walk(pair: FilePair, step: int, weights: Parameters, look: Look, *, sums: LookAtSums | None = None,
         images: Sequence[int] | None = None, done: Callable[[int], None] | None = None) -> None:
    """Show every tensor of a step.

    Parameters
    ----------
    weights : float64
    look, sums : what they are shown to
    images : which images of a batch are wanted. Where it can be taken image by image, no others are computed then,
        nor what is summed over the batch; default: all
    done : called with the number of finished images
    """
    if streams(pair.model):
        _by_images(pair, step, weights, look, images, done)
        return

    def visit(name: str, truth: Bounded, local: Bounded | None, /) -> Array | None:
        return look(name, _truth(truth), None if local is None else _truth(local), None)

    def peek(name: str) -> Array | None:
        path = f"steps/{step}/{name}"
        found = pair.candidate.read(path, pair.shapes[name], None) if pair.candidate.has(path) else None
        return found if found is not None and np.isfinite(found).all() else None

    known = weights | pair.state(step) | pair.masks(step)
    one = GraphStep(pair.model.graph, pair.model.criterion, known, pair.arithmetic, visit, sums, peek)
    one.run(pair.batch(step, "input"), pair.batch(step, "target"))
    if done:
        done(pair.batch_shape[0])


def _by_images(pair: FilePair, step: int, weights: Parameters, look: Look, images: Sequence[int] | None,
               done: Callable[[int], None] | None) -> None:
    # What the first operation takes is exact: its bound is as sharp as one from the candidate's own inputs
    first = pair.model.layers[0]
    of_first = math.prod(first.weight_shape[1:]) + first.bias if isinstance(first, Conv2d) else 0

    def one(image: int) -> StepSums:
        def visit(name: str, value: Array, bound: Array, /, *local: Truth) -> Array | None:
            truth = Truth(value, bound, of_first if name == f"forward/{first.name}" else None)
            found = look(name, truth, local[0] if local else None, image)
            return None if found is UNUSABLE else found

        x, target = pair.batch(step, "input", image), pair.batch(step, "target", image)
        return step_of_image(pair.model, weights, x, target, pair.loss_scale, pair.arithmetic, visit)

    total, taken = StepSums(), range(pair.batch_shape[0]) if images is None else images
    # Large images use all cores each, and then no more than one needs to be in memory
    workers = 1 if wanted(pair.model, pair.batch_shape) else min(len(taken), os.cpu_count() or 1)
    with _shared(workers), ThreadPoolExecutor(workers) as pool:
        for count, found in enumerate(map(one, taken) if workers == 1 else pool.map(alone(one), taken), 1):
            total.add(found)
            if done:
                done(count)
    if images is not None:
        return
    elements = math.prod(pair.output_shape)
    loss, bound = loss_bound(total, pair.loss_scale, elements, pair.arithmetic)
    look("loss", Truth(np.asarray(loss), np.asarray(bound)),
         local_loss_bound(total, pair.loss_scale, elements, pair.arithmetic), None)
    for name, parts in total.gradients.items():
        look(f"grads/{name}", Truth(*gradient_bound(parts, pair.arithmetic)),
             local_gradient_bound(parts, pair.arithmetic), None)


def _shared(workers: int) -> AbstractContextManager[None]:
    """Cores for so many images at a time; numpy's own threads would be in the way of those of `parallel`."""
    return shared_cores(workers) if workers > 1 else numpy_on_one_core()


def _truth(of: Bounded) -> Truth:
    return Truth(of.value, limit(of), estimated=of.estimated, lacking=of.lacking, alone=of.alone)


def limit(truth: Bounded) -> Array:
    """Return the bound; one that has overflowed behind many operations proves nothing: anything finite is inside it.
    """
    if truth.error.size and math.isfinite(truth.error.max()):
        return truth.error
    return np.where(np.isfinite(truth.value), np.nan_to_num(truth.error, nan=VAST, posinf=VAST), truth.error)
