# SPDX-License-Identifier: MIT
"""Plots of the experiments of `bridge.validate`, with matplotlib (optional: ``pip install matplotlib``).

They are files for papers and talks, which need PNG or PDF, many curves and a legend: so they are drawn by matplotlib,
and only where ``--plot`` asks for one. The HTML report's figures (`bridge.report.drawing.figures`) need no package.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console

from bridge.common.atomic_file import replacing
from bridge.common.errors import BridgeError
from bridge.common.optional_packages import require
from bridge.common.stages import attempt
from bridge.judge.oracle.error_model import UNIT_ROUNDOFF, rounding_factor
from bridge.validate.precision_study import ROUNDING_FALLS, Fall, conclusion, of_worst_step
from bridge.validate.size_study import Scaling

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
#: Told apart by people who see colours differently (Okabe and Ito)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255")
GREY = "#888888"


def check_plot(path: str | None) -> None:
    """Refuse a plot that cannot be drawn, before minutes of work; None is no plot.

    Raises
    ------
    BridgeError
        If matplotlib is missing, or the format is unknown.
    """
    if path is None:
        return
    if os.path.splitext(path)[1].lower() not in FORMATS:
        raise BridgeError(f"--plot {path}: expected a name that ends with {', '.join(FORMATS)}")
    require("matplotlib", "--plot draws with it (the tables are printed without it)")


def drawn(console: Console, path: str, draw: Callable[[], None]) -> list[str]:
    """Draw a plot and say where it is; a line where that fails, which takes no verdict with it."""
    failed: list[str] = []
    attempt(failed, f"--plot {path}", draw, None)
    said = f"MISSING: {failed[0]}" if failed else f"  plot in {path}"
    console.print(said, style="yellow" if failed else "dim", highlight=False, markup=False, soft_wrap=True)
    return failed


def plot_sizes(path: str, scaling: Scaling, precision: str = "float32") -> None:
    """Draw error over norm, and T, against the number of pixels; both axes logarithmic."""
    figure = _figure(12, 5)
    errors, ratios = figure.subplots(1, 2)
    pixels = [size.pixels for size in scaling.sizes]
    reduced = [growth.name for growth in scaling.growths if growth.reduced]
    for growth in sorted(scaling.growths, key=lambda growth: growth.reduced):
        relative = [_positive(size.relative[growth.name]) for size in scaling.sizes]
        t = [_positive(size.t[growth.name]) for size in scaling.sizes]
        right = all(size.t[growth.name] <= 1 for size in scaling.sizes)
        look, label = _look(growth.name, reduced, right), f"{growth.name}  ~ n^{growth.exponent:.2f}"
        errors.plot(pixels, relative, **look, label=label if growth.reduced or not right else None)
        ratios.plot(pixels, t, **look)
    u = UNIT_ROUNDOFF[precision]
    errors.plot(pixels, [float(rounding_factor(n, u)) for n in pixels], "k--", lw=1.2, label="bound of a sum, 9 u √n")
    errors.plot([], [], color=GREY, lw=0.8, label="not summed over pixels")
    ratios.axhline(1, color="k", ls="--", lw=1.2)
    ratios.annotate("1: the most that rounding can do", (pixels[0], 1), xytext=(0, 4), textcoords="offset points")
    _axes(errors, "|error| / |tensor|", scaling)
    _axes(ratios, "T = largest error / its bound", scaling)
    figure.legend(*errors.get_legend_handles_labels(), loc="outside right center", fontsize=8, frameon=False)
    _title(figure, scaling.conclusion, 130)
    _save(figure, path)


def plot_precisions(path: str, found: list[Fall]) -> None:
    """Draw error over norm of every tensor in both precisions."""
    shown = [fall for fall in of_worst_step(found) if fall.single > 0 or fall.double > 0][::-1]
    figure = _figure(9, 1.8 + 0.27 * len(shown))
    axes = figure.subplots()
    for row, fall in enumerate(shown):
        single, double = _positive(fall.single), _positive(fall.double)
        colour = GREY if fall.t_double <= 1 else COLOURS[1]
        if fall.double == 0:
            axes.annotate("exact in float64", (single, row), xytext=(-8, -3), textcoords="offset points", ha="right",
                          fontsize=8, color=GREY)
        axes.plot([double, single], [row, row], color=colour, lw=1, zorder=1)
        axes.scatter(single, row, color=COLOURS[4], s=70, zorder=2, label="float32" if row == 0 else None)
        axes.scatter(double, row, color=COLOURS[0], s=25, zorder=3, marker="D", label="float64" if row == 0 else None)
        axes.scatter(single * 2.0**-ROUNDING_FALLS, row, color="k", s=60, zorder=1, marker="|",
                     label=f"float32 / 2^{ROUNDING_FALLS}, where rounding goes" if row == 0 else None)
    axes.set_yticks(range(len(shown)), [fall.name for fall in shown], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("|error| / |tensor|")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    _title(figure, conclusion(found), 100)
    _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    """Without pyplot: no window, no state that is left behind."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: str) -> None:
    with replacing(path) as part:
        figure.savefig(part, dpi=150, format=os.path.splitext(path)[1][1:].lower())


def _look(name: str, reduced: list[str], right: bool) -> dict[str, object]:
    if name not in reduced:
        return {"color": GREY, "lw": 0.8, "alpha": 0.7} if right else {"color": "red", "lw": 1.5}
    return {"color": COLOURS[reduced.index(name) % len(COLOURS)], "lw": 1.5, "marker": "o", "ms": 4}


def _axes(axes: Axes, label: str, scaling: Scaling) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([size.pixels for size in scaling.sizes], [size.name for size in scaling.sizes])
    axes.minorticks_off()
    axes.set_xlabel("image size, at its number n of pixels in a batch")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)


def _title(figure: Figure, text: str, columns: int) -> None:
    figure.suptitle("\n".join(textwrap.wrap(text, columns)), fontsize=9, x=0.01, ha="left")


def _positive(value: float) -> float:
    """What a logarithmic axis can show; NaN leaves a gap."""
    return value if 0 < value < math.inf else math.nan
