# SPDX-License-Identifier: MIT
"""Losses that are another function of outputs and targets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.evidence.view import AGREE, Array, Seen
from bridge.judge.diagnosis.evidence.words import factor
from bridge.judge.diagnosis.predictions.elementwise import LossGradient, SquaredError
from bridge.judge.diagnosis.predictions.formulas import Criterion
from bridge.judge.oracle.reduced_precision import round_fraction, truncate_fraction

#: Wrong steps from which on a loss is said to be one of many, at each of them
STEPS = 3
#: Numbers in a run of memory that one part of a program sums
RUNS = (32, 64, 128, 256, 512, 1024)


def losses(right: SquaredError, found: float, others: dict[str, float], targets: dict[str, Array]) -> Iterator[Seen]:
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
    yield from agreeing(found, known)


def other_losses(right: Criterion) -> dict[str, float]:
    """Return what may stand in the place of a loss that takes differences, by description."""
    return _of(right.y.value - right.target, right.target, right.y.value)


def agreeing(found: float, known: dict[str, float], look: str = "the definition of the loss") -> Iterator[Seen]:
    """Yield the numbers that are the one that was found, times a small factor."""
    for said, value in known.items():
        for times in (1.0, 2.0, 0.5):
            if value and abs(times * value - found) <= AGREE * abs(found):
                yield Seen(f"it is {f'{factor(times)} times ' if times != 1 else ''}{said}",
                           look, 0.0, int(times != 1))


def losses_at_several_steps(right: SquaredError, found: float) -> Iterator[Seen]:
    """Yield losses of which there are so many that one step alone agrees with some: they must hold at several."""
    y, t = right.y.value, right.target
    known: dict[str, float] = {}
    for said, value in (*_rounded(y, t), *_limited(y, t), *_weighted(y - t)):
        known[f"the loss {said}"] = right.scale * value
    for said, value in known.items():
        if abs(value - found) <= AGREE * abs(found):
            yield Seen(f"it is {said}", "what the loss is summed over, and how", 0.0, 1)
    squares = np.ravel((y - t) ** 2)
    total = float(squares.sum())
    for run in RUNS:
        parts = np.add.reduceat(squares, np.arange(0, squares.size, run)) if squares.size > run else np.zeros(0)
        if (np.abs(right.scale * (total - parts) - found) <= AGREE * abs(found)).any():
            yield Seen(f"it is the loss without one run of {run} elements",
                       "partial sums that are added at the same time: a race on the accumulator", 0.0, 2)
            return
    yield from _scaled_target(right, found)


def _rounded(y: Array, t: Array) -> Iterator[tuple[str, float]]:
    """Sums of squares of operands of fewer bits."""
    for name, bits in (("TF32", 10), ("bf16", 7)):
        for how, change in (("rounded to", round_fraction), ("cut off to", truncate_fraction)):
            y_low, t_low, d_low = (change(x.astype(np.float32), bits).astype(np.float64) for x in (y, t, y - t))
            yield f"of differences {how} {name}", float((d_low**2).sum())
            yield f"of outputs and targets {how} {name}", float(((y_low - t_low) ** 2).sum())


def _limited(y: Array, t: Array) -> Iterator[tuple[str, float]]:
    """Limits of one digit that something goes beyond."""
    for most in (digit * 10.0**power for power in range(-4, 4) for digit in range(1, 10)):
        if most < np.abs(y).max():
            yield f"of the output limited to {-most:g} .. {most:g}", float(((np.clip(y, -most, most) - t) ** 2).sum())
        if most < np.abs(t).max():
            yield f"of the target limited to {-most:g} .. {most:g}", float(((y - np.clip(t, -most, most)) ** 2).sum())


def _weighted(d: Array) -> Iterator[tuple[str, float]]:
    """Sums in which an image, or the first and last row or column, count otherwise; over all, or over what counts."""
    parts, n = (d * d).sum((1, 2, 3)), len(d)
    for i in range(n if n <= 16 else 0):
        for times in (0.5, 2.0):
            value = float(parts.sum() + (times - 1) * parts[i])
            yield f"in which image {i} counts {times:g} times", value
            yield f"in which image {i} counts {times:g} times, divided by the sum of the weights", value * n / (
                n + times - 1)
    for axis, word in ((2, "row"), (3, "column")):
        size = d.shape[axis]
        for by in (1, 2, 3, 4):
            if size > 2 * by:
                inner = float((np.take(d, range(by, size - by), axis) ** 2).sum())
                where = f"the first and last {word}" if by == 1 else f"the first and last {by} {word}s"
                yield f"without {where}, over all elements", inner
                yield f"without {where}", inner * size / (size - 2 * by)
    for by in (3, 4, 5, 6, 8):
        if min(d.shape[2:]) > 2 * by:
            yield f"without a border of {by}, over all elements", float((d[..., by:-by, by:-by] ** 2).sum())


def _scaled_target(right: SquaredError, found: float) -> Iterator[Seen]:
    """The target times a short number, which is solved for."""
    y, t = right.y.value, right.target
    a, b, c = float((t * t).sum()), float((y * t).sum()), float((y * y).sum()) - found / right.scale
    root = b * b - a * c
    if not (a > 0 and root > 0):
        return
    for one in ((b + root**0.5) / a, (b - root**0.5) / a):
        if abs(float(f"{one:.2g}") - one) <= 1e-4 * abs(one) and abs(one - 1) > 1e-3:
            yield Seen(f"it is the loss of the target times {one:.2g}", "how the target is scaled before it is used",
                       0.0, 1)


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


def gradients(right: LossGradient | Criterion) -> dict[str, Array]:
    """Return what a gradient of a loss is made of, element by element."""
    d = right.y.value - right.target
    return {"the difference y - t": d, "the output y": right.y.value, "the target": right.target}
