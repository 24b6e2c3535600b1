# SPDX-License-Identifier: MIT
"""Gradients of functions of single elements: of an activation by its input or output, of a loss by the difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.view import Array, Seen, View
from bridge.judge.diagnosis.evidence.words import factor
from bridge.judge.diagnosis.predictions.elementwise import LossGradient, ReluBackward
from bridge.judge.diagnosis.predictions.formulas import Criterion, Formula
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.operations.losses import Huber, MeanAbsoluteError, SmoothL1

#: Elements by which a function is told from chance, and numbers that it counts as
ENOUGH, FUNCTION = 200, 8
#: Largest weight of a neighbour in an interpolation, and distance of neighbours (in medians) up to which there is one
MOST, FAR = 4.0, 5.0
#: Share of the largest derivative between which a number of a loss is read off
BETWEEN = (0.05, 0.95)


def derivatives(view: View, case: Case) -> Iterator[Seen]:
    """Yield activations whose gradient is dy times another function of the input or of the output."""
    right = case.right
    if isinstance(right, ReluBackward):
        dy, z = (x.value.reshape(-1)[view.at] for x in (right.da, right.source))
        y = np.maximum(z, 0)
    elif (isinstance(right, Formula) and right.dy is not None and right.gradient == 0 and len(right.inputs) == 1
          and right.node.sample_rank == 0 and not right.node.has_mask):
        dy, z = (x.value.reshape(-1)[view.at] for x in (right.dy, right.inputs[0]))
        y = right.replaced(shape=z.shape, inputs=(Predicted(z),), dy=None, gradient=None).values()
    else:
        return
    look = "the derivative in the backward pass: of which tensor it is a function, and which one"
    for name, of, u in (("z", "the input", z), ("y", "the output", y)):
        for said, function in FUNCTIONS.items():
            predicted = dy * function(u)
            if np.isfinite(predicted).all():
                yield Seen(f"it is dy times {said.replace('u', name)}, {name} {of}", look, view.rest(predicted), 1)
    shown = np.flatnonzero((dy != 0) & (np.abs(dy) > 1e-6 * np.abs(dy).max()))
    if np.unique(z[shown]).size >= ENOUGH:
        order = shown[np.argsort(z[shown], kind="stable")]
        apart = z[order[4:]] - z[order[:-4]]
        # Where neighbours are far apart they say little of each other
        dense = apart <= FAR * np.median(apart)
        if np.mean(dense) < 0.75:
            return
        predicted = view.f.copy()
        predicted[order[2:-2][dense]] = (dy[order[2:-2]] * _between(z[order], view.f[order] / dy[order]))[dense]
        yield Seen("it is dy times another function of the input z, element by element", look, view.rest(predicted),
                   FUNCTION)


def _between(x: Array, y: Array) -> Array:
    """Each of y but the outer two as its four neighbours have it (Lagrange's polynomial); x is sorted."""
    near = [slice(0, -4), slice(1, -3), slice(3, -1), slice(4, None)]
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.stack([np.prod([(x[2:-2] - x[b]) / (x[a] - x[b]) for b in near if b is not a], 0) for a in near])
        share = (x[2:-2] - x[1:-3]) / (x[3:-1] - x[1:-3])
    # Of neighbours that are too near to each other two will do
    straight = np.stack([0 * share, 1 - share, share, 0 * share])
    straight[:, ~np.isfinite(share)] = np.array([[0.0], [0.5], [0.5], [0.0]])
    weights = np.where(np.abs(weights).max(0) <= MOST, weights, straight)
    return np.asarray(sum(weight * y[a] for weight, a in zip(weights, near, strict=True)))


#: Factors of dy by name, each as a function of u
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "u": lambda u: u,
    "u*(1 - u)": lambda u: u * (1 - u),
    "(1 - u)": lambda u: 1 - u,
    "(1 + u)": lambda u: 1 + u,
    "(1 - u**2)": lambda u: 1 - u * u,
    "(1 - u)**2": lambda u: (1 - u) ** 2,
    "u**2": lambda u: u * u,
    "u*(1 + u)": lambda u: u * (1 + u),
    "exp(-u)": lambda u: np.exp(-u),
    "1/(1 + u**2)": lambda u: 1 / (1 + u * u),
    "1/(1 + exp(-u))": lambda u: 1 / (1 + np.exp(-u)),
    "s*(1 - s), s = 1/(1 + exp(-u))": lambda u: np.exp(-np.abs(u)) / (1 + np.exp(-np.abs(u))) ** 2,
    "tanh(u)": np.tanh,
    "(1 - tanh(u)**2)": lambda u: 1 - np.tanh(u) ** 2,
}


def residuals(view: View, case: Case) -> Iterator[Seen]:
    """Yield gradients of other losses, as functions of the difference d = y - t; each has one number."""
    right = case.right
    if isinstance(right, LossGradient) or (isinstance(right, Criterion) and is_of_difference(right)):
        scale = right.scale
    else:
        return
    d = (right.y.value - right.target).reshape(-1)[view.at]
    look = "which loss it is, its derivative and the number in it"
    for times in (1.0, 2.0, 0.5):
        q = view.f / (times * scale)
        steep = view.fitted & (np.abs(q) > BETWEEN[0]) & (np.abs(q) < BETWEEN[1]) & (q * d > 0)
        by = "" if times == 1 else f"{factor(times)} times "
        if np.count_nonzero(steep) >= FUNCTION:
            for said, number, function in FORMS:
                value = float(np.median(number(d[steep], q[steep])))
                if value > 0:
                    loss = said.format(factor(value, 2e-4))
                    yield Seen(f"it is {by}the derivative of {loss}, d the difference y - t", look,
                               view.rest(times * scale * function(d, value), 1), 1)
        most = float(np.abs(q).max())
        if np.count_nonzero(np.abs(q) >= most * (1 - 1e-6)) > FUNCTION:
            yield Seen(f"it is {by}the derivative of the Huber loss with delta = {factor(most, 2e-4)}: the difference "
                       f"y - t, limited to that", look, view.rest(times * scale * np.clip(d, -most, most), 1), 1)


def is_of_difference(right: Criterion) -> bool:
    """Return whether it is the gradient of a loss that takes the difference of output and target."""
    return right.gradient and isinstance(right.loss, (MeanAbsoluteError, SmoothL1, Huber))


#: Losses whose derivative is a sign far from 0: in words, their number from d and the derivative, the derivative
FORMS: tuple[tuple[str, Callable[[Array, Array], Array], Callable[[Array, float], Array]], ...] = (
    ("the Charbonnier loss sqrt(d**2 + {0})", lambda d, q: d * d * (1 / (q * q) - 1),
     lambda d, eps: d / np.sqrt(d * d + eps)),
    ("the smooth L1 loss with beta = {0}", lambda d, q: d / q, lambda d, beta: np.clip(d / beta, -1, 1)),
    ("log(cosh({0}*d))/{0}", lambda d, q: np.arctanh(q) / d, lambda d, a: np.tanh(a * d)),
    ("|d| - log(1 + |d|/{0})*{0}", lambda d, q: np.abs(d) * (1 / np.abs(q) - 1),
     lambda d, c: d / (c + np.abs(d))),
)
