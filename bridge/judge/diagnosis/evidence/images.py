# SPDX-License-Identifier: MIT
"""Images of a convolution's operands that are read from another place of memory, or belong to another batch."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.view import Array, Seen, View
from bridge.judge.diagnosis.evidence.words import indices
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter, Forward
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.step_graph import INPUT, StepGraph

#: Elements by which a stride is rejected, and the largest operand that is read with others
PROBES, LARGE = 200, 2**20
#: Products of a filter gradient up to which its images are told apart, and images
COSTLY, MOST_IMAGES = 2**24, 16
#: Distance over norm up to which probes agree, and distance of a weight from 0 or 1
SAME, NEAR = 1e-3, 0.05


def image_strides(view: View, case: Case) -> Iterator[Seen]:
    """Yield results forward, or of the data gradient, of an operand whose images lie closer together than they do."""
    right = case.right
    if not isinstance(right, Forward | Data) or view.axes[0] != "image":
        return
    operand, said = ("x", "the input") if isinstance(right, Forward) else ("dz", "dz")
    x = getattr(right, operand).value
    n, size = len(x), x[0].size
    if n < 2 or x.size > LARGE:
        return
    few = np.flatnonzero(view.place[0] > 0)
    few = np.sort(np.random.default_rng(3).choice(few, min(PROBES, few.size), replace=False))
    if few.size < PROBES // 4:
        return
    for stride in sorted(_strides(x.shape, view.right.shape, size)):
        inside = np.arange(n) * stride + size <= x.size
        moved = np.zeros_like(x)
        for i in np.flatnonzero(inside):
            moved[i] = x.reshape(-1)[i * stride : i * stride + size].reshape(x[0].shape)
        changed = right.replaced(**{operand: Predicted(moved)})
        probes = few[inside[view.place[0][few]]]
        if probes.size < PROBES // 4 or not _near(view.f[probes], changed.at(view.at[probes])):
            continue
        predicted = np.where(inside[view.place[0]], changed.at(view.at), view.f)
        beyond = "" if inside.all() else "; beyond the end of memory it is something else"
        yield Seen(f"it is what {said} gives, if its images are {stride} numbers apart in memory, not {size}{beyond}",
                   f"the offset of an image of {said}: a product of its dimensions", view.rest(predicted), 1)


def _strides(shape: tuple[int, ...], result: tuple[int, ...], size: int) -> set[int]:
    """Products of the dimensions of an operand and of the result that are smaller or larger than an image."""
    pixels = math.prod(shape[2:]), math.prod(result[2:])
    channels = 1, shape[1], result[1]
    every = {plane * channel for plane in pixels for channel in channels}
    # Whole planes more or less
    every |= {channel * pixels[0] for channel in range(max(1, shape[1] - 2), shape[1] + 3)}
    return {one for one in every if one != size and 4 * one >= size // max(channels)}


def _near(found: Array, other: Array) -> bool:
    return float(np.linalg.norm(found - other)) <= SAME * float(np.linalg.norm(found))


def of_other_batches(view: View, case: Case) -> Iterator[Seen]:
    """Yield filter gradients of the first layer in which some images are those of the next batch, or the one before."""
    right, graph = case.right, case.graph
    if not isinstance(right, Filter) or INPUT not in graph.inputs(case.name) or right.products > COSTLY:
        return
    n = len(right.x.value)
    if right.images is not None or not 1 < n <= MOST_IMAGES:
        return
    own = _images(right, view)
    for by, batch in ((1, "next"), (-1, "previous")):
        if not 0 <= graph.step + by < graph.pair.steps:
            continue
        x = StepGraph(graph.pair, graph.step + by, graph.pair.start).value(INPUT)
        columns = np.concatenate([own, _images(right.replaced(x=x), view)], 1)
        weights, _ = view.solve(columns)
        whole = np.rint(weights)
        there = np.flatnonzero(whole[n:])
        if (np.abs(weights - whole) > NEAR).any() or (whole[:n] + whole[n:] != 1).any() or not there.size:
            continue
        yield Seen(f"it is the sum in which {indices(there, n, 'image')} of the input are those of the {batch} batch",
                   "when the buffer of the input is filled again: before its last reader is done",
                   view.rest(columns @ whole, 2 * n), 2 * n)


def _images(right: Filter, view: View) -> Array:
    """What each image gives, (element, image)."""
    return np.stack([right.replaced(images=(i,)).at(view.at) for i in range(len(right.x.value))], 1)
