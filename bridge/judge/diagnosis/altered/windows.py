# SPDX-License-Identifier: MIT
"""Windows, resampling, products of matrices, and numbers in another order."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from bridge.judge.diagnosis.altered.alteration import (
    BEYOND,
    Alteration,
    Alterations,
    Extents,
    alters,
    behind_padding,
    beyond,
    chosen,
    near,
    only,
    shifted,
)
from bridge.judge.diagnosis.altered.calls import Call
from bridge.judge.diagnosis.evidence.words import several
from bridge.judge.diagnosis.faults.padding import of_places
from bridge.judge.oracle.bounded import Bounded

Array = np.ndarray


@alters("windows")
def windows(call: Call, extents: Extents) -> Alterations:
    """Yield windows that begin elsewhere, or see something else beyond the image."""
    fill = call.operands[-1].number
    if behind := behind_padding(*call.arguments[:2]):
        yield Alteration("padding_width", "all of the padding is below the last row and right of the last column",
                         lambda method, x, *rest: method(x, *behind, *rest[2:]))
    for axis, name in ((2, "row"), (3, "column")):
        for by, where in ((1, "later"), (-1, "earlier")):
            def moved(method: Any, x: Bounded, *rest: Any, axis: int = axis, by: int = by) -> Bounded:
                return method(shifted(x, axis, by), *rest)

            yield Alteration("index", f"windows begin one {name} {where}", moved)
            for at, end in ((0, "first"), (-1, "last")):
                def edge(method: Any, x: Bounded, *rest: Any, axis: int = axis, at: int = at, moved: Any = moved
                         ) -> Bounded:
                    right, other = method(x, *rest), moved(method, x, *rest)
                    there = chosen(right.shape, axis, np.arange(right.shape[axis]) == at % right.shape[axis])
                    return Bounded(np.where(there, other.value, right.value),
                                   np.where(there, other.error, right.error), x.arithmetic)

                yield Alteration("index", f"the {end} {name} of windows begins one {name} {where}", edge)
    for said, inside in beyond(call.arguments[:2], call.first.shape[2:]):
        yield Alteration("padding_mode", f"beyond the image {said}",
                         lambda method, x, *rest, inside=inside: method(x, *inside, *rest[2:]), said)
    for other, said in ((0.0, "0"), (1.0, "1"), (-1.0, "-1"), (-math.inf, "minus infinity")):
        if other != fill and fill is not None:
            yield Alteration("padding_mode", f"beyond the image there is {said}, not {call.operands[-1].label}",
                             lambda method, x, *rest, other=other: method(x, *rest[:-1], other))


@alters("weights_between")
def interpolation(call: Call, extents: Extents) -> Alterations:
    """Yield other weights of an interpolation."""

    def of(weights: Any) -> Any:
        return lambda method, x, length: near(x, weights(x.value, length))

    def linear(at: Array, length: int) -> Array:
        """Of the pixels on both sides, which are extrapolated beyond the last ones."""
        below = np.clip(np.floor(at).astype(int), 0, max(length - 2, 0))
        share, found, rows = at - below, np.zeros((len(at), length)), np.arange(len(at))
        found[rows, below] += 1 - share
        found[rows, np.minimum(below + 1, length - 1)] += share
        return found

    def tent(at: Array, length: int) -> Array:
        return np.maximum(1 - np.abs(at[:, None] - np.arange(length)), 0.0)

    def one(at: Array, length: int) -> Array:
        return np.eye(length)[np.clip(at.astype(int), 0, length - 1)]

    what = "the place between two pixels"
    ways = {
        f"{what} is not limited to the image, and beyond it there is 0": tent,
        f"{what} is not limited to the first pixel, and before it there is 0": lambda at, n: tent(
            np.minimum(at, n - 1), n),
        f"{what} is not limited to the last pixel, and behind it there is 0": lambda at, n: tent(np.maximum(at, 0), n),
        f"{what} is not limited to the image: extrapolated beyond it": linear,
        f"{what} is not limited to the first pixel: extrapolated before it": lambda at, n: linear(
            np.minimum(at, n - 1), n),
        f"{what} is not limited to the last pixel: extrapolated behind it": lambda at, n: linear(np.maximum(at, 0), n),
        "the nearest pixel is taken": lambda at, n: one(np.rint(at), n),
        "the pixel before is taken, without interpolation": lambda at, n: one(np.floor(at), n),
        f"{what} is one pixel later": lambda at, n: tent(np.clip(at + 1, 0, n - 1), n),
        f"{what} is one pixel earlier": lambda at, n: tent(np.clip(at - 1, 0, n - 1), n),
        f"{what} is half a pixel later": lambda at, n: tent(np.clip(at + 0.5, 0, n - 1), n),
        f"{what} is half a pixel earlier": lambda at, n: tent(np.clip(at - 0.5, 0, n - 1), n),
        "the two weights of an interpolation are exchanged": lambda at, n: linear(
            2 * np.floor(np.clip(at, 0, n - 1)) + 1 - np.clip(at, 0, n - 1), n),
    }
    for said, weights in ways.items():
        yield Alteration("index", said, of(weights), said)


@alters("cubic_weights")
def cubic(call: Call, extents: Extents) -> Alterations:
    """Yield other weights of a cubic interpolation."""

    def of(a: float, by: float = 0.0) -> Any:
        def weights(method: Any, x: Bounded, length: int) -> Bounded:
            d = np.abs(x.value[:, None] + by - np.arange(length))
            near_one = ((a + 2) * d - (a + 3)) * d * d + 1
            return near(x, np.where(d <= 1, near_one, np.where(d < 2, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a, 0.0)))
        return weights

    what = "the place between two pixels"
    for a, said in ((-0.5, "a = -0.5, as in other libraries, in place of -0.75"), (-1.0, "a = -1 in place of -0.75")):
        yield Alteration("index", f"the cubic polynomial has {said}", of(a))
    yield Alteration("index", "the interpolation is linear", lambda method, x, length: near(
        x, np.maximum(1 - np.abs(x.value[:, None] - np.arange(length)), 0.0)))
    for by, said in ((1.0, "one pixel later"), (-1.0, "one pixel earlier"), (0.5, "half a pixel later"),
                     (-0.5, "half a pixel earlier")):
        yield Alteration("index", f"{what} is {said}", of(-0.75, by))


@alters("resized")
def resampling(call: Call, extents: Extents) -> Alterations:
    """Yield resamplings that leave out pixels, or read others."""
    for which, name in ((0, "row"), (1, "column")):
        n = call.operands[1 + which].shape[1]
        kept = {f"every second {name} is left out": np.arange(n) % 2 == 0,
                f"every second {name} is left out, from the first on": np.arange(n) % 2 == 1,
                f"the first {name} is left out": np.arange(n) > 0, f"the last {name} is left out": np.arange(n) < n - 1}
        for said, keep in kept.items():
            def drop(method: Any, x: Bounded, *both: Bounded, which: int = which, keep: Array = keep) -> Bounded:
                found = list(both)
                found[which] = only(found[which], keep[None, :])
                return method(x, *found)
            yield Alteration("part_of_batch", f"of what is resampled {said}", drop)
    for axis, name in ((2, "row"), (3, "column")):
        for by, where in ((1, "next"), (-1, "previous")):
            for edge, outside in ((True, "the edge repeated"), (False, "0 at the edge")):
                yield Alteration("index", f"the {where} {name} is resampled, {outside}",
                                 lambda method, x, *both, axis=axis, by=by, edge=edge: method(
                                     shifted(x, axis, by, edge=edge), *both))
    yield Alteration("index", "rows are resampled as columns and columns as rows", _exchanged)


def _exchanged(method: Any, x: Bounded, rows: Bounded, columns: Bounded) -> Bounded:
    turned = tuple(one.shape for one in (rows, columns))
    return method(x, columns, rows) if turned[0] == turned[1] else method(x, rows, columns)


@alters("__matmul__")
def products(call: Call, extents: Extents) -> Alterations:
    """Yield products of matrices without some terms, or of a transposed one."""
    a, b = call.first, call.second
    n = a.shape[-1]
    for at, where in ((0, "first"), (n - 1, "last")):
        keep = np.arange(n) != at
        yield Alteration("part_of_batch", f"the product of {a.label} and {b.label} leaves out the {where} of {n} terms",
                         lambda method, x, y, keep=keep: method(only(x, keep), y))
    for one, which in ((a, 0), (b, 1)):
        if len(one.shape) > 1 and one.shape[-1] == one.shape[-2]:
            def transposed(method: Any, *both: Bounded, which: int = which) -> Bounded:
                return method(*(x.moved(lambda v: v.swapaxes(-1, -2)) if i == which else x
                                for i, x in enumerate(both)))
            yield Alteration("in_out_swapped", f"{one.label} is transposed", transposed)


@alters("reshape", "transpose")
def memory(call: Call, extents: Extents) -> Alterations:
    """Yield numbers in another order of memory."""
    x = call.first.label
    if call.primitive == "reshape" and sum(n > 1 for n in call.first.shape) > 1:
        yield Alteration("column_major", f"{x} is reshaped in column-major order", lambda method, x, shape: x.moved(
            lambda a: a.reshape(shape, order="F")))
    if call.primitive == "transpose":
        yield Alteration("column_major", f"{x} is not transposed, its memory only read as if", lambda method, x, axes:
                         x.moved(lambda a: np.ascontiguousarray(a).reshape([a.shape[i] for i in axes])))


@alters("broadcast")
def repeated(call: Call, extents: Extents) -> Alterations:
    """Yield numbers that are repeated for others."""
    shape = call.first.shape
    for axis, n in enumerate(shape):
        if n > 1:
            name = call.first.word(axis)
            for by, where in ((1, "next"), (-1, "previous")):
                yield Alteration("index", f"{call.first.label} of the {where} {name}",
                                 lambda method, x, to, axis=axis, by=by: method(x.moved(
                                     lambda a: np.roll(a, -by, axis)), to))
            yield Alteration("index", f"{call.first.label} of the {several(name)} in reverse order",
                             lambda method, x, to, axis=axis: method(x.moved(lambda a: np.flip(a, axis)), to))


@alters("concatenated")
def behind(call: Call, extents: Extents) -> Alterations:
    """Yield parts in another order."""
    yield Alteration("joined", "the parts are joined in reverse order", _reversed)


def _reversed(method: Any, x: Bounded, others: list[Bounded], *axis: int) -> Bounded:
    parts = [x, *others][::-1]
    return method(parts[0], parts[1:], *axis)


@alters("padded")
def beside(call: Call, extents: Extents) -> Alterations:
    """Yield other numbers beside those of a tensor, or on other sides."""
    fill = call.operands[-1].number
    for other in (0.0, 1.0, -1.0):
        if other != fill and fill is not None:
            yield Alteration("padding_mode", f"beside the numbers there is {other:g}, not {call.operands[-1].label}",
                             lambda method, x, sides, number, other=other: method(x, sides, other))
    yield Alteration("padding_mode", "what is put before and behind is exchanged",
                     lambda method, x, sides, number: method(x, tuple(one[::-1] for one in sides), number))
    for mode, said in BEYOND.items():
        yield Alteration("padding_mode", f"beside the numbers {said}", partial(_of_its_own, mode=mode))


def _of_its_own(method: Any, x: Bounded, sides: tuple[tuple[int, int], ...], number: float, *, mode: str) -> Bounded:
    kept = method(x, tuple((min(before, 0), min(behind, 0)) for before, behind in sides), number)
    beside = tuple((max(before, 0), max(behind, 0)) for before, behind in sides)
    return kept.moved(lambda a: a[np.ix_(*of_places(a.shape, beside, mode))])


@alters("rows")
def rows(call: Call, extents: Extents) -> Alterations:
    """Yield the rows beside those that whole numbers choose."""
    for by, words in ((-1, "the row before that is taken: numbers count from 1"), (1, "the row behind that is taken")):
        def beside(method: Any, x: Bounded, at: Array, by: int = by) -> Bounded:
            return method(x, np.clip(at + by, 0, x.shape[1] - 1))

        yield Alteration("index", words, beside)


@alters("scattered")
def scattered(call: Call, extents: Extents) -> Alterations:
    """Yield sums without what comes back from beside a tensor."""
    places = call.arguments[0]
    for last, where in ((False, "first"), (True, "last")):
        def one_of(method: Any, x: Bounded, places: Any, shape: Any, last: bool = last) -> Bounded:
            keep = [np.array([at not in (one[i + 1:] if last else one[:i]) for i, at in enumerate(one)])
                    for one in places]
            return method(x.moved(lambda a: a * np.prod(np.meshgrid(*keep, indexing="ij"), 0)), places, shape)

        if any(len(set(one)) < len(one) for one in places):
            yield Alteration("summed_axes", f"of the gradients of one number the {where} is stored, and none is added",
                             one_of)
    if call.primitive == "scattered" and len(places) == 2:
        yield from _rows_scattered()


def _rows_scattered() -> Alterations:
    """Yield sums of rows that go to the rows beside, and means."""
    for by, words in ((-1, "before"), (1, "behind")):
        def beside(method: Any, x: Bounded, places: Any, shape: Any, by: int = by) -> Bounded:
            return method(x, (np.clip(np.asarray(places[0]) + by, 0, shape[0] - 1), places[1]), shape)

        yield Alteration("index", f"each goes to the row {words} its own", beside)

    def mean(method: Any, x: Bounded, places: Any, shape: Any) -> Bounded:
        count = np.maximum(np.bincount(places[0], minlength=shape[0]), 1)[:, None]
        return method(x, places, shape) * Bounded(1 / count, x.arithmetic.u / count, x.arithmetic)

    yield Alteration("count", "it is divided by how many there are of each row", mean)
