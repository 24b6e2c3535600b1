# SPDX-License-Identifier: MIT
"""How large an error is that nothing explains, and where most of it is."""

from __future__ import annotations

import numpy as np

from bridge.judge.diagnosis.evidence.words import indices, listed

Array = np.ndarray

#: Share of the squared error that lies in a few indices of an axis, share of the axis that is few, and of the squares
#: of the right values that may lie there: where these are large, any error is
MOST, FEW, USUAL = 0.9, 0.25, 0.5
#: What a factor may leave of an error that it is said to come near to, and numbers whose factors are listed
LEFT, LISTED = 0.3, 3


def extent(found: Array, right: Array, wrong: Array, axes: tuple[str, ...]) -> str:
    """Return the size of an error beside the right values, a factor that comes near, and the indices that hold most.

    Parameters
    ----------
    found, right : candidate and right values, of one shape
    wrong : mask of the elements outside of their bounds
    axes : a word for each axis
    """
    f, r = found[wrong], right[wrong]
    norm = float(np.linalg.norm(r))
    if not f.size or not np.isfinite(f).all() or not norm > 0:
        return ""
    if found.size <= LISTED:
        return f"Found / right: {listed([f'{x:.4g}' for x in (found / right).ravel()])}." if right.all() else ""
    error = float(np.linalg.norm(f - r))
    said = f"The error is {_percent(error / norm)} of the right values there (Euclidean norms)"
    slope = float(r @ f) / norm**2
    left = float(np.linalg.norm(f - slope * r)) / error
    if left <= LEFT and f.size > LISTED:
        said += f"; nearly, they are multiplied by {slope:.3g}, which leaves {_percent(left)} of it"
    return said + _concentrated(np.where(wrong, found - right, 0.0), right, axes) + "."


def _concentrated(error: Array, right: Array, axes: tuple[str, ...]) -> str:
    """The axis of which the smallest share of indices holds most of the squared error."""
    best: tuple[float, str] = (FEW, "")
    for axis, word in enumerate(axes):
        others = tuple(a for a in range(error.ndim) if a != axis)
        square, usual = (np.sum(x**2, axis=others) for x in (error, right))
        order = np.argsort(-square)
        held = np.cumsum(square[order]) / square.sum()
        few = 1 + int(np.argmax(held >= MOST))
        chosen = np.sort(order[:few])
        share = few / square.size
        # Said already where nothing else is wrong
        news = np.count_nonzero(square) > few
        if news and share <= best[0] and usual[chosen].sum() <= USUAL * usual.sum():
            best = share, (f"; {_percent(float(held[few - 1]))} of its square is in "
                           f"{indices(chosen, square.size, word)}")
    return best[1]


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):g} %" if share <= 10 else "more than 1000 %"
