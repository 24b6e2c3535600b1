# SPDX-License-Identifier: MIT
"""Which mean is subtracted from a pair, and by which standard deviation it is divided: the same for both halves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from bridge.common.errors import ArgumentError, FileError
from bridge.data.bad_file import ValuesError
from bridge.data.pairs import INPUT, ImagePairs

#: None, of each image, of the whole set, or given numbers
Normalization = Literal["image", "set"] | tuple[float, float] | None

#: Rows of an image that are looked at, evenly spaced
ROWS = 64
#: Images that "set" looks at, evenly spaced
IMAGES = 64
#: Images whose numbers are remembered
REMEMBERED = 1 << 16


class Scale:
    """Mean and standard deviation for each pair.

    Parameters
    ----------
    data : pairs
    wanted : what the caller asks for; "set" reads its sample at once

    Attributes
    ----------
    fixed : (mean, standard deviation) of all pairs, or None with "image"
    """

    def __init__(self, data: ImagePairs, wanted: Normalization) -> None:
        self.fixed = _fixed(data, wanted)
        self._measured = lru_cache(REMEMBERED)(lambda pair: statistics([sample(data, pair)]))

    def of(self, pair: int) -> tuple[float, float]:
        """Return mean and standard deviation; 0 and 1 leave all as it is."""
        return self.fixed or self._measured(pair)


def _fixed(data: ImagePairs, wanted: Normalization) -> tuple[float, float] | None:
    if wanted is None:
        return 0.0, 1.0
    if wanted == "image":
        return None
    if wanted == "set":
        count = min(len(data), IMAGES)
        return statistics(_samples(data, [(2 * k + 1) * len(data) // (2 * count) for k in range(count)]))
    numbers = tuple(map(float, wanted)) if isinstance(wanted, tuple | list) else ()
    if len(numbers) != 2 or not all(map(math.isfinite, numbers)) or numbers[1] <= 0:
        raise ArgumentError(f"normalization: {wanted!r}, expected None, 'image', 'set', or (mean, standard deviation) "
                            "with a positive one")
    return numbers[0], numbers[1]


def _samples(data: ImagePairs, pairs: Sequence[int]) -> list[np.ndarray]:
    """Those of pairs whose values are finite; others are skipped, or refused."""
    found = []
    for pair in pairs:
        try:
            found.append(sample(data, pair))
        except ValuesError as error:
            if data.on_bad == "refuse" or (pair == pairs[-1] and not found):
                raise FileError(str(error)) from None
    return found


def sample(data: ImagePairs, pair: int) -> np.ndarray:
    """Return evenly spaced rows of a pair's input, all where it has no more than `ROWS`; float64, one dimension."""
    height = data.shape(pair)[1]
    if height <= ROWS:
        return data.read(pair, INPUT).astype(np.float64).ravel()
    rows = [(2 * k + 1) * height // (2 * ROWS) for k in range(ROWS)]
    return np.concatenate([data.read(pair, INPUT, slice(row, row + 1)).ravel() for row in rows], dtype=np.float64)


def statistics(samples: list[np.ndarray]) -> tuple[float, float]:
    """Return mean and standard deviation of all samples together; 1 for the latter where all values are the same.

    >>> statistics([np.array([1.0, 3.0]), np.array([5.0])])
    (3.0, 1.632993161855452)
    >>> statistics([np.full(7, 0.1)])
    (0.1, 1.0)
    """
    # From the first value on: rounding then makes no deviation where there is none
    origin = float(samples[0][0])
    count = sum(one.size for one in samples)
    mean = sum(float((one - origin).sum()) for one in samples) / count
    variance = sum(float(np.square(one - origin - mean).sum()) for one in samples) / count
    return origin + mean, math.sqrt(variance) or 1.0
