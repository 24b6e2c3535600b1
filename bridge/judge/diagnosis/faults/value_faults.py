# SPDX-License-Identifier: MIT
"""Faults of single numbers that are fitted to what was found: clipped, set to zero where small, dropped at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.judge.diagnosis.predictions.elementwise import LossGradient, ReluBackward
from bridge.judge.diagnosis.predictions.formulas import Criterion
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, Hypothesis, Passed
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.oracle.error_model import Arithmetic

Array = np.ndarray

#: Probability of what is called chance
BY_CHANCE = 1e-4
#: Numbers that are equal, or zero, by chance are fewer
ENOUGH = 4
#: Numbers from which on zeros are said to be at random, and how far their runs may be off the expected number
MANY, IRREGULAR = 64, 0.2


@dataclass(frozen=True)
class Kept(Prediction):
    """Another operation's numbers times a factor where they are `kept`, flat; 0 elsewhere."""

    inner: Prediction
    kept: Array
    factor: float = 1.0

    def at(self, indices: Array) -> Array:
        return np.where(self.kept[indices], self.factor * self.inner.at(indices), 0.0)

    def full(self, arithmetic: Arithmetic) -> Predicted:
        inner, kept = self.inner.full(arithmetic), self.kept.reshape(self.shape)
        value = np.where(kept, self.factor * inner.value, 0.0)
        error = 4 * arithmetic.u * np.abs(value)
        if inner.error is not None:
            error = error + np.where(kept, abs(self.factor) * inner.error, 0.0)
        return Predicted(value, error)


def value_faults(base: Hypothesis, right: Array, found: Array) -> Hypotheses:
    """Yield what was made of the numbers one by one; nothing where no number betrays it.

    Parameters
    ----------
    base : the right operation
    right, found : all numbers of the tensor, the right ones and the candidate's
    """
    right, found = right.reshape(-1), found.reshape(-1)
    if np.isfinite(found).all() and found.any():
        yield from _clipped(base, right, found)
        yield from _zeros(base, right, found)


def _clipped(base: Hypothesis, right: Array, found: Array) -> Hypotheses:
    """Largest and smallest numbers that are met more than once, where right ones go beyond them."""
    low, high = -_limit(-right, -found), _limit(right, found)
    if not np.isfinite([low, high]).any() or low == high:
        # A tensor of equal numbers is no clipped one
        return
    said = f"above {high:.6g}" if low == -np.inf else f"below {low:.6g}"
    if np.isfinite([low, high]).all():
        said = f"outside {low:.6g} to {high:.6g}"
    clipped = Passed(base.operation.shape, base.operation, lambda x: np.clip(x, low, high))
    first = base
    if low == 0:
        # A ReLU has a kind of its own
        if high == np.inf:
            return
        first, said = base.then("relu", "a ReLU on what comes out", clipped), f"above {high:.6g}"
    yield first.then("clipped", f"clipped {said}", clipped, fitted=True)


def _limit(right: Array, found: Array) -> float:
    """What numbers were clipped at from above; infinity where they were not."""
    limit = float(found.max())
    beyond = right > limit + 1e-5 * abs(limit)
    at = np.count_nonzero(found == limit)
    # Of few numbers one alone is clipped; somebody chose the limit then
    written = limit == float(np.float32(f"{limit:.3g}"))
    many = at >= 2 or (written and found.size >= ENOUGH)
    return limit if beyond.any() and many and (found[beyond] == limit).all() else float(np.inf)


def _zeros(base: Hypothesis, right: Array, found: Array) -> Hypotheses:
    """Zeros where the right number is none: all that are small, or some at random."""
    used = right != 0
    lost = used & (found == 0)
    count, kept = int(np.count_nonzero(lost)), found != 0
    if count < ENOUGH or np.count_nonzero(used & kept) < ENOUGH:
        return
    shape, share = base.operation.shape, count / np.count_nonzero(used)
    threshold, smallest = float(np.abs(right[lost]).max()), float(np.abs(found[kept]).min())
    # Where all numbers are of one size, none is lost for being small
    distinct = float(np.median(np.abs(right[lost]))) < 0.9 * smallest
    if threshold <= smallest * (1 + 1e-3) and distinct:
        said = f"what is smaller than about {smallest:.3g} is 0"
        yield base.then("underflow", said, Kept(shape, base.operation, kept), fitted=True)
        return
    if isinstance(base.operation, LossGradient | Criterion):
        # A loss draws no mask
        return
    factor = float(np.median(found[used & kept] / right[used & kept]))
    if abs(factor - 1) < 1e-4:
        factor = 1.0
    signs = [right, *_operands(base.operation)]
    regular = not _at_random(lost[used]) or any(
        _by_limit(lost[used], one[used]) or _by_sign(lost[used], one[used]) for one in signs)
    lost, there = lost.reshape(shape), used.reshape(shape)
    if _frames(lost, there) or (factor == 1.0 and (
            isinstance(base.operation, ReluBackward) or regular or _along_an_axis(lost, there))):
        return
    # Kept numbers are divided by the share that is kept, of a mask or of what it was drawn from
    probability = 1 - 1 / factor if factor != 1 else share
    written = abs(probability - round(probability, 2)) < 1e-4
    if factor == 1.0 or (0 < probability < 1 and (written or abs(probability - share) < 0.1 * share)):
        rest = "is as it was" if factor == 1 else f"is multiplied by {factor:.4g} = 1/(1 - p), p = {probability:.3g}"
        said = f"{100 * share:.0f} % of the numbers are 0, the rest {rest}"
        yield base.then("dropout", said, Kept(shape, base.operation, kept, factor), fitted=True)


def _along_an_axis(lost: Array, used: Array) -> bool:
    """So many whole rows, channels or taps are spared that chance did not do it."""
    share = np.count_nonzero(lost) / np.count_nonzero(used)
    for axis in range(lost.ndim):
        others = tuple(i for i in range(lost.ndim) if i != axis)
        spared = used.sum(others)[~lost.any(others)]
        if (1 - share) ** int(spared.sum()) < BY_CHANCE:
            return True
    return False


def _frames(lost: Array, used: Array) -> bool:
    """What is kept is a rectangle of every image, and chance did not do it: the border is lost."""
    if lost.ndim != 4:
        return False
    some: Array = np.asarray(lost.any((0, 1)))
    rows, columns = (np.flatnonzero(~some.all(axis)) for axis in (1, 0))
    if not rows.size:
        return False
    part = np.s_[..., rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1]
    spared, share = int(np.count_nonzero(used[part])), np.count_nonzero(lost) / np.count_nonzero(used)
    framed = some[part].size < some.size and not some[part].any()
    return bool(framed and some.size * (1 - share) ** spared < BY_CHANCE)


def _at_random(lost: Array) -> bool:
    """Neither a run of memory nor a grid is lost: there are as many runs as of a coin."""
    share = lost.mean()
    runs = np.count_nonzero(lost[1:] != lost[:-1]) / (2 * share * (1 - share) * lost.size)
    return lost.size >= MANY and bool(abs(runs - 1) <= IRREGULAR)


def _by_sign(lost: Array, decisive: Array) -> bool:
    """Where a number is positive, or where it is negative, far fewer are lost than elsewhere."""
    share = lost.mean()
    signs = [np.mean(lost[part]) for part in (decisive > 0, decisive < 0) if part.any()]
    return not min(signs, default=share) > 0.5 * share


def _by_limit(lost: Array, decisive: Array) -> bool:
    """Where a number, or its size, is above a limit, or below it, all are lost, and none elsewhere."""
    return any(x[lost].max() < x[~lost].min() or x[lost].min() > x[~lost].max() for x in (decisive, np.abs(decisive)))


def _operands(operation: Prediction) -> list[Array]:
    """Numbers whose sign may decide what becomes 0."""
    if isinstance(operation, LossGradient | Criterion):
        y, target = operation.y.value.reshape(-1), operation.target.reshape(-1)
        return [y, target, y - target]
    return []
