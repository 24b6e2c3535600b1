# SPDX-License-Identifier: MIT
"""Parts of images that may reach beyond the border, and the ways to go on there."""

from __future__ import annotations

import numpy as np

Array = np.ndarray

#: Beyond the border: zeros, the border repeated, mirrored at the border pixel, around the other side
MODES = ("zero", "replicate", "reflect", "circular")


def coordinates(position: Array, size: int, mode: str) -> tuple[Array, Array]:
    """Return where to read for positions that may lie outside 0 .. size - 1, and whether there is something to read.

    >>> coordinates(np.array([-1, 0, 4]), 4, "reflect")[0]
    array([1, 0, 2])
    >>> coordinates(np.array([-1, 0, 4]), 4, "zero")[1]
    array([False,  True, False])
    """
    if mode == "replicate":
        return np.clip(position, 0, size - 1), np.ones(position.shape, dtype=bool)
    if mode == "circular":
        return position % size, np.ones(position.shape, dtype=bool)
    if mode == "reflect":
        period = max(1, 2 * (size - 1))
        folded = position % period
        return np.minimum(folded, period - folded) % size, np.ones(position.shape, dtype=bool)
    return np.clip(position, 0, size - 1), (position >= 0) & (position < size)


def of_places(shape: tuple[int, ...], sides: tuple[tuple[int, int], ...], mode: str) -> tuple[tuple[int, ...], ...]:
    """Return of each axis the places of a tensor, in the order of what has more before and behind; no zeros.

    >>> of_places((3,), ((1, 2),), "reflect")
    ((1, 0, 1, 2, 1, 0),)
    """
    return tuple(tuple(map(int, coordinates(np.arange(-before, n + behind), n, mode)[0]))
                 for n, (before, behind) in zip(shape, sides, strict=True))


def window(x: Array, start: tuple[int, ...], length: tuple[int, ...], mode: str = "zero") -> Array:
    """Return ``x[..., start:start + length]`` along the last two axes, whatever lies outside.

    >>> window(np.ones((1, 1, 1, 2)), (0, -1), (1, 4))[0, 0]
    array([[0., 1., 1., 0.]])
    """
    rows, inside_h = coordinates(start[0] + np.arange(length[0]), x.shape[-2], mode)
    columns, inside_w = coordinates(start[1] + np.arange(length[1]), x.shape[-1], mode)
    found = x[..., rows, :][..., columns]
    found[..., ~inside_h, :] = 0
    found[..., ~inside_w] = 0
    return found
