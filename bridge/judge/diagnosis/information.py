# SPDX-License-Identifier: MIT
"""Whether data say enough for an explanation: of few bits one of many is right by chance.

A step of Adam from nothing is a sign for each weight, and nothing more; a bound as wide as a tensor is kept by all that
is not larger. So what an explanation predicts is asked how probable it is that it agrees by chance, where each element
is right, or (with the share of those that are wrong) another value, one that the right tensor has elsewhere, or any in
its range. Minus the logarithm of that to the base of two are the bits that it explains. It must have fewer itself:
those that choose it among all that were tried, and those of the numbers in it that were fitted.
"""

from __future__ import annotations

import math

import numpy as np

from bridge.judge.diagnosis.predictions.operations import Predicted

Array = np.ndarray

#: Bits of a number that is fitted, as many as float32 has
FITTED = 24
#: Elements from which on fitted numbers are counted: what is said of fewer must hold at every step
ENOUGH = 4
#: Most elements that are looked at, of those that are wrong and of all
MOST = 4096
#: T that is asked of a prediction whose bound is as large as itself
WIDE = 0.1
#: Probabilities that are not told apart from 0
TINY = 2.0**-60


def bits(found: Array, right: Predicted, predicted: Predicted, base: Array | float = 0.0) -> float:
    """Return how many bits of a tensor a prediction explains.

    Parameters
    ----------
    found, right, predicted : of one shape
    base : what is known and in all three of them: of new weights the weights before, so that the step is left

    Examples
    --------
    >>> signs = np.tile([1.0, 1.0, -1.0], 12)
    >>> right, found = Predicted(signs, np.full(36, 1e-3)), signs.copy()
    >>> found[:4] *= -1
    >>> round(bits(found, right, Predicted(found, np.full(36, 1e-3))))
    18
    >>> bits(found, right, Predicted(0 * signs, 0 * signs + 1))
    0.0
    >>> round(bits(signs / 2, right, Predicted(signs / 2, np.full(36, 1e-3))) / 36)
    10
    """
    shape = right.value.shape
    f, r, p = ((np.reshape(one, shape) - base).reshape(-1) for one in (found, right.value, predicted.value))
    e_r, e_p = (np.broadcast_to(np.zeros(1) if one.error is None else one.error, one.value.shape).reshape(-1)
                for one in (right, predicted))
    wrong = ~(np.abs(f - r) <= e_r)
    q = min(max(float(wrong.mean()), 0.5 / f.size), 1.0)
    at = _chosen(wrong)
    r_at, p_at, room = r[at], p[at], e_p[at]
    span = max(float(np.ptp(np.concatenate([f, r]))), float(np.abs(f).max()), float(np.abs(r).max()), TINY)
    known = np.sort(r)
    elsewhere, here = _share(known, p_at, room), _share(known, r_at, np.maximum(e_r[at], room))
    same = np.abs(r_at - p_at) <= room + e_r[at]
    others = np.where(here < 1, (elsewhere - same * here) / np.maximum(1 - here, TINY), elsewhere)
    anything = np.maximum(2 * room / span, 2.0**-FITTED)
    chance = q * np.minimum(1.0, np.maximum(others, anything)) + (1 - q) * same
    return float(-np.log2(np.clip(chance, TINY, 1.0)).sum()) + 0.0


def _chosen(wrong: Array) -> Array:
    """Elements that are looked at: of many some, wrong ones among them."""
    if wrong.size <= MOST:
        return np.arange(wrong.size)
    rng = np.random.default_rng(0)
    bad, every = np.flatnonzero(wrong), np.arange(wrong.size)
    return np.unique(np.concatenate([rng.permutation(one)[:MOST // 2] for one in (bad, every)]))


def _share(known: Array, value: Array, room: Array) -> Array:
    """Of sorted numbers those that are near each of these."""
    return (np.searchsorted(known, value + room, "right") - np.searchsorted(known, value - room, "left")) / known.size


def says_enough(found: Array, right: Predicted, predicted: Predicted, t: float, *, tried: int, fitted: bool = False,
                base: Array | float = 0.0) -> bool:
    """Return whether a prediction that agrees explains something.

    Parameters
    ----------
    t : of the candidate against the prediction
    tried : how many predictions there were
    fitted : a number in it was fitted
    base : see `bits`
    """
    if not np.isfinite(found).all():
        return True
    error = np.zeros(1) if predicted.error is None else predicted.error
    room = np.broadcast_to(error, predicted.value.shape)
    # A step of nearly 0 in place of one that is far above the bound says something
    size = max(float(np.linalg.norm(np.reshape(one, room.shape) - base)) for one in (found, right.value))
    if float(np.linalg.norm(room)) >= size and not t <= WIDE:
        return False
    own = math.log2(max(tried, 1)) + FITTED * (fitted and found.size >= ENOUGH)
    return bits(found, right, predicted, base) >= own


def place_bits(wrong: Array) -> float:
    """Return the bits that say which images, channels, rows and columns are wrong, where it is not all of them.

    >>> place_bits(np.ones((4, 3), bool)), place_bits(np.eye(4, dtype=bool)[:1])
    (0.0, 4.0)
    """
    total = 0.0
    for axis, size in enumerate(wrong.shape):
        used = np.flatnonzero(wrong.any(axis=tuple(b for b in range(wrong.ndim) if b != axis)))
        if 0 < used.size < size:
            run = used[-1] - used[0] + 1 == used.size
            total += min(size, 2 * math.log2(size)) if run else size
    return float(total)


def place_of_each(wrong: Array) -> float:
    """Return the bits that say of every element whether it is wrong.

    >>> place_of_each(np.array([True, False, True, False]))
    4.0
    """
    q = float(wrong.mean())
    return 0.0 if q in (0.0, 1.0) else -wrong.size * (q * math.log2(q) + (1 - q) * math.log2(1 - q))
