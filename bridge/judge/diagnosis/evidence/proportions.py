# SPDX-License-Identifier: MIT
"""Factors and constants by image, channel, tap, row or column."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.evidence.view import PER_NUMBER, Array, Seen, View
from bridge.judge.diagnosis.evidence.words import factor, factors, listed
from bridge.judge.diagnosis.faults.factors import factor_detail

#: Of a number, where it is so near 1
NEAR = 2e-5


def proportions(view: View) -> Iterator[Seen]:
    """Yield the right value times a factor: one of all, or one for each index of an axis, or of two."""
    norm = float(view.r @ view.r)
    if norm > 0:
        one = float(view.r[view.fitted] @ view.f[view.fitted]) / max(
            float(view.r[view.fitted] @ view.r[view.fitted]), 1e-300)
        rest = view.rest(one * view.r, 1)
        if abs(one - 1) > 1e-6 and one != 0:
            detail = f"times {factor(one)}"
            if len(detail) > 11:
                detail = factor_detail(one, view.dimensions).replace(" (no product of the dimensions)", "")
            size = float(np.linalg.norm(view.found))
            known = f"; its Euclidean norm is exactly {factor(size)}" if _round(size) else ""
            largest = float(np.abs(view.found).max())
            known += f"; its largest number is exactly {factor(largest)}" if _round(largest) else ""
            look = "a limit on the norm of gradients" if known else "a factor that belongs to another part, or none"
            yield Seen(f"it is the right value {detail}{known}", look, rest, 1)
    for axes in _axes(view):
        yield from _by(view, axes)


def _round(size: float) -> bool:
    return size > 0 and abs(float(f"{size:.2g}") - size) <= 1e-6 * size


def _axes(view: View) -> list[tuple[int, ...]]:
    several = [a for a, n in enumerate(view.right.shape) if n > 1]
    return [(a,) for a in several] + list(itertools.combinations(several, 2))


def _groups(view: View, axes: tuple[int, ...]) -> tuple[Array, Array, tuple[Array, ...]]:
    """The group of each element, the number of each group's elements to fit to, and the indices of the groups."""
    shape = tuple(view.right.shape[a] for a in axes)
    flat = np.ravel_multi_index(tuple(view.place[a] for a in axes), shape)
    there, group = np.unique(flat, return_inverse=True)
    return group, np.bincount(group[view.fitted], minlength=there.size), np.unravel_index(there, shape)


def _by(view: View, axes: tuple[int, ...]) -> Iterator[Seen]:
    group, size, where = _groups(view, axes)
    n = size.size
    if n < 2 or size.min() < PER_NUMBER:
        return
    fit = view.fitted

    def total(x: Array) -> Array:
        return np.bincount(group[fit], x[fit], n)

    f, r = view.f, view.r
    by = " and ".join(view.axes[a] for a in axes)
    square = total(r * r)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(square > 0, total(r * f) / square, 1.0)
        offset = total(f - r) / size
        spread = total(r * r) - total(r) ** 2 / size
        both = np.where(spread > 0, (total(r * f) - total(r) * total(f) / size) / spread, 0.0)
    rest = view.rest((slope[group]) * r, n)
    off = np.abs(slope - 1) > NEAR
    if off.any():
        said = _values(slope, off, where, by)
        yield Seen(f"it is the right value times a factor for each {by}: {said}",
                   f"what is multiplied along the {by}: a window, a weight, a count of that {by}", rest, n)
    said = _values(offset, np.abs(offset) > 1e-4 * np.abs(offset).max(), where, by)
    left = np.abs(np.bincount(group, f, n)) / np.bincount(group, minlength=n)
    if n < view.at.size and (left <= 1e-5 * f.std()).all():
        said += f"; so that the mean of each {by} is 0"
    yield Seen(f"it is the right value plus a number for each {by}: {said}",
               f"what is added along the {by}: a bias, a mean that is taken off", view.rest(r + offset[group], n), n)
    rest = view.rest(both[group] * r + (total(f) / size - both * total(r) / size)[group], 2 * n)
    yield Seen(f"it is the right value times a factor plus a number, both by {by} (factors {factors(both)})",
               f"a normalisation over each {by}", rest, 2 * n)
    middle = total(f) / size
    yield Seen(f"it is one number for each {by}: {_values(middle, middle == middle, where, by)}",
               f"what is filled in along the {by}; an index of the loop inside that does not move",
               view.rest(middle[group], n), n + 1)


def _values(values: Array, off: Array, where: tuple[Array, ...], by: str) -> str:
    chosen = values[off]
    if chosen.size == 0:
        return "none"
    if len(where) > 1:
        words = [f"{factor(float(v))} at ({', '.join(str(int(w[i])) for w in where)})"
                 for i, v in zip(np.flatnonzero(off), chosen, strict=True)]
        return listed(words)
    same = np.ptp(chosen) <= NEAR * np.abs(chosen).max()
    at = f" ({by} {listed(where[0][off].tolist())})" if chosen.size < values.size or chosen.size <= 3 else ""
    return (factor(float(chosen.mean())) if same else factors(chosen)) + at
