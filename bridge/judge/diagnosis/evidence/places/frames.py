# SPDX-License-Identifier: MIT
"""Filter gradients in which the outer rows and columns of dz count more or less than once, both at the same time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.view import PER_NUMBER, Array, Seen, View
from bridge.judge.diagnosis.evidence.words import counting, indices
from bridge.judge.diagnosis.predictions.convolutions import Filter
from bridge.judge.diagnosis.predictions.operations import Predicted

#: Rows and columns from each end that are told apart, and products of a gradient up to which they are
WIDTH, COSTLY = 2, 2**24
#: Distance from 0, 1 and 2 up to which a weight is one of them
NEAR = 0.25


def frames(view: View, case: Case) -> Iterator[Seen]:
    """Yield the sum without its outer rows and columns, or with these twice: the weights of all pieces of planes are
    solved for together.
    """
    right = case.right
    if not isinstance(right, Filter) or right.images is not None or right.products > COSTLY:
        return
    height, width = right.dz.value.shape[2:]
    rows, columns = _pieces(height), _pieces(width)
    shape = len(rows), len(columns)
    if np.count_nonzero(view.fitted) < PER_NUMBER * shape[0] * shape[1]:
        return
    parts = np.stack([_piece(right, row, column).reshape(-1)[view.at] for row in rows for column in columns], 1)
    weights = view.solve(parts)[0].reshape(shape)
    whole = np.rint(weights)
    # A piece that is 0 everywhere may count as it likes
    nothing = ~parts.any(0).reshape(shape)
    whole[nothing] = 1
    off = whole != 1
    if (np.abs(weights - whole)[~nothing] > NEAR).any() or not off.any() or np.unique(whole[off]).size > 1:
        return
    times = int(whole[off][0])
    all_rows, all_columns = (off | nothing).all(1), (off | nothing).all(0)
    both = all_rows[:, None] | all_columns
    if times not in (0, 2) or not all_rows.any() or not all_columns.any() or (
            (off | nothing) != (both | nothing)).any():
        return
    said = " and ".join(
        indices(np.concatenate([np.arange(size)[piece] for piece, out in zip(pieces, lost, strict=True) if out]), size,
                word)
        for pieces, lost, size, word in ((rows, all_rows, height, "row"), (columns, all_columns, width, "column")))
    yield Seen(f"it is the sum in which {said} of dz {counting(times, many=True)}",
               "the bounds of the loops over rows and columns of dz", view.rest(parts @ whole.reshape(-1), whole.size),
               whole.size)


def _pieces(size: int) -> list[slice]:
    """Each of the outer indices by itself, and what lies between them.

    >>> _pieces(6), len(_pieces(3))
    ([slice(0, 1, None), slice(1, 2, None), slice(2, 4, None), slice(4, 5, None), slice(5, 6, None)], 3)
    """
    ends = sorted({i for i in (*range(WIDTH + 1), *range(size - WIDTH, size + 1)) if 0 <= i <= size})
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


def _piece(right: Filter, row: slice, column: slice) -> Array:
    """What one piece of each plane of dz gives."""
    only = np.zeros_like(right.dz.value)
    only[:, :, row, column] = right.dz.value[:, :, row, column]
    return right.replaced(dz=Predicted(only)).values()
