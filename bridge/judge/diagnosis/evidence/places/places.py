# SPDX-License-Identifier: MIT
"""Where a tensor is wrong, by its own axes, and by the right values there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.evidence.view import Array, View
from bridge.judge.diagnosis.evidence.words import indices

#: Share of the elements of a place that are wrong, where it is the place: a ReLU's zeros, and numbers that agree by
#: chance, are right whatever happens
FILLED = 0.2


def place(view: View) -> str:
    """Return where the wrong elements are, "in the last image (2 of 3)"; empty where they are everywhere, or scattered.
    """
    shape, used = view.right.shape, view.used()
    if view.right.size == 1:
        return ""
    narrow = [(indices(one, size, word), 2 * one.size <= size or word == "image")
              for axis, (one, size, word) in enumerate(zip(used, shape, view.axes, strict=True))
              if 0 < one.size < size and not _is_empty(view.right, one, axis)]
    words = [word for word, _ in narrow]
    inside = view.wrong[np.ix_(*used)]
    share = float(inside.mean())
    if len(shape) == 4 and view.axes[2] == "row" and (frame := _frame(view.wrong)):
        words = [word for word in words if "row" not in word and "column" not in word]
        return f"in a border of {frame} pixels{', in ' + ', '.join(words) if words else ''}"
    if len(shape) == 4 and view.axes[2] == "row" and _border(view.wrong) and inside.size > 1:
        words = [word for word in words if "row" not in word and "column" not in word]
        return f"{_sides(view.wrong)}{' in ' + ', '.join(words) if words else ''}"
    rule = next(_rules(view), "") if share < 0.98 else ""
    if share < FILLED and not rule:
        return f"in single elements{', in ' + ', '.join(words) if words else ''}" if share < 0.02 else ""
    if rule:
        words = [word for word, is_narrow in narrow if is_narrow]
    return " ".join(filter(None, [f"in {', '.join(words)}" if words else "", rule]))


def _is_empty(right: Array, used: Array, axis: int) -> bool:
    """Whether all right numbers besides some indices of an axis are 0: that nothing is wrong there is no news."""
    return not np.delete(right, used, axis).any()


def _border(wrong: Array) -> bool:
    height, width = wrong.shape[2:]
    if height < 7 or width < 7:
        return False
    rows, columns = wrong.any(axis=(0, 1, 3)), wrong.any(axis=(0, 1, 2))
    inner = wrong[..., 2:-2, 2:-2]
    return bool(rows.sum() > 2 and columns.sum() > 2 and not inner.any())


def _sides(wrong: Array) -> str:
    """Which rows and columns at the border are wrong as a whole, where not all four sides are."""
    some = np.asarray(wrong.any(axis=(0, 1)))
    height, width = some.shape
    rows, columns = np.flatnonzero(some[:, 2:-2].any(1)), np.flatnonzero(some[2:-2].any(0))
    outer = [one.min() < 2 <= one.max() for one in (rows, columns) if one.size]
    if all(outer):
        return "on the border of images"
    return f"in {indices(rows, height, 'row')} and {indices(columns, width, 'column')}"


def _frame(wrong: Array) -> int:
    """Width of a frame, of two pixels or more, that is wrong where the rest of the image is right; 0 where none is."""
    some = np.asarray(wrong.any(axis=(0, 1)))
    rows = np.flatnonzero(~some.all(axis=1))
    width = int(rows[0]) if rows.size else 0
    if not 2 <= width < min(some.shape) / 2:
        return 0
    inner = (slice(width, some.shape[0] - width), slice(width, some.shape[1] - width))
    outside = np.ones(some.shape, bool)
    outside[inner] = False
    return width if np.array_equal(some, outside) else 0


def _alike(one: str, other: str) -> bool:
    """Axes whose indices say something of each other: two of channels, or of pixels, or of taps."""
    sorts = ({"channel", "input", "output"}, {"row", "column"})
    return any(one.split()[-1] in sort and other.split()[-1] in sort for sort in sorts)


def _rules(view: View) -> Iterator[str]:
    """Conditions by which elements are wrong: of their indices, and of the right value."""
    place, wrong = view.place, view.wrong.reshape(-1)[view.at]
    # Right by chance are numbers that are 0 or nearly so
    large = np.abs(view.r) > 10 * view.e
    for (a, one), (b, other) in itertools.combinations(enumerate(place), 2):
        if min(view.right.shape[a], view.right.shape[b]) < 3 or not _alike(view.axes[a], view.axes[b]):
            continue
        names = f"{view.axes[a]} and {view.axes[b]}"
        for said, rule in ((f"where {names} are equal", one == other), (f"where {names} differ", one != other),
                           (f"where {names} add up to an even number", (one + other) % 2 == 0),
                           (f"where {names} add up to an odd number", (one + other) % 2 == 1),
                           *((f"where {names} are of different groups of {g}", one // g != other // g)
                             for g in (2, 4, 8, 16) if 2 * g <= min(view.right.shape[a], view.right.shape[b])),
                           (f"where the {view.axes[a]} is above the {view.axes[b]} in number", one > other),
                           (f"where the {view.axes[a]} is below the {view.axes[b]} in number", one < other)):
            # Few elements are spared by chance
            spared = np.count_nonzero(large & ~rule) > 8
            if spared and not wrong[~rule].any() and wrong[rule & large].size > 8 and wrong[rule & large].mean() > 0.9:
                yield said
    right = ~wrong
    if np.count_nonzero(wrong) >= 8 and np.count_nonzero(right) >= 8:
        for name, x in {"the right value": view.r, "the size of the right value": np.abs(view.r)}.items():
            if x[wrong].min() > x[right].max():
                yield f"where {name} is above {x[right].max() + 0.0:.3g}"
            if not x[wrong].any():
                yield f"where {name} is 0"
            elif x[wrong].max() < x[right].min():
                yield f"where {name} is below {x[right].min() + 0.0:.3g}"
        for name, other in view.operands.items():
            y = other.reshape(-1)[view.at]
            if y[wrong].max() <= 0 <= y[right].min():
                yield f"where {name} is not positive"
            if y[wrong].min() >= 0 >= y[right].max():
                yield f"where {name} is not negative"
            low, high = float(y[wrong].min()), float(y[wrong].max())
            if high > low and not ((y[right] > low) & (y[right] < high)).any():
                yield f"where {name} lies between {low:.3g} and {high:.3g}"
