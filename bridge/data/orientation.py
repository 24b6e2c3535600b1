# SPDX-License-Identifier: MIT
"""The eight orientations of a square: 0 to 3 quarter turns, of the image or of its mirror image."""

from __future__ import annotations

import numpy as np

#: The first orientation of a mirror image
MIRRORED = 4
#: float32 in a cache line
COLUMNS = 16


def orientations(flips: bool, rotations: bool) -> tuple[int, ...]:
    """Return which occur, each as often as the others. Flips alone keep the shape: left-right, up-down, both.

    >>> orientations(flips=True, rotations=False), orientations(flips=False, rotations=True)
    ((0, 2, 4, 6), (0, 1, 2, 3))
    """
    turns = range(4) if rotations else range(0, 4, 2) if flips else range(1)
    return tuple(turns) + tuple(turn + MIRRORED for turn in turns if flips)


def oriented(image: np.ndarray, orientation: int) -> np.ndarray:
    """Return a view: mirrored left-right where `orientation` is 4 or more, then turned by ``orientation % 4`` quarters,
    counterclockwise.

    Parameters
    ----------
    image : shape (c, h, w)
    orientation : 0 to 7

    Examples
    --------
    >>> oriented(np.array([[[1, 2], [3, 4]]]), 1).tolist(), oriented(np.array([[[1, 2], [3, 4]]]), 4).tolist()
    ([[[2, 4], [1, 3]]], [[[2, 1], [4, 3]]])
    """
    mirrored = image[:, :, ::-1] if orientation >= MIRRORED else image
    return np.rot90(mirrored, orientation % MIRRORED, axes=(1, 2))


def copy_oriented(image: np.ndarray, orientation: int, out: np.ndarray) -> None:
    """Copy `oriented` into `out`; of a large image several times faster than as one.

    Parameters
    ----------
    image : shape (c, h, w)
    orientation : 0 to 7
    out : float32, shape as `oriented` has it
    """
    view = oriented(image, orientation)
    # A row that becomes a column is read from so many cache lines that none is left when its next number is needed
    step = COLUMNS if orientation % 2 else view.shape[2]
    for first in range(0, view.shape[2], step):
        out[:, :, first:first + step] = view[:, :, first:first + step]
