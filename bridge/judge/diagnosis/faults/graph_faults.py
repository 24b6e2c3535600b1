# SPDX-License-Identifier: MIT
"""Faults of graphs: operations that do something else, and gradients of branches that do not come together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bridge.judge.diagnosis.faults.convolution_faults import part_detail, parts_of_batch
from bridge.judge.diagnosis.predictions.formulas import Formula, Joined
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, hypothesis
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.diagnosis.wrong_operations import wrong_operations
from bridge.operations.aten.operation import Aten


def formula_faults(right: Formula) -> Hypotheses:
    """Yield what an operation may do instead, and what it may take."""
    for key, detail, node in wrong_operations(right.node):
        yield hypothesis(key, detail, right.replaced(node=node))
    first = right.inputs[0].value
    if isinstance(right.gradient, str) and first.ndim > 1:
        for images in parts_of_batch(len(first)):
            yield hypothesis("part_of_batch", part_detail(images), _of_images(right, images))


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
    for i, part in enumerate(right.parts):
        for one in alone(part):
            parts = (*right.parts[:i], one.operation, *right.parts[i + 1 :])
            yield replace(one, detail=f"through {right.through[i]}: {one.detail}",
                          operation=right.replaced(parts=parts))


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
