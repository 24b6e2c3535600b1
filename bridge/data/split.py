# SPDX-License-Identifier: MIT
"""A part of the pairs held out, for validation."""

from __future__ import annotations

import numpy as np

from bridge.common.errors import ArgumentError
from bridge.data.arguments import check_range
from bridge.data.images import ALL, Images
from bridge.data.pairs import ImagePairs
from bridge.data.random_words import SPLIT, words


class Subset(ImagePairs):
    """Some of the pairs of others, in their order. Closing it closes those.

    Parameters
    ----------
    data : ImagePairs
    numbers : of the pairs, ascending
    """

    def __init__(self, data: ImagePairs, numbers: np.ndarray) -> None:
        self._data, self._numbers = data, numbers
        self.images, self.symmetric, self.on_bad = data.images, data.symmetric, data.on_bad

    def __len__(self) -> int:
        return len(self._numbers)

    def image(self, pair: int) -> int:
        return self._data.image(self._number(pair))

    def dtype(self, pair: int, half: int) -> np.dtype:
        return self._data.dtype(self._number(pair), half)

    def name(self, pair: int) -> str:
        return self._data.name(self._number(pair))

    def read(self, pair: int, half: int, rows: slice = ALL, columns: slice = ALL,
             out: np.ndarray | None = None) -> np.ndarray:
        return self._data.read(self._number(pair), half, rows, columns, out)

    def sources(self) -> tuple[Images, ...]:
        return self._data.sources()

    def close(self) -> None:
        self._data.close()

    def _number(self, pair: int) -> int:
        return int(self._numbers[pair])


def split(data: ImagePairs, part: float, seed: int = 0) -> tuple[Subset, Subset]:
    """Return pairs to train on and pairs that are held out: a function of how many there are, and the seed.

    Parameters
    ----------
    data : of two pairs or more
    part : of the pairs that is held out, rounded, at least one and not all
    seed : 0 to 2**64 - 1

    Raises
    ------
    ArgumentError
        If the part is not between 0 and 1, or there is only one pair.

    Examples
    --------
    >>> import os, tempfile
    >>> from bridge.data.noise2noise import Consecutive
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(os.path.join(folder, "stack.npy"), np.zeros((20, 4, 4), np.uint8))
    ...     with Consecutive(folder) as pairs:
    ...         rest, held_out = split(pairs, 0.2)
    >>> len(rest), len(held_out)
    (8, 2)
    """
    check_range("seed", seed, 0)
    if not 0 < part < 1:
        raise ArgumentError(f"part: {part:g}, expected more than 0 and less than 1")
    if len(data) < 2:
        raise ArgumentError(f"data: {len(data)} pairs, expected 2 or more, of which a part is held out")
    count = min(len(data) - 1, max(1, round(part * len(data))))
    order = np.argsort(words(seed, 0, SPLIT, len(data)), kind="stable")
    return Subset(data, np.sort(order[count:])), Subset(data, np.sort(order[:count]))
