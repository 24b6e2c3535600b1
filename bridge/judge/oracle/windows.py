# SPDX-License-Identifier: MIT
"""Windows of images, and windows added up to images: of any pixels, in arrays of float64."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Array = np.ndarray
#: Of each window along an axis its pixels; those below 0, or from the axis' length on, are what surrounds the image
Places = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Axis:
    """What windows take along an axis that is longer by some pixels before and behind.

    Attributes
    ----------
    regular : first pixel, steps from window to window and from tap to tap; none of windows that differ
    index : where they take each tap from, of all windows (windows, taps)
    """

    before: int
    behind: int
    regular: tuple[int, int, int] | None
    index: Array


def _axis(places: Places, length: int) -> _Axis:
    index = np.array(places)
    step, hole = (int(np.diff(index, axis=axis).flat[0]) if index.shape[axis] > 1 else 1 for axis in (0, 1))
    first, (windows, taps) = int(index[0, 0]), index.shape
    if step > 0 and hole > 0 and np.array_equal(
            index, first + step * np.arange(windows)[:, None] + hole * np.arange(taps)):
        before, behind = max(0, -first), max(0, int(index[-1, -1]) + 1 - length)
        return _Axis(before, behind, (first + before, step, hole), index + before)
    return _Axis(0, 1, None, np.where((index >= 0) & (index < length), index, length))


def _axes(rows: Places, columns: Places, shape: tuple[int, ...]) -> tuple[_Axis, _Axis]:
    return _axis(rows, shape[2]), _axis(columns, shape[3])


def view(images: Array, rows: Places, columns: Places, fill: float) -> Array:
    """Return the windows (n, c, p, q, r, s) of images (n, c, h, w), outside of which `fill` stands.

    >>> view(np.arange(4.0).reshape(1, 1, 1, 4), ((0,),), ((-1, 1), (1, 3)), 9.0)[0, 0, 0, :, 0].tolist()
    [[9.0, 1.0], [1.0, 3.0]]
    """
    down, across = _axes(rows, columns, images.shape)
    padded = np.pad(images, ((0, 0), (0, 0), *((one.before, one.behind) for one in (down, across))),
                    constant_values=fill)
    if down.regular is None or across.regular is None:
        found: Array = padded[:, :, down.index[:, None, :, None], across.index[None, :, None, :]]
        return found
    spans, starts, holes = [], [], []
    for one in (down, across):
        assert one.regular is not None
        first, step, hole = one.regular
        spans.append(hole * (one.index.shape[1] - 1) + 1)
        starts.append(slice(first, first + step * (len(one.index) - 1) + 1, step))
        holes.append(slice(None, None, hole))
    return sliding_window_view(padded, spans, (2, 3))[:, :, starts[0], starts[1], holes[0], holes[1]]


def fold(windows: Array, rows: Places, columns: Places, shape: tuple[int, ...]) -> Array:
    """Return windows (n, c, p, q, r, s) summed to the images of `shape` that they were taken from.

    >>> fold(np.ones((1, 1, 1, 2, 1, 2)), ((0,),), ((0, 1), (1, 2)), (1, 1, 1, 3)).ravel().tolist()
    [1.0, 2.0, 1.0]
    """
    down, across = _axes(rows, columns, shape)
    image = np.zeros((*shape[:2], *(n + one.before + one.behind for n, one in zip(
        shape[2:], (down, across), strict=True))))
    for i in range(windows.shape[4]):
        for j in range(windows.shape[5]):
            if down.regular and across.regular:
                there = [slice(int(one[0]), int(one[-1]) + 1, axis.regular[1]) for axis, one in (
                    (down, down.index[:, i]), (across, across.index[:, j])) if axis.regular]
                image[:, :, there[0], there[1]] += windows[..., i, j]
            else:
                taps: Any = (slice(None), slice(None), down.index[:, None, i], across.index[None, :, j])
                np.add.at(image, taps, windows[..., i, j])
    return image[:, :, down.before:down.before + shape[2], across.before:across.before + shape[3]]


def overlaps(rows: Places, columns: Places, shape: tuple[int, ...]) -> int:
    """Return how many windows have the pixel that most have, 1 where none has any.

    >>> overlaps(((0,),), ((-1, 0, 1), (1, 2, 3)), (1, 1, 1, 3))
    2
    """
    counts = [np.bincount(inside, minlength=1).max() for inside in (
        np.array([at for one in places for at in one if 0 <= at < length], int)
        for places, length in zip((rows, columns), shape[2:], strict=True))]
    return max(1, int(reduce(int.__mul__, map(int, counts))))
