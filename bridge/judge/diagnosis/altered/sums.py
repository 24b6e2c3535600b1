# SPDX-License-Identifier: MIT
"""Sums over other elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bridge.judge.diagnosis.altered.alteration import (
    Alteration,
    Alterations,
    Extents,
    alters,
    behind_padding,
    beyond,
    chosen,
    only,
    shifted,
)
from bridge.judge.diagnosis.altered.calls import Call
from bridge.judge.diagnosis.evidence.words import several
from bridge.judge.oracle.bounded import Bounded

#: Tiles and vectors of kernels: a loop over whole ones leaves out the rest
TILES = (4, 8, 16, 32, 64, 128, 256)
#: Lanes of which one may be forgotten
LANES = range(3, 9)


def _over(call: Call) -> tuple[int, ...]:
    """The axes of a sum."""
    rank = len(call.first.shape)
    if call.primitive == "summed_to":
        shape = call.arguments[0]
        extra = rank - len(shape)
        return tuple(a for a in range(rank) if a < extra or call.first.shape[a] != shape[a - extra])
    axes = call.arguments[0] if call.arguments else None
    return tuple(range(rank)) if axes is None else tuple(a % rank for a in axes)


def _of(choose: Callable[[Bounded], Bounded]) -> Callable[..., Any]:
    """A sum of what is chosen of its terms."""
    return lambda method, x, *rest: method(choose(x), *rest)


def _keeping(keep: np.ndarray) -> Callable[..., Any]:
    """A sum of the terms that are kept."""
    return _of(lambda x: only(x, keep))


@alters("sum", "summed_to")
def parts(call: Call, extents: Extents) -> Alterations:
    """Yield sums that leave out slices, or take some alone."""
    what, shape = f"the sum of {call.first.label}", call.first.shape
    for axis in _over(call):
        n, name = shape[axis], call.first.word(axis)
        places = np.arange(n)
        kept: dict[str, np.ndarray] = {}
        if n > 1:
            kept |= {f"leaves out the first {name}": places > 0, f"leaves out the last {name}": places < n - 1,
                     f"is of the first {name} alone": places == 0, f"is of the last {name} alone": places == n - 1}
        if n > 3:
            kept |= {f"takes every second {name} alone": places % 2 == 0,
                     f"takes every second {name} alone, from the second on": places % 2 == 1}
        for size in sorted({one for one in extents.by_name.values() if 1 < one < n - 1}):
            kept |= {f"is of the first {size} {several(name)} of {n} alone": places < size,
                     f"is of the last {size} {several(name)} of {n} alone": places >= n - size}
        for tile in TILES:
            if n % tile > 1 and tile < n:
                kept.setdefault(f"leaves out the last {n % tile} {several(name)}, which fill no block of {tile}",
                                places < n - n % tile)
        for lanes in LANES:
            if n >= 2 * lanes:
                kept |= {f"leaves out every {lanes}th {name} (number j where j mod {lanes} = {at})":
                         places % lanes != at for at in (0, lanes - 1)}
        for said, keep in kept.items():
            choice = chosen(shape, axis, keep)
            yield Alteration("part_of_batch", f"{what} {said}", _keeping(choice), said)
        if n > 1:
            for first, where in ((True, "first"), (False, "last")):
                choice = chosen(shape, axis, places == (0 if first else n - 1))
                said = f"is of the {where} {name}, times {n}"
                yield Alteration("part_of_batch", f"{what} {said}",
                                 lambda method, x, *rest, c=choice, n=n: method(only(x, c), *rest) * n, said)
            slabs = _doubled(axis)
            for where in ("first", "last"):
                said = f"takes the {where} {name} twice"
                yield Alteration("part_of_batch", f"{what} {said}", _of(slabs(where)), said)


def _doubled(axis: int) -> Callable[[str], Callable[[Bounded], Bounded]]:
    def doubled(where: str) -> Callable[[Bounded], Bounded]:
        def change(x: Bounded) -> Bounded:
            n = x.shape[axis]
            twice = 1.0 + chosen(x.shape, axis, np.arange(n) == (0 if where == "first" else n - 1))
            return x.moved(lambda a: a * twice)
        return change
    return doubled


@alters("sum", "summed_to")
def corners(call: Call, extents: Extents) -> Alterations:
    """Yield sums without one single term."""
    axes, shape = _over(call), call.first.shape
    if len([a for a in axes if shape[a] > 1]) < 2:
        return
    for at, where in ((0, "very first"), (-1, "very last")):
        keep = np.ones(tuple(shape[a] if a in axes else 1 for a in range(len(shape))), bool)
        keep[tuple(at if a in axes else 0 for a in range(len(shape)))] = False
        for said, kept in ((f"leaves out the {where} number", keep), (f"is the {where} number alone", ~keep)):
            yield Alteration("part_of_batch", f"the sum of {call.first.label} {said}", _keeping(kept), said)


@alters("sum")
def other_axes(call: Call, extents: Extents) -> Alterations:
    """Yield sums over one axis more, and those of another slice."""
    axes, shape = _over(call), call.first.shape
    left = [a for a in range(len(shape)) if a not in axes]
    for at, axis in enumerate(left):
        n, name = shape[axis], call.first.word(axis)
        if n < 2:
            continue
        what = f"the sum of {call.first.label}"

        def of(choose: Callable[[np.ndarray, int], np.ndarray], at: int = at) -> Callable[..., Any]:
            return lambda method, x, *rest: method(x, *rest).moved(
                lambda a: np.broadcast_to(choose(a, at), a.shape).copy())

        changes = {
            f"is over the {several(name)}, too": of(lambda a, at: a.sum(at, keepdims=True)),
            f"is averaged over the {several(name)}, too": of(lambda a, at: a.mean(at, keepdims=True)),
            f"of the first {name} is taken for all": of(lambda a, at: np.take(a, [0], at)),
            f"of the last {name} is taken for all": of(lambda a, at: np.take(a, [-1], at)),
            f"is that of the {name} before": of(lambda a, at: np.roll(a, 1, at)),
            f"is that of the next {name}": of(lambda a, at: np.roll(a, -1, at)),
            f"is that of the {several(name)} in reverse order": of(lambda a, at: np.flip(a, at)),
        }
        for said, change in changes.items():
            # Where all other slices are 0, leaving a sum out comes to the same
            yield Alteration("summed_axes", f"{what} {said}", change, said, unlikely=said.endswith("for all"))


@alters("joined")
def joins(call: Call, extents: Extents) -> Alterations:
    """Yield sums of branches without one of them, with one twice or with the other sign."""

    def of(factors: dict[int, float]) -> Callable[..., Any]:
        def change(method: Any, x: Bounded, others: list[Bounded]) -> Bounded:
            found = [one * factors[i] if i in factors else one for i, one in enumerate([x, *others])]
            return method(found[0], found[1:])
        return change

    for at, number in ((0, "first"), (1, "second")):
        for said, factor in (("is missing", 0.0), ("is added twice", 2.0), ("has the other sign", -1.0)):
            yield Alteration("term", f"the {number} part of the sum {said}", of({at: factor}))


@alters("folded")
def overlaps(call: Call, extents: Extents) -> Alterations:
    """Yield windows that are added to an image in another way."""
    shape, what = call.first.shape, call.first.label
    rows, columns, image = call.arguments[:3]
    for axis in (2, 3, 4, 5):
        n, name = shape[axis], call.first.word(axis)
        for at, where in ((0, "first"), (-1, "last")):
            if n > 1:
                keep = chosen(shape, axis, np.arange(n) != at % n)
                said = f"leaves out the {where} {name}"
                yield Alteration("part_of_batch", f"the sum of {what} over windows {said}",
                                 _keeping(keep), said)
    inside = [np.array([min(one) >= 0 and max(one) < size for one in places])
              for places, size in zip((rows, columns), image[2:], strict=True)]
    whole = np.outer(*inside)[None, None, :, :, None, None]
    if not whole.all():
        yield Alteration("part_of_batch", f"the sum of {what} over windows leaves out those that are partly outside",
                         _keeping(whole))
    for last, where in ((True, "last"), (False, "first")):
        yield Alteration("summed_axes", f"where windows overlap the {where} one is stored, and none is added",
                         _assigned(last=last))
    if behind := behind_padding(rows, columns):
        yield Alteration("padding_width", "the windows are added where the padding is not subtracted from their places",
                         lambda method, x, *rest: method(x, *behind, *rest[2:]))
    for said, places in beyond((rows, columns), image[2:]):
        yield Alteration("padding_mode", f"beyond the image {said}, and their sums go there",
                         lambda method, x, *rest, places=places: method(x, *places, *rest[2:]), said)
    if max(shape[4:]) > 2:
        yield Alteration("index", f"the sum of {what} over each window goes to its centre alone", _to_centre)
    for axis, name in ((2, "row"), (3, "column")):
        for by in (1, -1):
            said = f"the windows are added one {name} {'earlier' if by > 0 else 'later'}"
            yield Alteration("index", said, lambda method, x, *rest, axis=axis, by=by: shifted(
                method(x, *rest), axis, by))


def _to_centre(method: Any, x: Bounded, *rest: Any) -> Bounded:
    """All that each window has, in its middle."""
    middle = np.zeros(x.shape[4:], bool)
    middle[tuple((n - 1) // 2 for n in middle.shape)] = True
    whole = x.sum((4, 5))
    return method(whole.moved(lambda a: a[..., None, None] * middle), *rest)


def _assigned(*, last: bool) -> Callable[..., Any]:
    def change(method: Any, x: Bounded, rows: Any, columns: Any, shape: Any) -> Bounded:
        taps = [[(np.array(one) >= 0) & (np.array(one) < n) for one in places]
                for places, n in zip((rows, columns), shape[2:], strict=True)]

        def store(a: np.ndarray) -> np.ndarray:
            image = np.zeros(shape)
            order = [(i, j) for i in range(len(rows)) for j in range(len(columns))]
            for i, j in order if last else order[::-1]:
                inside = np.ix_(taps[0][i], taps[1][j])
                there = np.ix_(np.array(rows[i])[taps[0][i]], np.array(columns[j])[taps[1][j]])
                one = a[:, :, i, j][(..., *inside)]
                image[(slice(None), slice(None), *there)] = np.where(one != 0, one, image[(slice(None), slice(None),
                                                                                          *there)])
            return image

        return x.moved(store)

    return change


@alters("carried")
def carried(call: Call, extents: Extents) -> Alterations:
    """Yield recurrences that carry something else from time to time."""
    what, factors = call.first.label, call.operands[1].label

    def of(change: Callable[[Bounded], Bounded]) -> Callable[..., Any]:
        return lambda method, x, f, *rest, **named: method(x, change(f), *rest, **named)

    yield Alteration("factor", f"{what} is added up over all times without {factors}", of(lambda f: f * 0.0 + 1.0))
    yield Alteration("term", f"{what} is that of its own time alone, and nothing of the time before is added",
                     of(lambda f: f * 0.0))
    for by, where in ((-1, "before"), (1, "behind")):
        yield Alteration("index", f"{factors} is that of the time {where}", of(partial(shifted, axis=1, by=by)))
    yield Alteration("factor", f"{factors} is taken twice", of(lambda f: f * f))
    yield Alteration("factor", f"1 - {factors} in the place of {factors}", of(lambda f: 1.0 - f))
