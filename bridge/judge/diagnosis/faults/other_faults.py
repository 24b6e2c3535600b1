# SPDX-License-Identifier: MIT
"""Faults of sums, ReLUs and the loss."""

from __future__ import annotations

import itertools

import numpy as np

from bridge.judge.diagnosis.faults.convolution_faults import (
    SHIFTS,
    moved_detail,
    order_detail,
    part_detail,
    parts_of_batch,
)
from bridge.judge.diagnosis.faults.layouts import layouts
from bridge.judge.diagnosis.faults.output_faults import axis_names, matching
from bridge.judge.diagnosis.faults.padding import window
from bridge.judge.diagnosis.faults.value_faults import Kept
from bridge.judge.diagnosis.predictions.elementwise import (
    BiasGradient,
    LossGradient,
    Rectified,
    ReluBackward,
    SquaredError,
)
from bridge.judge.diagnosis.predictions.formulas import Criterion
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, Hypothesis, hypothesis
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.wrong_operations.losses import wrong_losses
from bridge.operations.losses import CrossEntropy

Array = np.ndarray

#: Images whose targets are tried in every order
FEW = 3


def bias_gradient_faults(db: BiasGradient) -> Hypotheses:
    """Yield what a sum over images and pixels may do instead."""
    for images in parts_of_batch(db.dz.value.shape[0]):
        yield hypothesis("part_of_batch", part_detail(images), db.replaced(images=images))
    everything = slice(None)
    for what, part in (
        ("without the last row", (slice(-1), everything)),
        ("without the first row", (slice(1, None), everything)),
        ("without the last column", (everything, slice(-1))),
        ("without the first column", (everything, slice(1, None))),
        ("without the border", (slice(1, -1), slice(1, -1))),
    ):
        yield hypothesis("part_of_batch", what, db.replaced(part=part))
    yield hypothesis("naive_sum", "a sequential float32 sum", db.replaced(sequential=True))


def relu_faults(a: Rectified, found: Array) -> Hypotheses:
    """Yield what a ReLU may do instead."""
    yield hypothesis("relu", "no ReLU", a.replaced(slope=1.0))
    yield hypothesis("relu", "absolute value", a.replaced(slope=-1.0))
    for slope in _slopes(found, a.z.value, a.z.value < 0):
        yield hypothesis("leaky", f"slope {slope:.4g} for negative values", a.replaced(slope=slope))


def relu_backward_faults(dz: ReluBackward, found: Array, graph: StepGraph, name: str) -> Hypotheses:
    """Yield what the backward pass of a ReLU may do instead."""
    yield hypothesis("mask_missing", "all gradients pass", dz.replaced(rule="all"))
    yield hypothesis("mask_other", "the mask of the gradient itself (da > 0)", dz.replaced(source=dz.da))
    yield hypothesis("mask_other", "the mask inverted", dz.replaced(rule="negative"))
    yield hypothesis(
        "mask_other", "elements that are exactly 0 pass (>= in place of >)", dz.replaced(rule="nonnegative")
    )
    right = graph.inputs(name)[1]
    for other, shape in graph.pair.shapes.items():
        # The output of this ReLU has the same signs as its input
        same = other == right or right in graph.inputs(other)
        if other.startswith("forward/") and shape == dz.shape and not same:
            yield hypothesis("mask_other", f"the mask of {other}", dz.replaced(source=graph.value(other)))
    if dz.source.value.ndim == 4:
        for layout in layouts(dz.shape, "nchw", "common"):
            said = f"the mask: {layout.detail}"
            yield Hypothesis(layout.kinds, said, dz.replaced(source=Predicted(layout(dz.source.value))), layout=layout)
    for slope in _slopes(found, dz.da.value, dz.source.value < 0):
        yield hypothesis("leaky", f"slope {slope:.4g} where the mask is 0", dz.replaced(slope=slope))


def loss_faults(loss: SquaredError) -> Hypotheses:
    """Yield what the loss may be instead; factors are tried on what comes out."""
    for images in parts_of_batch(loss.y.value.shape[0]):
        yield hypothesis("part_of_batch", part_detail(images), loss.replaced(images=images))
    yield from sequential_losses(loss)
    yield from other_targets(loss)


def sequential_losses(loss: SquaredError) -> Hypotheses:
    """Yield the loss as its terms one after the other give it."""
    yield hypothesis("naive_sum", "a sequential float32 sum", loss.replaced(sequential="plain"))
    yield hypothesis("naive_sum", "a sequential float32 sum of scaled terms", loss.replaced(sequential="scaled"))


def loss_gradient_faults(dy: LossGradient, found: Array) -> Hypotheses:
    """Yield what the gradient of the loss may be instead; factors are tried on what comes out."""
    yield from other_targets(dy)
    yield from _frames(dy)
    # Of many images each target is found by its likeness
    implied = dy.y.value - found.reshape(dy.shape) / (2 * dy.scale)
    if len(implied) > FEW and (order := matching(dy.target, implied, 0)) is not None:
        yield _ordered(dy, tuple(order))


def _frames(dy: LossGradient) -> Hypotheses:
    """A border that the loss leaves out: of the sum, or of the mean, too."""
    for width in (1, 2, 3, 4) if len(dy.shape) == 4 and min(dy.shape[2:]) > 8 else ():
        inside = np.zeros(dy.shape, bool)
        inside[..., width:-width, width:-width] = True
        said = f"a border of {width} does not count in the loss"
        yield hypothesis("padding_width", said, Kept(dy.shape, dy, inside.reshape(-1)))
        mean = f"{said}, and the mean is over the rest"
        yield hypothesis("padding_width", mean, Kept(dy.shape, dy, inside.reshape(-1), inside.size / inside.sum()))


def other_targets(right: SquaredError | LossGradient | Criterion) -> Hypotheses:
    """Yield targets of other images, moved, mirrored or transposed."""
    n, shape = len(right.target), right.target.shape
    orders = itertools.permutations(range(n)) if n <= FEW else [
        tuple(reversed(range(n))), *(tuple((i + off) % n for i in range(n)) for off in (-1, 1))]
    for order in orders:
        if order != tuple(range(n)):
            yield _ordered(right, order)
    for layout in layouts(shape, axis_names(shape, "target"), "common"):
        if 0 not in layout.flips:
            said = f"the target: {layout.detail}"
            yield Hypothesis(layout.kinds, said, right.replaced(target=layout(right.target)), layout=layout)
    for shift in SHIFTS if len(shape) == 4 else ():
        moved = right.replaced(target=window(right.target, (-shift[0], -shift[1]), shape[2:], "replicate"))
        rolled = right.replaced(target=np.roll(right.target, shift, (2, 3)))
        yield hypothesis("padding_width", f"the target {moved_detail(shift)}, its border repeated", moved)
        yield hypothesis("padding_width", f"the target {moved_detail(shift)}, around the border", rolled)


def criterion_faults(right: Criterion) -> Hypotheses:
    """Yield what a loss that is no mean squared error, or its gradient, may be instead, and take for its targets."""
    for said, loss in wrong_losses(right.loss):
        yield hypothesis("activation", said, right.replaced(loss=loss))
    yield from other_targets(right)
    if isinstance(right.loss, CrossEntropy):
        for by, said in ((1, "the next class"), (-1, "the class before")):
            yield hypothesis("other_target", f"{said} for each, around the end: classes counted from 0 and from 1",
                             right.replaced(target=np.roll(right.target, by, 1)))


def _ordered(right: SquaredError | LossGradient | Criterion, order: tuple[int, ...]) -> Hypothesis:
    other = right.replaced(target=right.target[list(order)])
    return hypothesis("other_target", f"targets of {order_detail('images', order)}", other)


def previous_mask(dz: ReluBackward, before: Array) -> Hypotheses:
    """Yield the mask of the step before."""
    yield hypothesis("mask_other", "the mask of the previous batch", dz.replaced(source=Predicted(before)))


def _slopes(found: Array, value: Array, chosen: Array) -> list[float]:
    """The slope that fits best where a ReLU is off, else those that are often used."""
    x, y = value[chosen], found.reshape(value.shape)[chosen]
    square = float(np.vdot(x, x))
    slope = float(np.vdot(x, y)) / square if square > 0 else 0.0
    if not np.isfinite(slope) or abs(slope) < 1e-6 or abs(slope) == 1.0:
        return [0.01, 0.1, 0.2]
    for digits in (1, 2, 3):
        # What somebody may have written
        rounded = float(f"{slope:.{digits}g}")
        if abs(rounded - slope) <= 1e-4 * abs(slope):
            return [rounded]
    return [slope]
