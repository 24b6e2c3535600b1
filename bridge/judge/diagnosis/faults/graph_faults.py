# SPDX-License-Identifier: MIT
"""Faults of graphs: operations that do something else, and gradients of branches that do not come together."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bridge.judge.diagnosis.faults.convolution_faults import part_detail, parts_of_batch
from bridge.judge.diagnosis.faults.layouts import layouts
from bridge.judge.diagnosis.predictions.formulas import Formula, Joined
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, Hypothesis, hypothesis
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.diagnosis.wrong_operations import wrong_operations
from bridge.operations.aten.operation import Aten
from bridge.operations.volumes.products import Conv3d, ConvTranspose3d

#: Parts of a sum of gradients of which two may be exchanged
MOST_EXCHANGED = 8


def formula_faults(right: Formula) -> Hypotheses:
    """Yield what an operation may do instead, and what it may take."""
    for key, detail, node in wrong_operations(right.node):
        yield hypothesis(key, detail, right.replaced(node=node))
    yield from _kernels(right)
    first = right.inputs[0].value
    if isinstance(right.gradient, str) and first.ndim > 1:
        for images in parts_of_batch(len(first)):
            yield hypothesis("part_of_batch", part_detail(images), _of_images(right, images))


def _kernels(right: Formula) -> Hypotheses:
    """Kernels of volumes whose memory is read in another order; their gradients are in that of what comes out."""
    if isinstance(right.node, Conv3d | ConvTranspose3d) and "weight" in right.factors:
        for layout in layouts(right.parameters["weight"].shape, "kcdrs", "common"):
            # That one is said by the operation, of its gradients, too
            if layout.detail != "reversed along d":
                yield Hypothesis(layout.kinds, f"kernel {layout.detail}", right.with_operand("weight", layout),
                                 layout=layout)


def sum_faults(right: Joined, alone: Callable[[Prediction], Hypotheses]) -> Hypotheses:
    """Yield gradients of which parts are missing or added twice, or one of whose parts is wrong.

    Parameters
    ----------
    alone : yields the faults of a part
    """
    for i, (part, name) in enumerate(zip(right.parts, right.through, strict=True)):
        others, names = (all_of[:i] + all_of[i + 1 :] for all_of in (right.parts, right.through))
        yield hypothesis("branch", f"the gradient through {name} is missing", right.replaced(
            parts=others, through=names))
        twice = right.replaced(parts=(*right.parts, part), through=(*right.through, name))
        yield hypothesis("branch", f"the gradient through {name} is added twice", twice)
    yield from _exchanged(right)
    for i, part in enumerate(right.parts):
        for one in alone(part):
            parts = (*right.parts[:i], one.operation, *right.parts[i + 1 :])
            yield replace(one, detail=f"through {right.through[i]}: {one.detail}",
                          operation=right.replaced(parts=parts))


def _exchanged(right: Joined) -> Hypotheses:
    """Two operations that take each other's gradient."""
    for i, j in itertools.combinations(range(len(right.parts)), 2) if len(right.parts) <= MOST_EXCHANGED else ():
        one, other = right.parts[i], right.parts[j]
        if isinstance(one, Formula) and isinstance(other, Formula) and one.dy is not None and other.dy is not None and (
                one.dy.value.shape == other.dy.value.shape):
            parts = {i: one.replaced(dy=other.dy), j: other.replaced(dy=one.dy)}
            words = f"the gradients of {right.through[i]} and {right.through[j]} are exchanged"
            yield hypothesis("branch", words, right.replaced(parts=tuple(
                parts.get(k, part) for k, part in enumerate(right.parts))))


def _of_images(right: Formula, images: tuple[int, ...]) -> Formula:
    """The same gradient of a parameter, of some images."""
    chosen = list(images)

    def part(one: Predicted) -> Predicted:
        return Predicted(one.value[chosen], None if one.error is None else one.error[chosen])

    assert right.dy is not None
    if isinstance(right.node, Aten):
        # Which is of one number of images: of all others the gradient is 0
        kept = np.isin(np.arange(len(right.dy.value)), chosen).reshape(-1, *(1,) * (right.dy.value.ndim - 1))
        alone: Formula = right.replaced(dy=Predicted(right.dy.value * kept, right.dy.error))
        return alone
    changed: Formula = right.replaced(inputs=tuple(part(one) for one in right.inputs), dy=part(right.dy))
    return changed
