# SPDX-License-Identifier: MIT
"""The rounding of the gradient itself, measured.

A loss is one number: it does not show over how many terms, of which signs, a gradient was summed inside. Its third
differences along a short path do, as those of `forward` do for its noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from bridge.gradcheck.differences import EVALUATIONS, PATHS, Functional, balanced_steps, deviation

Array = np.ndarray


def gradient_noise(gradients: Callable[[tuple[Array, ...]], Sequence[Array | None]], functional: Functional,
                   rng: np.random.Generator) -> list[Array | None]:
    """Return the standard deviation of the rounding of every element of every gradient; None where there is none.

    All inputs move at once, for the gradient of a linear function does not depend on its own input.

    Parameters
    ----------
    gradients : of the inputs, at a point
    functional : the point, and the kinks that a path must not cross
    """
    strides = [balanced_steps(x) * rng.choice([-1.0, 1.0], x.shape) for x in functional.inputs]
    for part in PATHS:
        points = [tuple((x + k * part * h).astype(x.dtype) for x, h in zip(functional.inputs, strides, strict=True))
                  for k in range(EVALUATIONS)]
        smooth = _windows(points, functional)
        if np.count_nonzero(smooth) >= EVALUATIONS // 2:
            break
    found = [gradients(tuple(x.copy() for x in point)) for point in points]
    return [None if of_one[0] is None else _noise(np.stack(of_one), smooth) for of_one in zip(*found, strict=True)]


def _windows(points: list[tuple[Array, ...]], functional: Functional) -> Array:
    """Which four neighbours lie on one side of all kinks."""
    if functional.kinks is None:
        return np.ones(EVALUATIONS - 3, bool)
    signs = [np.sign(functional.kinks(*(x.copy() for x in point))) for point in points]
    same = [np.array_equal(a, b) for a, b in pairwise(signs)]
    return np.array([all(same[k:k + 3]) for k in range(EVALUATIONS - 3)])


def _noise(path: Array, smooth: Array) -> Array:
    with np.errstate(invalid="ignore"):
        thirds = np.diff(path.astype(np.float64), 3, axis=0)
    smooth = smooth & np.isfinite(thirds.reshape(len(thirds), -1)).all(axis=1)
    return deviation(thirds[smooth]) if smooth.any() else np.zeros(path.shape[1:])
