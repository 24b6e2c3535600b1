# SPDX-License-Identifier: MIT
"""Losses that are another function of outputs and targets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.elementwise import Loss, LossGradient
from bridge.judge.diagnosis.evidence.view import Array, Seen
from bridge.judge.diagnosis.evidence.words import factor

#: A single number agrees with another by chance, unless to nearly all of its digits
AGREE = 3e-6


def losses(right: Loss, found: float, others: dict[str, float], targets: dict[str, Array]) -> Iterator[Seen]:
    """Yield other losses that are the number that was found, times a small factor.

    Parameters
    ----------
    others : numbers of other steps by description
    targets : tensors of the shape of targets by description
    """
    y = right.y.value
    known = dict(others) | {f"the loss by {name}": right.scale * float(((y - t) ** 2).sum())
                            for name, t in targets.items()}
    known |= _of(y - right.target, right.target, y) | _blocks(y - right.target)
    for said, value in known.items():
        for times in (1.0, 2.0, 0.5):
            if value and abs(times * value - found) <= AGREE * abs(found):
                yield Seen(f"it is {f'{factor(times)} times ' if times != 1 else ''}{said}",
                           "the definition of the loss", 0.0, int(times != 1))


def _of(d: Array, target: Array, y: Array) -> dict[str, float]:
    """Losses of differences."""
    size = np.abs(d)
    found = {
        "the mean absolute difference (L1)": size.mean(), "the sum of absolute differences (L1)": size.sum(),
        "the root of the mean square (RMSE)": np.sqrt((d * d).mean()),
        "the Euclidean norm of the differences": np.linalg.norm(d),
        "the largest difference": size.max(), "the largest squared difference": (d * d).max(),
        "the median of the squared differences": np.median(d * d),
        "the variance of the differences (their mean is taken off)": d.var(),
        "the mean of log(cosh(difference))": (np.logaddexp(d, -d) - np.log(2)).mean(),
        "-10*log10 of the mean square (decibels)": -10 * np.log10(max((d * d).mean(), 1e-300)),
        "the mean difference": d.mean(), "the squared mean difference": d.mean() ** 2,
        "the mean square of the output": (y * y).mean(), "the mean square of the target": (target * target).mean(),
        "the mean square relative to that of the target": (d * d).sum() / max((target * target).sum(), 1e-300),
        "the mean of the fourth powers": (d**4).mean(), "the mean of the cubes": (size**3).mean(),
        "the sum of squares": (d * d).sum(), "the mean square (the mean, not the sum)": (d * d).mean(),
    }
    for delta in (0.1, 0.5, 1.0, 1.5, 2.0):
        huber = np.where(size <= delta, 0.5 * d * d, delta * (size - 0.5 * delta))
        found |= {f"the mean Huber loss with delta = {delta:g}": huber.mean(),
                  f"the mean smooth L1 loss with beta = {delta:g}": huber.mean() / delta}
    for by in (1, 2):
        if min(d.shape[2:]) > 2 * by:
            inner = d[..., by:-by, by:-by]
            found |= {f"the mean square without a border of {by}": (inner * inner).mean(),
                      f"the sum of squares without a border of {by}, over all elements": (inner * inner).sum() / d.size}
    for axis, word in enumerate(("images", "channels", "rows", "columns")):
        for start, which in ((0, "even"), (1, "odd")):
            if d.shape[axis] > 1:
                part = np.take(d, range(start, d.shape[axis], 2), axis)
                these = f"{which} {word}" if d.shape[axis] > 2 else f"{word[:-1]} {start}"
                found |= {f"the mean square over {these} only": (part * part).mean(),
                          f"the sum of squares over {these} only, over all elements":
                          (part * part).sum() / d.size}
        for index in range(d.shape[axis]) if axis > 1 else ():
            if index in (0, d.shape[axis] - 1):
                rest = np.delete(d, index, axis)
                place = f"without {word[:-1]} {index}"
                found |= {f"the mean square {place}": (rest * rest).mean(),
                          f"the sum of squares {place}, over all elements": (rest * rest).sum() / d.size}
    weights = 1.0 / (1.0 + np.arange(d.shape[0]))
    found["a sum in which image i counts 1/(i + 1)"] = float((weights[:, None, None, None] * d * d).sum() / d.size)
    return {f"{name}": float(value) for name, value in found.items()}


def _blocks(d: Array) -> dict[str, float]:
    """Mean squares of which the last elements in memory are missing: what is left when blocks of 2**k are full."""
    squares = np.ravel(d * d)
    found: dict[str, float] = {}
    for block in (2**k for k in range(5, 21)):
        full = squares.size // block * block
        if 0 < full < squares.size:
            which = f"without the last {squares.size - full} elements in memory, which fill no block of {block}"
            found |= {f"the mean square {which}": float(squares[:full].mean()),
                      f"the sum of squares {which}, over all elements": float(squares[:full].sum() / squares.size)}
    return found


def with_penalty(loss: float, weights: dict[str, Array], weight_decay: float) -> dict[str, float]:
    """Return the loss with the penalty whose gradient weight decay is, of all parameters and of the weights alone."""
    if not weight_decay:
        return {}
    every = sum(float((w * w).sum()) for w in weights.values())
    alone = sum(float((w * w).sum()) for name, w in weights.items() if not name.endswith("/bias"))
    return {f"the loss with the penalty of the weight decay, {times} * weight_decay * sum({what}**2)":
            loss + number * weight_decay * size
            for what, size in (("w", every), ("w without biases", alone))
            for times, number in (("1/2", 0.5), ("1", 1.0))}


def gradients(right: LossGradient) -> dict[str, Array]:
    """Return what a gradient of a loss is made of, element by element."""
    d = right.y.value - right.target
    return {"the difference y - t": d, "the output y": right.y.value, "the target": right.target}
