# SPDX-License-Identifier: MIT
"""A part of the input of a convolution that is of another batch, of another image, or 0: a copy that has not arrived.

At its border windows see both parts, so that no part of the result is what other images give.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.view import Array, Seen, View
from bridge.judge.diagnosis.evidence.words import indices
from bridge.judge.diagnosis.predictions.convolutions import Filter, Forward
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.step_graph import INPUT, StepGraph

#: Numbers of an input, and images, up to which other parts are tried
MANY, IMAGES = 2**21, 8

Part = tuple[Array, Array, Array]


def input_parts(view: View, case: Case) -> Iterator[Seen]:
    """Yield what the operation gives with such an input. Of a filter gradient the part is the one that the output of
    the layer betrays.
    """
    right = case.right
    if not isinstance(right, Forward | Filter) or right.x.value.ndim != 4 or right.x.value.size > MANY:
        return
    wrong = view.wrong if isinstance(right, Forward) else _wrong_output(case, right)
    part = None if wrong is None else _part(wrong, right)
    if part is None:
        return
    x = right.x.value
    words = [indices(used, size, word) for used, size, word in
             zip(part, (x.shape[0], *x.shape[2:]), ("image", "row", "column"), strict=True) if used.size < size]
    for said, other in _others(case, right, part[0]):
        mixed = x.copy()
        at = np.ix_(part[0], np.arange(x.shape[1]), part[1], part[2])
        mixed[at] = other[at]
        if not np.array_equal(mixed, x):
            yield Seen(f"it is what the input gives, if in {', '.join(words)} it is {said}",
                       "whether the copy of the input has arrived before it is used, and is whole",
                       view.rest(right.replaced(x=Predicted(mixed)).at(view.at)))


def _wrong_output(case: Case, right: Filter) -> Array | None:
    graph, name = case.graph, f"forward/{right.layer.name}"
    own = graph.own(name) if graph.given(name) else None
    if own is None:
        return None
    truth = graph.operation(name).full(graph.arithmetic)
    wrong: Array = ~(np.abs(own - truth.value) <= (0 if truth.error is None else truth.error))
    return wrong


def _part(wrong: Array, right: Forward | Filter) -> Part | None:
    """Images, rows and columns of the input that no right window sees; None where that is nothing, or all."""
    images = np.flatnonzero(wrong.any((1, 2, 3)))
    ranges = []
    for axis in (0, 1):
        used = np.flatnonzero(wrong.any(tuple(a for a in range(4) if a != axis + 2)))
        layer, size, windows = right.layer, right.x.value.shape[axis + 2], wrong.shape[axis + 2]
        if not used.size:
            return None
        stride, padding = layer.stride[axis], layer.padding[axis]
        reach = layer.dilation[axis] * (layer.kernel_size[axis] - 1)
        low = (used[0] - 1) * stride - padding + reach + 1 if used[0] else 0
        high = (used[-1] + 1) * stride - padding if used[-1] < windows - 1 else size
        ranges.append(np.arange(max(low, 0), min(high, size)))
    part = images, ranges[0], ranges[1]
    number = images.size * part[1].size * part[2].size
    return part if 0 < number < right.x.value[:, 0].size else None


def _others(case: Case, right: Forward | Filter, images: Array) -> Iterator[tuple[str, Array]]:
    """What may stand in the place of the input, in words."""
    graph, x = case.graph, right.x.value
    name = graph.inputs(f"forward/{right.layer.name}")[0]
    if name == INPUT:
        for step, said in ((graph.step - 1, "the step before"), (graph.step + 1, "the next step")):
            if 0 <= step < graph.pair.steps:
                yield f"that of {said}", StepGraph(graph.pair, step, graph.weights).value(INPUT).value
    elif case.before is not None and (old := case.before.own(name)) is not None:
        yield "that of the step before", old
    yield "0", np.zeros_like(x)
    for j in range(len(x)) if images.size == 1 and len(x) <= IMAGES else ():
        if j != images[0]:
            yield f"that of image {j}", np.broadcast_to(x[j], x.shape)
