# SPDX-License-Identifier: MIT
"""Pictures of tensors side by side, for a light page and for a dark one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bridge.report.drawing.colours import DECADES, FIRST, LAST, MIDDLE, PALETTE, decades_above, indices

Array = np.ndarray

#: Of signed numbers, blue below 0 and red above; of images
SIGNED, GREY = "RdBu_r", "gray"
#: Colour of letters by page
INKS = {"light": "#333333", "dark": "#dddddd"}
DPI = 160
#: Inches above a picture, and below it
TITLE, SCALE = 0.25, 0.4


@dataclass(frozen=True)
class Panel:
    """One picture.

    Attributes
    ----------
    title : above it
    image : shape (height, width)
    low, high : numbers of the first colour and the last
    colours : matplotlib's, by name or as an object
    ticks : place on the scale and text of each mark below the picture; none: it has no scale
    """

    title: str
    image: Array
    low: float
    high: float
    colours: Any = SIGNED
    ticks: tuple[tuple[float, str], ...] = ()


def kernels(filters: Array) -> Array:
    """Return k x c kernels of r x s pixels, one beside the other, of an array (k, c, r, s).

    >>> kernels(np.arange(8).reshape(1, 2, 2, 2)).tolist()
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    """
    k, c, r, s = filters.shape
    return filters.transpose(0, 2, 1, 3).reshape(k * r, c * s)


def numbers(title: str, image: Array, low: float, high: float, colours: str = SIGNED) -> Panel:
    """Return a picture of numbers with its scale; the middle is marked where it is 0."""
    marks = (low, 0.0, high) if low == -high else (low, high)
    return Panel(title, image, low, high, colours, tuple((one, f"{one:.2g}") for one in marks))


def error_map(ratio: Array) -> Panel:
    """Return a picture of error / E in the colours of the HTML report: blue to 1, yellow to red above it."""
    from matplotlib.colors import ListedColormap

    top = decades_above(ratio)
    ticks = (FIRST, f"$10^{{-{DECADES}}}$"), (MIDDLE, "1"), (LAST, f"$10^{{{top}}}$")
    return Panel("error / E", indices(ratio, top), 0, len(PALETTE) - 1, ListedColormap(np.array(PALETTE) / 255), ticks)


def draw(panels: Sequence[Panel], stem: Path, width: float, columns: int | None = None) -> None:
    """Draw pictures of one shape in rows; of ``a/b`` the files are ``a/b-light.png`` and ``a/b-dark.png``.

    Parameters
    ----------
    width : of the whole, in inches
    columns : pictures of a row; None: all in one
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = columns or len(panels)
    rows = -(-len(panels) // columns)
    across, down = panels[0].image.shape[::-1]
    beside = TITLE + SCALE * any(panel.ticks for panel in panels)
    size = width, rows * (width / columns * down / across + beside)
    for theme, ink in INKS.items():
        figure, axes = pyplot.subplots(rows, columns, figsize=size, layout="constrained")
        for one, panel in zip(np.ravel(axes), panels, strict=True):
            shown = one.imshow(panel.image, cmap=panel.colours, vmin=panel.low, vmax=panel.high,
                               interpolation="nearest")
            one.set_title(panel.title, color=ink, fontsize=11)
            one.set_axis_off()
            if panel.ticks:
                _scale(figure, one, shown, panel, ink)
        figure.savefig(f"{stem}-{theme}.png", dpi=DPI, transparent=True)
        pyplot.close(figure)


def _scale(figure: Any, axes: Any, shown: Any, panel: Panel, ink: str) -> None:
    """The colours below a picture, with their numbers."""
    places, texts = zip(*panel.ticks, strict=True)
    bar = figure.colorbar(shown, ax=axes, orientation="horizontal", ticks=places, pad=0.03, aspect=24, shrink=0.9)
    bar.ax.set_xlim(places[0], places[-1])
    bar.ax.set_xticklabels(texts, color=ink, fontsize=8)
    bar.ax.tick_params(color=ink, length=2)
    bar.outline.set_visible(False)
