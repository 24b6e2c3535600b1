# SPDX-License-Identifier: MIT
"""A tensor in four pictures of the HTML report: right, found, their difference, error / E."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from bridge.report.drawing.colours import (
    DECADES,
    FIRST,
    GREY,
    LAST,
    NOTHING,
    PALETTE,
    SIGNED,
    Colour,
    decades_above,
    indices,
    levels,
)
from bridge.report.drawing.error_map import ErrorMap
from bridge.report.drawing.png import in_squares, inside_a_page, png, pooled

Array = np.ndarray
Ticks = Sequence[str]

#: Pixels of a picture along its longer side; of larger tensors some are picked
MOST_PIXELS = 512


@dataclass(frozen=True)
class Tiles:
    """What is drawn: a mosaic of kernels, of single elements, or one image.

    Attributes
    ----------
    right, found, ratio : shape (a, b, height, width), a x b tiles
    names : of a and b, "k" and "c"; empty where there is one tile
    said : what is shown, and what is left out
    inside : names of the axes of one tile that is alone
    """

    right: Array
    found: Array
    ratio: Array
    names: tuple[str, str]
    said: str
    inside: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, arrays: Sequence[Array], a: str, b: str, said: str, inside: tuple[str, str] = ("", "")) -> Tiles:
        """Return right, found and ratio as tiles."""
        right, found, ratio = arrays
        return cls(right, found, ratio, (a, b), said, inside)


def pictures(found: ErrorMap, axes: str) -> str:
    """Return HTML with the pictures of a tensor, and a sentence on what they show.

    Parameters
    ----------
    axes : a letter for each axis of the whole tensor, "nchw"; empty where they have none
    """
    tiles = _tiles(found, axes)
    low, high = _range(tiles.right, tiles.found)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = tiles.found - tiles.right
    most = float(np.max(np.abs(difference), initial=0.0, where=np.isfinite(difference))) or 1.0
    top = decades_above(tiles.ratio)
    numbers = f"{low:.3g}", f"{high:.3g}"
    drawn = [
        _picture("right", tiles, levels(tiles.right, low, high), GREY, numbers),
        _picture("found", tiles, levels(tiles.found, low, high), GREY, numbers),
        _picture("found \u2212 right", tiles, levels(difference, -most, most), SIGNED,
                 (f"{-most:.3g}", "0", f"{most:.3g}")),
        _picture("error / E", tiles, indices(tiles.ratio, top), PALETTE,
                 (f"{10.0**-DECADES:g}", "1", f"{10.0**top:g}")),
    ]
    words = [tiles.said, "Error / E is at most 1 in right code.", _beyond(tiles.found, low, high)]
    said = f'<p class="soft">{escape(" ".join(filter(None, words)))}</p>'
    return '<div class="pictures">\n' + "\n".join(drawn) + f"\n</div>\n{said}"


def _tiles(found: ErrorMap, axes: str) -> Tiles:
    if found.image is not None:
        return _of_image(found, found.image)
    arrays = [np.atleast_1d(one) for one in (found.right, found.found, found.ratio)]
    shape = arrays[0].shape
    if len(shape) == 1:
        return Tiles.of([one[:, None, None, None] for one in arrays], axes or "element", "", "")
    if len(shape) == 4 and max(shape[0] * (shape[2] + 1), shape[1] * (shape[3] + 1)) <= MOST_PIXELS:
        said = f"Kernels of {shape[2]} x {shape[3]}, r down and s to the right."
        names = axes or "0123"
        return Tiles.of(arrays, names[0], names[1], said)
    kernel = ""
    if len(shape) == 4:
        kernel = " Of each kernel the element with the largest error / E."
        arrays = _worst_of_last([one.reshape(*shape[:2], -1) for one in arrays])
    thinned, side = _thinned([one.reshape(shape[0], -1) for one in arrays])
    down, across = (axes[0], axes[1]) if len(axes) >= 2 else ("row", "element")
    said = f"{down} down, {across} to the right{_of_each(side, 'elements')}.{kernel}"
    return Tiles.of([one[None, None] for one in thinned], "", "", said, (down, across))


def _of_image(found: ErrorMap, image: int) -> Tiles:
    """The channel with the largest error / E; that of all channels, because nothing that is wrong may get lost."""
    at = found.judged.statistic.at
    channel = at[1] if len(at) > 1 else 0
    ratio, _ = pooled(_over_channels(found.ratio), MOST_PIXELS)
    (right, seen, _), side = _thinned([one[channel] for one in (found.right, found.found, found.ratio)])
    several = [f"{len(found.ratio)} channels"] * (len(found.ratio) > 1) + [f"{side} x {side} pixels"] * (side > 1)
    said = f"Image n = {image}, channel c = {channel}{_of_each(side, 'pixels')}."
    said += f" Error / E: the largest of {' and of '.join(several)}." if several else ""
    return Tiles.of([one[None, None] for one in (right, seen, ratio)], "", "", said, ("h", "w"))


def _of_each(side: int, what: str) -> str:
    return f"; of each {side} x {side} {what} the one with the largest error / E" if side > 1 else ""


def _over_channels(ratio: Array) -> Array:
    """The largest over all leading axes."""
    return ratio.reshape(-1, *ratio.shape[-2:]).max(axis=0)


def _thinned(arrays: Sequence[Array]) -> tuple[list[Array], int]:
    """Right, found and ratio: of each square the element with the largest ratio; and the side of the squares."""
    side = max(-(-n // MOST_PIXELS) for n in arrays[0].shape)
    return (list(arrays), 1) if side == 1 else (_worst_of_last([in_squares(one, side) for one in arrays]), side)


def _worst_of_last(arrays: Sequence[Array]) -> list[Array]:
    """Along the last axis the element with the largest ratio; one that is not finite is the largest."""
    worst = np.nan_to_num(arrays[2], nan=np.inf).argmax(axis=-1)[..., None]
    return [np.take_along_axis(one, worst, axis=-1)[..., 0] for one in arrays]


def _range(right: Array, found: Array) -> tuple[float, float]:
    """Of the right numbers; where they are all one, of both. What was found beyond is black or white."""
    for values in (right, np.stack([right, found])):
        finite = values[np.isfinite(values)]
        if finite.size and finite.min() < finite.max():
            return float(finite.min()), float(finite.max())
    middle = float(finite[0]) if finite.size else 0.0
    return middle - (abs(middle) or 1.0), middle + (abs(middle) or 1.0)


def _beyond(found: Array, low: float, high: float) -> str:
    finite = found[np.isfinite(found)]
    bad = found.size - finite.size
    # Less than that is no other grey
    least, said = (high - low) / (LAST - FIRST), ""
    if finite.size and (finite.min() < low - least or finite.max() > high + least):
        said = f"Found from {finite.min():.3g} to {finite.max():.3g}: beyond the grey levels is black or white."
    return " ".join(filter(None, [said, f"Violet: {bad} that are not finite." if bad else ""]))


def _picture(title: str, tiles: Tiles, places: Array, palette: list[Colour], scale: Ticks) -> str:
    """One picture with its axes, and the colours below; `places` are in the palette."""
    names = tiles.names
    if places.shape[1] > places.shape[0] and names[1]:
        # The longer axis goes down, and is folded
        places, names = places.transpose(1, 0, 2, 3), names[::-1]
    drawn, blocks, rows = mosaic(places)
    left: Ticks = ("", f"{names[0]} \u2193", "")
    below: Ticks = [f"{names[0]}={i * rows}" for i in range(blocks)]
    if blocks == 1:
        ends = places.shape[:2] if names[0] else places.shape[2:]
        left, below = (_ends(name, n) for name, n in zip(names if names[0] else tiles.inside, ends, strict=True))
    bar = np.arange(FIRST, LAST + 1, dtype=np.uint8)[None, :]
    return (f'<figure class="picture">\n<figcaption>{escape(title)}</figcaption>\n'
            f'<div class="axes">{_ticks(left, "down")}{_image(drawn, palette, title)}'
            f'{_ticks(below, "blocks" if blocks > 1 else "across")}'
            f'{_image(bar, palette, "the colours", "bar")}{_ticks(scale, "scale")}</div>\n</figure>')


def _ends(name: str, n: int) -> Ticks:
    return ("0", name, str(n - 1)) if n > 1 else ("", name, "")


def _ticks(words: Ticks, kind: str) -> str:
    return f'<span class="{kind}">{"".join(f"<i>{escape(one)}</i>" for one in words)}</span>'


def _image(places: Array, palette: list[Colour], title: str, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<img{mark} alt="{escape(title)}" src="{inside_a_page(png(places, palette))}">'


def mosaic(places: Array) -> tuple[Array, int, int]:
    """Return tiles in one image, with clear lines between; how many columns of them; and how many rows each has.

    What would be a strip is folded into columns, so that the image is nearly square.

    Parameters
    ----------
    places : uint8, shape (a, b, height, width); a goes down

    >>> drawn, columns, rows = mosaic(np.full((16, 1, 3, 3), 7, np.uint8))
    >>> drawn.shape, columns, rows
    ((15, 18), 4, 4)
    """
    a, b, h, w = places.shape
    gap = int(h * w > 1)
    tall, wide = h + gap, w + gap
    columns = max(1, round(math.sqrt(a * tall / (b * wide))))
    rows = -(-a // columns)
    columns = -(-a // rows)
    # Between columns there is more room than between tiles
    apart = int(columns > 1)
    found = np.full((rows * tall, columns * (b * wide + apart)), NOTHING, np.uint8)
    for i in range(columns):
        part = places[i * rows:(i + 1) * rows]
        spread = np.full((len(part), tall, b, wide), NOTHING, np.uint8)
        spread[:, :h, :, :w] = part.transpose(0, 2, 1, 3)
        left = i * (b * wide + apart)
        found[:len(part) * tall, left:left + b * wide] = spread.reshape(len(part) * tall, b * wide)
    return found[:rows * tall - gap, :columns * (b * wide + apart) - gap - apart], columns, rows
