# SPDX-License-Identifier: MIT
"""The colours of pictures: of error / E blue below the bound and yellow to red above it, of numbers levels of grey, of
differences blue to red; told apart by the colour-blind, too.
"""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray
Colour = tuple[int, int, int]

#: The scale goes from 10**-DECADES to at least 10**DECADES, and to what is largest
DECADES, MOST_DECADES = 3, 12
#: Places in the palette: nothing there; then the scale; then what is not finite
NOTHING, FIRST, MIDDLE, LAST, NOT_FINITE = 0, 1, 128, 254, 255

_BELOW: list[Colour] = [(8, 29, 88), (34, 94, 168), (65, 182, 196), (199, 233, 220)]
_ABOVE: list[Colour] = [(255, 237, 160), (254, 178, 76), (240, 59, 32), (128, 0, 38)]


def _between(stops: list[Colour], n: int) -> list[Colour]:
    """`n` colours from the first stop to the last."""
    x, at = np.linspace(0, len(stops) - 1, n), np.arange(len(stops))
    channels = [np.interp(x, at, [stop[i] for stop in stops]).round().astype(int) for i in range(3)]
    return [(int(r), int(g), int(b)) for r, g, b in zip(*channels, strict=True)]


def _palette(*parts: list[Colour]) -> list[Colour]:
    """256 colours; the one of `NOTHING` is transparent."""
    return [(0, 0, 0), *(colour for part in parts for colour in part), (214, 0, 255)]


#: Of error / E, of numbers, and of differences, whose middle is 0
PALETTE = _palette(_between(_BELOW, MIDDLE - FIRST), _between(_ABOVE, LAST - MIDDLE + 1))
GREY = _palette(_between([(0, 0, 0), (255, 255, 255)], LAST - FIRST + 1))
SIGNED = _palette(_between([(8, 48, 130), (90, 150, 220), (245, 245, 245), (235, 120, 90), (130, 0, 30)],
                           LAST - FIRST + 1))


def decades_above(ratio: Array) -> int:
    """Return the decades of the scale above 1, so that the structure of a large error can be seen.

    >>> decades_above(np.array([0.5])), decades_above(np.array([2e4, np.inf]))
    (3, 5)
    """
    finite = ratio[np.isfinite(ratio)]
    largest = float(finite.max(initial=1.0))
    return int(np.clip(math.ceil(math.log10(max(largest, 1.0))), DECADES, MOST_DECADES))


def indices(ratio: Array, above_1: int = DECADES) -> Array:
    """Return places in the palette of error / E; 1 is the last blue, and more is yellow.

    Parameters
    ----------
    above_1 : decades of the scale above 1

    >>> indices(np.array([0.0, 1.0, 1.01, 1e9, np.nan])).tolist()
    [1, 127, 128, 254, 255]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        decades = np.log10(ratio)
    below = FIRST + np.floor((1 + np.clip(decades / DECADES, -1, 0)) * (MIDDLE - 1 - FIRST))
    above = MIDDLE + np.floor(np.clip(decades / above_1, 0, 1) * (LAST - MIDDLE))
    found = np.where(ratio <= 1, below, above)
    return np.where(np.isnan(ratio), NOT_FINITE, np.nan_to_num(found)).astype(np.uint8)


def levels(values: Array, low: float, high: float) -> Array:
    """Return places in `GREY` or `SIGNED`, from `low` to `high`; what lies beyond has the first or the last.

    >>> levels(np.array([-1.0, 0.0, 5.0, np.inf]), -1.0, 1.0).tolist()
    [1, 127, 254, 255]
    """
    with np.errstate(invalid="ignore", over="ignore"):
        share = np.clip((values - low) / (high - low), 0, 1)
    found = FIRST + np.rint(np.nan_to_num(share) * (LAST - FIRST))
    return np.where(np.isfinite(values), found, NOT_FINITE).astype(np.uint8)
