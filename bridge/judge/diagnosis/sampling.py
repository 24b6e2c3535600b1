# SPDX-License-Identifier: MIT
"""A few elements of a tensor that stand for all of them."""

from __future__ import annotations

import numpy as np

Array = np.ndarray

#: Elements by which hypotheses about large tensors are rejected, and as many again of the border
SAMPLE = 2048
#: A tensor of at most so many elements is its own sample
SMALL = 8192


def sample(shape: tuple[int, ...]) -> Array:
    """Return flat indices: all of a small tensor; of a large one some at random, and some of the border of images."""
    size = int(np.prod(shape))
    if size <= SMALL:
        return np.arange(size)
    rng = np.random.default_rng(0)
    anywhere = rng.choice(size, SAMPLE, replace=False)
    place = [rng.integers(0, n, SAMPLE) for n in shape]
    # Border rows and columns, corners among them
    for axis in (-2, -1):
        border = rng.random(SAMPLE) < 0.6
        place[axis] = np.where(border, rng.choice([0, shape[axis] - 1], SAMPLE), place[axis])
    return np.unique(np.concatenate([anywhere, np.ravel_multi_index(tuple(place), shape)]))


def few_channels(shape: tuple[int, ...]) -> Array:
    """Return flat indices of a filter gradient: all taps of two output and two input channels."""
    k, c, r, s = shape
    chosen = [np.unique([n // 3, (2 * n) // 3]) for n in (k, c)]
    place = np.ix_(*chosen, np.arange(r), np.arange(s))
    return np.ravel_multi_index(np.broadcast_arrays(*place), shape).ravel()
