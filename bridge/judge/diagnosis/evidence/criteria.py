# SPDX-License-Identifier: MIT
"""Losses that are no mean squared error, what programs compute in their place, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.view import AGREE, Array, Seen, View
from bridge.judge.diagnosis.evidence.words import factor, listed
from bridge.judge.diagnosis.predictions.elementwise import SquaredError
from bridge.judge.diagnosis.predictions.formulas import Criterion
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.operations.losses import CrossEntropy

#: Smoothings of targets, and numbers that are added to a probability before its logarithm
SMOOTHED, ADDED = (0.05, 0.1, 0.2), (1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def is_cross_entropy(right: object) -> bool:
    """Return whether an operation is a cross entropy without settings, or its gradient."""
    return isinstance(right, Criterion) and right.loss.text == CrossEntropy.kind


def cross_entropies(right: Criterion) -> dict[str, float]:
    """Return what may stand in the place of a cross entropy, by description."""
    y, t, scale = right.y.value, right.target, right.scale
    shares = softmax(y, (1,))
    classes = y.shape[1]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logs = np.log(shares)
        sigmoid = 1 / (1 + np.exp(-y))
        found = {
            "the cross entropy without the logarithm, -t*p": -(t * shares).sum(),
            "the sum of t*(1 - p)": (t * (1 - shares)).sum(),
            "the negative output at the target, without a softmax, -t*y": -(t * y).sum(),
            "-t*log(y), the output taken for probabilities": -(t * np.log(y)).sum(),
            "the binary cross entropy of each class": -(t * np.log(sigmoid) + (1 - t) * np.log1p(-sigmoid)).sum(),
            "the cross entropy by sigmoids in place of the softmax": -(t * np.log(sigmoid)).sum(),
            "the cross entropy with target and output exchanged, -p*log(t)": -(shares * np.log(t)).sum(),
            "the entropy of the output, -p*log(p)": -(shares * logs).sum(),
            "the divergence of the output from the target, t*log(t/p)":
            np.where(t > 0, t * (np.log(np.where(t > 0, t, 1.0)) - logs), 0.0).sum(),
            "the sum of squares of p - t": ((shares - t) ** 2).sum(),
        }
        for axis, word in ((0, "images"), (2, "rows"), (3, "columns")):
            if axis < y.ndim and y.shape[axis] > 1:
                found[f"the cross entropy with the softmax over the {word}"] = -(t * np.log(softmax(y, (axis,)))).sum()
        for share in SMOOTHED:
            smoothed = (1 - share) * t + share / classes
            found[f"the cross entropy of targets that are smoothed by {share:g}"] = -(smoothed * logs).sum()
        for one in ADDED:
            found[f"the cross entropy by log(p + {one:g})"] = -(t * np.log(shares + one)).sum()
            found[f"the cross entropy by log(p), p at least {one:g}"] = -(t * np.log(np.maximum(shares, one))).sum()
        for power in (1, 2, 3):
            found[f"the focal loss with gamma = {power}"] = -(t * (1 - shares) ** power * logs).sum()
    return {f"{said}{mean}": float(scale * times * value) for said, value in found.items()
            for mean, times in (("", 1.0), (", a mean over the classes, too", 1 / classes))}


def of_parts(right: Criterion) -> dict[str, float]:
    """Return losses of a part of the batch, by description."""
    y, t = right.y.value, right.target
    n, found = len(y), {}
    for i in range(n if 1 < n <= 16 else 0):
        for said, chosen in ((f"without image {i}", [j for j in range(n) if j != i]), (f"of image {i} alone", [i])):
            part = right.replaced(y=Predicted(y[chosen]), target=t[chosen]).at(np.zeros(1, int))[0]
            found[f"the loss {said}"] = float(part)
            if right.loss.mean:
                found[f"the loss {said}, divided by the number of all"] = float(part) * len(chosen) / n
    return found


def softmax(y: Array, axes: tuple[int, ...]) -> Array:
    """Return shares that add up to 1 over some axes."""
    e = np.exp(y - y.max(axes, keepdims=True))
    shares: Array = e / e.sum(axes, keepdims=True)
    return shares


def cross_entropy_gradients(view: View, case: Case) -> Iterator[Seen]:
    """Yield gradients of a cross entropy of other shares, or of targets that are smoothed."""
    right = case.right
    if not (isinstance(right, Criterion) and right.gradient and is_cross_entropy(right)):
        return
    y, t, scale = right.y.value, right.target, right.scale
    column = (scale * (t - 1 / t.shape[1])).reshape(-1)[view.at]
    square = float(column[view.fitted] @ column[view.fitted])
    if square > 0:
        share = -float(column[view.fitted] @ (view.f - view.r)[view.fitted]) / square
        yield Seen(f"it is the gradient by targets that are smoothed by {factor(-share)}: (1 - a)*t + a/{t.shape[1]}",
                   "what is done to the target, label smoothing", view.rest(view.r - share * column, 1), 1)
    with np.errstate(over="ignore"):
        others = {"sigmoids in place of the softmax": 1 / (1 + np.exp(-y)), "exponentials that are not normalised":
                  np.exp(y), "the output itself in place of the softmax": y}
        for axes, word in (((0,), "images"), ((2,), "rows"), ((3,), "columns"), ((2, 3), "pixels")):
            if y.ndim == 4 and math.prod(y.shape[axis] for axis in axes) > 1:
                others[f"the softmax over the {word}, not the channels"] = softmax(y, axes)
    total = t.sum(1, keepdims=True)
    weights = class_weights(right, view.found)
    if weights is not None:
        times = sum(weight * t[:, k : k + 1] for k, weight in weights.items())
        predicted = times * right.at(np.arange(t.size)).reshape(t.shape)
        numbers = len(set(weights.values()))
        yield Seen(f"it is the gradient {said_of_classes(right, weights)}",
                   "what of the target the loss leaves out, and the weights of classes",
                   view.rest(predicted.reshape(-1)[view.at], numbers), numbers)
    for said, shares in others.items():
        predicted = scale * (shares * total - t)
        yield Seen(f"it is the gradient by {said}", "over which axis the softmax is, and what is in its place",
                   view.rest(predicted.reshape(-1)[view.at]))


def class_weights(right: Criterion, gradient: Array) -> dict[int, float] | None:
    """Return how many times what belongs to each class counts in a gradient of a cross entropy; None where the targets
    are no classes, or that explains nothing.
    """
    t, truth = right.target, right.replaced(gradient=True).at(np.arange(right.target.size)).reshape(right.target.shape)
    if not (((t == 0) | (t == 1)).all() and (t.sum(1) == 1).all()):
        return None
    weights = {}
    for k in range(t.shape[1]):
        r, g = (np.moveaxis(one, 1, -1)[t[:, k] == 1] for one in (truth, gradient.reshape(t.shape)))
        square = float((r * r).sum())
        if square > 0:
            weights[k] = float((r * g).sum()) / square
            if np.linalg.norm(g - weights[k] * r) > AGREE * np.linalg.norm(r):
                return None
    return weights if len({factor(one) for one in weights.values()}) > 1 else None


def said_of_classes(right: Criterion, weights: dict[int, float]) -> str:
    """Return class weights in words."""
    left_out = [k for k, weight in weights.items() if weight == 0]
    others = [weight for weight in weights.values() if weight]
    word = "pixels" if right.target.ndim > 2 else "images"
    if left_out and others and np.ptp(others) <= 2 * AGREE * others[0]:
        share = float(right.target[:, left_out].sum() / right.target.sum())
        mean = ", and the mean is over the others" if abs(others[0] * (1 - share) - 1) <= 1e-5 else (
            "" if abs(others[0] - 1) <= 1e-5 else f", the others {factor(others[0])} times")
        return f"without the {word} of class {listed(left_out)} (ignore_index){mean}"
    # Each batch has a sum of weights of its own
    least = min(map(abs, others), default=1.0)
    said = [f"{k} by {factor(weight / least)}" for k, weight in weights.items()]
    return f"in which the {word} count by their class, in proportion: {listed(said)}"


def target_of(right: Criterion, gradient: Array) -> Array:
    """Return the target by which a gradient of a cross entropy is what it is."""
    shares = softmax(right.y.value, (1,))
    target: Array = shares * right.target.sum(1, keepdims=True) - gradient / right.scale
    return target


def implied(case: Case, right: SquaredError | Criterion) -> dict[str, float]:
    """Return the losses that follow from the gradient in the file, where that is wrong: by other differences, or with
    a weight for each.
    """
    graph = case.graph
    name = f"grads/{graph.model.graph.nodes[-1].name}/output"
    g = graph.own(name) if graph.given(name) else None
    if g is None:
        return {}
    expected = graph.operation(name).full(graph.arithmetic)
    if expected.error is None or (np.abs(g - expected.value) <= expected.error).all():
        return {}
    d, whose = right.y.value - right.target, f"the gradient in the file ({name}): one cause makes both wrong"
    counted = f"the loss in which each difference counts as it does in {whose}"
    if isinstance(right, SquaredError):
        other = g / (2 * right.scale)
        return {f"the loss of the differences that follow from {whose}": right.scale * float((other * other).sum()),
                counted: 0.5 * float((d * g).sum())}
    if is_cross_entropy(right):
        scale = right.scale
        logs = np.log(softmax(right.y.value, (1,)))
        if (weights := class_weights(right, g)) is not None:
            times = sum(weight * right.target[:, k : k + 1] for k, weight in weights.items())
            return {f"the loss {said_of_classes(right, weights)}, as it is in {whose}":
                    -scale * float((times * right.target * logs).sum())}
        return {f"the loss of the targets that follow from {whose}": -scale * float((target_of(right, g) * logs).sum())}
    return {counted: float((d * g).sum())}
