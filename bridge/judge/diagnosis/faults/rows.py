# SPDX-License-Identifier: MIT
"""Sums over images of which one row or column was left out or counted twice: found by what each of them adds."""

from __future__ import annotations

import numpy as np

from bridge.judge.diagnosis.faults.padding import window
from bridge.judge.diagnosis.predictions.convolutions import Filter
from bridge.judge.diagnosis.predictions.elementwise import BiasGradient
from bridge.judge.diagnosis.predictions.hypothesis import Hypotheses, Hypothesis, hypothesis, with_operand
from bridge.judge.diagnosis.sampling import few_channels

Array = np.ndarray

#: Numbers that a row agrees with by chance are fewer
ENOUGH = 4
#: Share of the error that a row may leave unexplained to be tried
MISFIT = 0.05


def miscounted_rows(right: Filter | BiasGradient, found: Array) -> Hypotheses:
    """Yield the sum with the row or column of dz whose part is nearest to the error left out, or counted twice.

    Parameters
    ----------
    right : the sum
    found : the candidate's
    """
    if found.size < ENOUGH or (isinstance(right, Filter) and right.layer.groups > 1):
        return
    indices = few_channels(right.shape) if isinstance(right, Filter) else np.arange(found.size)
    error = found.reshape(-1)[indices] - right.at(indices)
    if not np.linalg.norm(error) > 1e-12 * np.linalg.norm(found):
        return
    for axis, what in ((2, "row"), (3, "column")):
        parts = _filter_parts(right, axis) if isinstance(right, Filter) else _bias_parts(right, axis)
        if (one := _nearest(parts, error)) is not None:
            yield _counted(right, axis, what, *one)


def _counted(right: Filter | BiasGradient, axis: int, what: str, place: int, times: int) -> Hypothesis:
    size = right.dz.value.shape[axis]
    weights = np.ones(size)
    weights[place] = times
    shape = (size, 1) if axis == 2 else (size,)
    said = {0: "is left out", 2: "is summed twice"}[times]
    changed = with_operand(right, "dz", lambda dz: dz * weights.reshape(shape))
    return hypothesis("part_of_batch", f"{what} {place} of dz {said}", changed, fitted=True)


def _nearest(parts: Array, error: Array) -> tuple[int, int] | None:
    """The row (rows, elements) whose part is the error, and how often it counts; None where no part is near."""
    for times, sign in ((0, -1), (2, 1)):
        misfit = np.linalg.norm(parts - sign * error, axis=1)
        place = int(misfit.argmin())
        if misfit[place] <= MISFIT * np.linalg.norm(error):
            return place, times
    return None


def _bias_parts(right: BiasGradient, axis: int) -> Array:
    """What each row adds, (rows, channels)."""
    return right.dz.value.sum(axis=(0, 5 - axis)).T


def _filter_parts(right: Filter, axis: int) -> Array:
    """What each row adds to the elements of `few_channels`, (rows, elements)."""
    layer, (k, c) = right.layer, np.unravel_index(few_channels(right.shape), right.shape)[:2]
    ks, cs = np.unique(k), np.unique(c)
    dz, x = right.dz.value[:, ks], right.x.value[:, cs]
    (p, q), (sh, sw) = dz.shape[2:], layer.stride
    parts = np.empty((dz.shape[axis], ks.size, cs.size, *layer.kernel_size))
    for i, j in np.ndindex(*layer.kernel_size):
        start = (i * layer.dilation[0] - layer.padding[0], j * layer.dilation[1] - layer.padding[1])
        seen = window(x, start, ((p - 1) * sh + 1, (q - 1) * sw + 1))[..., ::sh, ::sw]
        parts[..., i, j] = np.einsum("nkij,ncij->ikc" if axis == 2 else "nkij,ncij->jkc", dz, seen, optimize=True)
    return parts.reshape(len(parts), -1)
