# SPDX-License-Identifier: MIT
"""Pixels that are moved, turned over, or averages of their neighbours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.view import PER_NUMBER, Array, Seen, View
from bridge.judge.diagnosis.evidence.words import factor, listed
from bridge.judge.diagnosis.predictions.convolutions import Data

#: Pixels to each side that may be averaged
REACH = 2


def neighbours(view: View) -> Iterator[Seen]:
    """Yield combinations of the right pixels around; the weights are solved for, in the interior."""
    if view.right.ndim != 4 or view.axes[2] != "row":
        return
    height, width = view.right.shape[2:]
    reach = [min(REACH, (n - 1) // 2) for n in (height, width)]
    if max(reach) == 0 or min(height, width) < 2:
        return
    n, c, i, j = view.place
    offsets = list(itertools.product(range(-reach[0], reach[0] + 1), range(-reach[1], reach[1] + 1)))
    # Only pixels all of whose neighbours are there
    inside = (i >= reach[0]) & (i < height - reach[0]) & (j >= reach[1]) & (j < width - reach[1])
    if np.count_nonzero(inside) < max(8 * len(offsets), inside.size // 3):
        return
    part = View(view.found, view.right, view.bound, view.axes, at=view.at[inside])
    n, c, i, j = part.place
    columns = np.stack([view.right[n, c, i + di, j + dj] for di, dj in offsets], 1)
    weights, rest = part.solve(columns)
    weights[np.abs(weights) < 1e-4 * np.abs(weights).max()] = 0
    there = np.flatnonzero(weights)
    rows, cols = (sorted({offsets[k][a] for k in there}) for a in (0, 1))
    if there.size == 0:
        return
    # Where each pixel has one of these neighbours that is not 0, nothing is known of their sum
    several = np.count_nonzero(columns[:, there], axis=1) > 1
    alone = np.count_nonzero(several & (part.f != part.r)) < PER_NUMBER * there.size
    if there.size > 1 and alone:
        return
    if there.size == 1 and not part.r.any():
        said = (f"pixels that should be exactly 0 are {factor(float(weights[there[0]]))} times the right pixel "
                f"{_away(offsets[there[0]])}")
        look = "where a stride is undone, the test whether a pixel lies on it"
    elif there.size == 1:
        said = f"it is {factor(float(weights[there[0]]))} times the right pixel {_away(offsets[there[0]])}"
        look = "the index of the row or column: off by so many pixels"
    elif np.ptp(weights[there]) <= 1e-3 * np.abs(weights[there]).max() and there.size == len(rows) * len(cols):
        each = factor(float(weights[there].mean()))
        said = f"it is {each} times the sum over the {len(rows)} x {len(cols)} pixels around"
        look = "a filter, a pooling or an interpolation that averages pixels"
    else:
        words = [f"{factor(float(weights[k]))} times the pixel {_away(offsets[k])}" for k in there]
        said = f"it is a combination of right pixels: {listed(words)}"
        look = "a filter, a pooling or an interpolation over neighbouring pixels"
    yield Seen(said + " (in the interior)", look, rest, int(there.size) + 1)


def _away(offset: tuple[int, int]) -> str:
    """
    >>> _away((0, 0)), _away((-1, 2))
    ('itself', '1 above, 2 to the right')
    """
    i, j = offset
    words = []
    if i:
        words.append(f"{abs(i)} {'above' if i < 0 else 'below'}")
    if j:
        words.append(f"{abs(j)} to the {'left' if j < 0 else 'right'}")
    return ", ".join(words) or "itself"


def untested(view: View, case: Case) -> Iterator[Seen]:
    """Yield data gradients of strided layers whose pixels off the stride are given those before them."""
    right = case.right
    if not isinstance(right, Data) or max(right.layer.stride) == 1:
        return
    down, across = right.layer.stride
    for rows, columns in dict.fromkeys([(down, across), (down, 1), (1, across)]):
        inside = (view.place[2] >= rows - 1) & (view.place[3] >= columns - 1)
        if rows * columns == 1 or 2 * np.count_nonzero(inside) < inside.size:
            continue
        part = View(view.found, view.right, view.bound, view.axes, at=view.at[inside])
        n, c, i, j = part.place
        predicted = sum(view.right[n, c, i - a, j - b] for a in range(rows) for b in range(columns))
        of = " and ".join(f"({word} + padding - tap)/{by}"
                          for word, by in (("row", rows), ("column", columns)) if by > 1)
        yield Seen(f"it is what is gathered without the test whether a pixel lies on the stride: {of} rounded down "
                   "(in the interior)", "where the stride is undone: what does not divide belongs to no output",
                   part.rest(np.asarray(predicted)))


def turned(view: View) -> Iterator[Seen]:
    """Yield images, or kernels, that are turned over or around, with any image and channel in its own place."""
    look = "the order of rows and columns in loops, strides and declarations"
    if view.right.ndim == 4:
        used = view.used()
        box = view.right[np.ix_(*used)]
        place = tuple(np.searchsorted(u, p) for u, p in zip(used, view.place, strict=True))
        for said, other in _turns(box).items():
            yield Seen(f"each picture is {said}", look, view.rest(other[place]))
    flat = view.right.reshape(-1)
    pictures = [("the memory", flat.size)]
    if view.right.ndim == 4:
        pictures.append(("each picture", view.right.shape[2] * view.right.shape[3]))
    for said, size in pictures:
        # The same numbers in another order of memory
        start, at = view.at // size * size, view.at % size
        for by in range(1, min(size, 33)):
            for back in (by, -by):
                # What comes from the other end alone is no shift
                if 2 * np.count_nonzero((at + back < 0) | (at + back >= size)) > at.size:
                    continue
                how = f"{said} is moved {'forward' if back < 0 else 'back'} by {by} numbers"
                rest = view.rest(flat[start + (at + back) % size])
                yield Seen(how, "the address at which this begins; an offset", rest)


def _turns(box: Array) -> dict[str, Array]:
    """Of images, or of the part of them that is wrong."""
    turns = {
        "turned upside down": box[:, :, ::-1],
        "mirrored left to right": box[..., ::-1],
        "turned by 180 degrees": box[:, :, ::-1, ::-1],
    }
    if box.shape[2] == box.shape[3]:
        turns |= {"transposed": box.swapaxes(2, 3), "turned by 90 degrees": np.rot90(box, 1, (2, 3)),
                  "turned by -90 degrees": np.rot90(box, -1, (2, 3)),
                  "transposed along the other diagonal": box[:, :, ::-1, ::-1].swapaxes(2, 3)}
    return turns
