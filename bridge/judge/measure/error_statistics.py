# SPDX-License-Identifier: MIT
"""The one comparison: a candidate's tensor against its float64 value and bound.

``T = max |candidate - value| / E``. Where E is 0 the candidate must be exact. NaN and infinity on either side
are failures always: everything is written so that a NaN fails the test instead of passing it.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np

from bridge.common.parallel import BLOCK, blocks, in_order, keep, runs
from bridge.judge.measure.fast_statistics import Figures, deviations

Array = np.ndarray

#: OpenBLAS computes scalar products of up to 10000 elements on one thread
SHORT = 1 << 13

_here = threading.local()


@dataclass
class Statistic:
    """What a comparison found; parts of a tensor are merged in order.

    Attributes
    ----------
    t : largest |candidate - value| / E; infinite where E = 0 or something is not finite
    error : largest |candidate - value|
    at : index of the element with the largest ratio, numpy order
    found, expected, bound : candidate, value and E at that element
    elements : number of elements compared
    nonfinite : number of elements where the candidate, the value or E is NaN or infinite
    dot, norm_found, norm_expected, norm_error : sums of products and squares, not yet rooted
    """

    t: float = 0.0
    error: float = 0.0
    at: tuple[int, ...] = ()
    found: float = 0.0
    expected: float = 0.0
    bound: float = 0.0
    elements: int = 0
    nonfinite: int = 0
    dot: float = 0.0
    norm_found: float = 0.0
    norm_expected: float = 0.0
    norm_error: float = 0.0

    @property
    def worst(self) -> float:
        """Return |candidate - value| at the element with the largest ratio; `error` may be that of another one."""
        return abs(self.found - self.expected)

    @property
    def cosine(self) -> float:
        """Return the cosine of the angle between candidate and value; NaN when one of them is zero."""
        if not (self.norm_found > 0 and self.norm_expected > 0):
            return math.nan
        return self.dot / (math.sqrt(self.norm_found) * math.sqrt(self.norm_expected))

    @property
    def relative_error(self) -> float:
        """Return |candidate - value| / |value| in the Euclidean norm."""
        return math.sqrt(self.norm_error / self.norm_expected) if self.norm_expected > 0 else math.nan

    @property
    def digits(self) -> float:
        """Return decimal digits that agree over the whole tensor, -log10 of the relative error; infinite where all are
        equal.

        >>> Statistic(norm_error=1e-12, norm_expected=1.0).digits
        6.0
        """
        if self.elements and self.norm_error == 0 and not self.nonfinite:
            return math.inf
        relative = self.relative_error
        return -math.log10(relative) if 0 < relative < math.inf else math.nan

    def merge(self, other: Statistic) -> None:
        """Join another part of the same tensor. NaN and infinity come before every finite error."""
        first_nonfinite = other.nonfinite > 0 and self.nonfinite == 0
        if self.elements == 0 or first_nonfinite or (self.nonfinite == 0 and not other.t <= self.t):
            self.t, self.at = other.t, other.at
            self.found, self.expected, self.bound = other.found, other.expected, other.bound
        self.error = other.error if not other.error <= self.error else self.error
        for name in ("elements", "nonfinite", "dot", "norm_found", "norm_expected", "norm_error"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def measure(candidate: Array, value: Array, bound: Array, *, image: int | None = None) -> Statistic:
    """Compare a tensor, or one image of it, with its value and bound.

    Examples
    --------
    >>> measure(np.float32([1, 3]), np.array([1.0, 2.0]), np.array([0.5, 0.5])).t
    2.0
    >>> measure(np.float32([np.nan]), np.array([1.0]), np.array([0.5])).t
    inf
    """
    return measure_all([candidate], value, bound, image=image)[0]


def measure_all(candidates: list[Array], value: Array, bound: Array, *, image: int | None = None) -> list[Statistic]:
    """Compare several tensors with one value and bound, which are read from memory once."""
    for candidate in candidates:
        if candidate.shape != value.shape or candidate.size == 0:
            raise ValueError(f"shapes {candidate.shape} and {value.shape}: a comparison needs equal, non-empty ones")
    figures = deviations(candidates, value, bound)
    if figures is None:
        totals = _by_numpy(candidates, value, bound)
    else:
        totals = [_of(one, given, value, bound) for one, given in zip(figures, candidates, strict=True)]
    for total in totals:
        at = np.unravel_index(total.at[0], value.shape)
        total.at = (() if image is None else (image,)) + tuple(int(i) for i in at)
    return totals


def _of(figures: Figures, candidate: Array, value: Array, bound: Array) -> Statistic:
    """With the numbers at the worst place."""
    t, at, error, *sums = figures
    there = float(bound.reshape(-1)[at if bound.size > 1 else 0])
    return Statistic(t, error, (at,), float(candidate.reshape(-1)[at]), float(value.reshape(-1)[at]), there, value.size,
                     0, *sums)


def _by_numpy(candidates: list[Array], value: Array, bound: Array) -> list[Statistic]:
    """The place is one in memory order."""
    found, expected = [candidate.reshape(-1) for candidate in candidates], value.reshape(-1)
    limit = np.broadcast_to(bound, value.shape).reshape(-1) if bound.size > 1 else bound.reshape(-1)

    def run(whole: slice) -> list[Statistic]:
        totals = [Statistic() for _ in found]
        for part in blocks(whole):
            right = _Right(expected[part], limit[part] if limit.size > 1 else limit)
            for total, one in zip(totals, found, strict=True):
                total.merge(_block(one[part], right, part.start))
        return totals

    totals = [Statistic() for _ in found]
    for parts in in_order(run, runs(value.size)):
        for total, part in zip(totals, parts, strict=True):
            total.merge(part)
    return totals


class _Right:
    """A run of values and bounds, with what every candidate asks of them."""

    def __init__(self, value: Array, bound: Array) -> None:
        self.value, self.bound = value, bound
        # A maximum is NaN or infinite when an element is
        self.sound = math.isfinite(float(bound.max())) and float(bound.min()) >= 0
        with np.errstate(over="ignore", invalid="ignore"):
            self.norm = _dot(value, value)


def _block(candidate: Array, right: _Right, first: int) -> Statistic:
    """A run of elements; `first` is the place of its first one."""
    value, bound = right.value, right.bound
    # A conversion of a signalling NaN raises the flag, too
    found, difference, ratio = _scratch(value.size)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        np.copyto(found, candidate)
        np.subtract(found, value, out=difference)
        np.abs(difference, out=difference)
        np.divide(difference, bound, out=ratio)
        sums = [_dot(found, value), _dot(found, found), right.norm, _dot(difference, difference)]
    error, nonfinite = float(difference.max()), 0
    if not (right.sound and math.isfinite(error)):
        bad = ~(np.isfinite(difference) & np.isfinite(bound) & (bound >= 0))
        nonfinite = int(np.count_nonzero(bad))
        at, t = int(np.argmax(bad)), math.inf
    else:
        at = int(np.argmax(ratio))
        if math.isnan(ratio[at]):
            # 0/0: exact where it must be exact
            keep(ratio, ratio == ratio)
            at = int(np.argmax(ratio))
        t = float(ratio[at])
    return Statistic(
        t,
        math.nan if nonfinite else error,
        (first + at,),
        float(found[at]),
        float(value[at]),
        float(bound[at if bound.size > 1 else 0]),
        value.size,
        nonfinite,
        *sums,
    )


def _scratch(size: int) -> Array:
    """Three arrays of this thread, which stay in its core's cache."""
    if not hasattr(_here, "arrays"):
        _here.arrays = np.empty((3, BLOCK))
    return _here.arrays[:, :size]


def _dot(a: Array, b: Array) -> float:
    """In pieces so short that BLAS does not call its own threads, which would be in the way here."""
    if a.size % SHORT:
        return float(np.einsum("i,i->", a, b))
    return float(np.vecdot(a.reshape(-1, SHORT), b.reshape(-1, SHORT)).sum())
