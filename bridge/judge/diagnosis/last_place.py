# SPDX-License-Identifier: MIT
"""Errors of the last place: rounding of the tensor's own numbers, of which nothing is explained.

A bound may be smaller than that (of what cancels, or follows from few operations), and that of a prediction larger:
then any number that is a little off "explains" what is right but for an order of operations.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray

#: Roundings of a number, in units of u times its size, up to which two of them are the same but for their last place
LAST_PLACES = 4.0
#: Share of the wrong elements that an explanation must move by more
MOVED = 0.5


def moves(right: Array, other: Array, wrong: Array, u: float) -> bool:
    """Return whether other numbers differ from the right ones by more than the last place in most of what is wrong.

    Parameters
    ----------
    right, other : what a tensor should be, and what it is said to be
    wrong : bool, which elements are outside of their bounds; where none is, all are asked
    u : unit roundoff of the candidate

    Examples
    --------
    >>> right, wrong = np.array([1.0, 3.0, 0.0]), np.array([True, True, False])
    >>> moves(right, right * (1 - 1.5e-9), wrong, 2.0**-24), moves(right, right * (1 - 1e-6), wrong, 2.0**-24)
    (False, True)
    """
    with np.errstate(invalid="ignore", over="ignore"):
        same = np.abs(other - right) <= LAST_PLACES * u * np.maximum(np.abs(other), np.abs(right))
        same &= np.isfinite(other)
    return bool(np.mean(~(same[wrong] if wrong.any() else same)) >= MOVED)
