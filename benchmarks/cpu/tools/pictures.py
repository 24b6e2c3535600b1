# SPDX-License-Identifier: MIT
"""Pictures of the results, with matplotlib (optional: ``pip install matplotlib``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.frameworks.cpu import (
    CHANNELS_LAST,
    COMPILED,
    COMPILED_LAST,
    EAGER,
    JAX_NCHW,
    JAX_NHWC,
    KERNEL,
    MEMORY_KEPT,
    OURS,
)
from benchmarks.harness.pictures import BLACK, BLUE, GREEN, GREY, GRID, ORANGE, PINK, RED, SKY, WINE, new_figure, saved
from benchmarks.harness.tables import threads, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {KERNEL: BLUE, OURS: SKY, CHANNELS_LAST: RED, EAGER: ORANGE}
PEER_COLOURS = {EAGER: ORANGE, CHANNELS_LAST: RED, MEMORY_KEPT: WINE, COMPILED: GREEN,
                COMPILED_LAST: BLUE, JAX_NCHW: PINK, JAX_NHWC: BLACK}
MARKERS = {"forward": "o", "data": "s", "filter": "^"}


def step(document: dict[str, Any], path: Path) -> Path:
    """Every peer's time and peak memory over ours, a line for each case; to the right of 1 we need less."""
    cases = document["cases"][::-1]
    figure = new_figure(11, 1.6 + 0.42 * len(cases))
    axes = figure.subplots(1, 2, sharey=True)
    for place, key, what in zip(axes, ("ratios", "memory_ratios"), ("time", "peak memory"), strict=True):
        for name, colour in PEER_COLOURS.items():
            there = [(case[key][name], row) for row, case in enumerate(cases) if name in case[key]]
            if there:
                place.plot(*zip(*there, strict=True), "o", color=colour, alpha=0.8, label=name)
        place.axvline(1.0, color="black", lw=1)
        place.set_xscale("log", base=2)
        place.xaxis.set_major_formatter("{x:g}")
        place.set(title=f"{what} over ours", ylim=(-0.5, len(cases) - 0.5))
        place.grid(True, lw=0.3, color=GRID)
    names = [title(case) for case in cases]
    axes[0].set_yticks(range(len(cases)), names, fontsize=8)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.suptitle(f"a training step: {document['environment']['cpu']}")
    return saved(figure, path)


def roofline(document: dict[str, Any], path: Path) -> Path:
    """GFLOP/s against FLOP/byte, a panel for each number of threads and precision, under the machine's roof."""
    panels = list(dict.fromkeys((case["threads"], case["dtype"]) for case in document["cases"]))
    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    figure = new_figure(6.0 * columns, 4.4 * rows + 0.6)
    axes = figure.subplots(rows, columns, squeeze=False)
    for place, (number, dtype) in zip(axes.flat, panels, strict=False):
        machine = next(run for run in document["machine"]["runs"] if run["threads"] == number)
        _roof(place, machine["gflops"][dtype], machine["gigabytes_per_second"])
        for case in document["cases"]:
            if (case["threads"], case["dtype"]) == (number, dtype):
                _points(place, case)
        place.set(title=f"{dtype}, {threads(number)}", xlabel="FLOP / byte (each tensor moved once)", ylabel="GFLOP/s")
    for name, colour in COLOURS.items():
        axes[0][0].plot([], [], "D", color=colour, label=name)
    for which, marker in MARKERS.items():
        axes[0][0].plot([], [], marker, color=GREY, label=which)
    figure.legend(loc="outside lower center", ncols=len(COLOURS) + len(MARKERS), fontsize=8)
    figure.suptitle(f"layers of the mission's net: {document['environment']['cpu']}")
    return saved(figure, path)


def _roof(axes: Axes, peak: float, bandwidth: float) -> None:
    """The lower of bandwidth times intensity and peak, with both named."""
    ridge = peak / bandwidth
    low, high = min(0.5, ridge / 4), max(100.0, ridge * 4)
    axes.loglog([low, ridge, high], [low * bandwidth, peak, peak], color="black", lw=1.5)
    axes.loglog([ridge, high], [0.65 * peak] * 2, color=GREY, lw=0.8, ls="--")
    axes.annotate(f"multiply-add peak {peak:.0f} GFLOP/s", (high, peak), xytext=(0, 4), textcoords="offset points",
                  fontsize=8, ha="right")
    axes.annotate("65 %", (high, 0.65 * peak), xytext=(0, -10), textcoords="offset points", fontsize=8, color=GREY,
                  ha="right")
    axes.annotate(f"triad {bandwidth:.0f} GB/s", (low * 1.3, low * 1.3 * bandwidth), xytext=(8, -8),
                  textcoords="offset points", fontsize=8)
    axes.grid(True, which="both", lw=0.3, color=GRID)


def _points(axes: Axes, case: dict[str, Any]) -> None:
    """Frameworks beside each other, not one on the other: all of them do the same work on the same bytes."""
    there = [name for name in COLOURS if "gflops" in case["results"].get(name, {})]
    for place, name in enumerate(there):
        x = case["flop_per_byte"] * 1.12 ** (place - (len(there) - 1) / 2)
        axes.loglog(x, case["results"][name]["gflops"], MARKERS[case["pass"]], color=COLOURS[name], ms=7, mec="white",
                    mew=0.5)


def growth(document: dict[str, Any], path: Path) -> Path:
    """Time and memory against what grows, both axes logarithmic: a column for each thing that grows."""
    curves = document["curves"]
    figure = new_figure(4.2 * len(curves), 7.2)
    axes = figure.subplots(2, len(curves), squeeze=False)
    for column, curve in enumerate(curves):
        _curves(axes[0][column], curve, "seconds", 1.0)
        axes[0][column].set(ylabel="s for a step", title=curve["title"])
        _curves(axes[1][column], curve, "bytes", 1e-6)
        axes[1][column].set_ylabel("MB at most")
        axes[1][column].set_yscale("log", base=2)
        axes[1][column].yaxis.set_major_formatter("{x:.0f}")
    figure.suptitle(document["environment"]["cpu"])
    return saved(figure, path)


def _curves(axes: Axes, curve: dict[str, Any], quantity: str, scale: float) -> None:
    for name, points in curve["points"].items():
        there = [(x, one[quantity] * scale) for x, one in zip(curve["x"], points, strict=True) if quantity in one]
        if there:
            exponent = curve["slopes"][name][quantity]
            # What the imported libraries take does not grow
            what = "beyond import " if quantity == "bytes" else ""
            fitted = "" if exponent is None else f"  ({what}~ n^{exponent:.2f})"
            axes.loglog(*zip(*there, strict=True), "o-", ms=4, color=COLOURS[name], label=name + fitted)
    axes.set_xlabel(curve["grows"])
    axes.set_xticks(curve["x"], [str(x) for x in curve["x"]], fontsize=7)
    axes.minorticks_off()
    # Room for the legend above what grows
    axes.set_ylim(top=4 * axes.get_ylim()[1])
    axes.legend(fontsize=7, loc="upper left")
    axes.grid(True, which="both", lw=0.3, color=GRID)


def examples(document: dict[str, Any], path: Path) -> Path:
    """A panel for each example: PyTorch's losses as a line, those of the Fortran program as rings on it."""
    found = document["examples"]
    columns = 2 if len(found) == 4 else min(3, len(found))
    rows = -(-len(found) // columns)
    figure = new_figure(4.0 * columns, 2.9 * rows + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, one in zip(panels, found, strict=False):
        ours, theirs = one["curves"]["Fortran"], one["curves"]["PyTorch"]
        panel.plot(theirs["step"], theirs["loss"], "-", lw=1.5, color=ORANGE, label="PyTorch")
        panel.plot(ours["step"], ours["loss"], "o", ms=7, mfc="none", mew=1.5, color=BLUE, label="Fortran")
        # A range of one power of ten has too few marks on a logarithmic axis
        if max(theirs["loss"]) > 10 * min(theirs["loss"]):
            panel.set_yscale("log")
        panel.set(title=one["name"], xlabel="step", ylabel="loss")
        said = f"largest difference {one['apart']:.0e} of a loss" if one["apart"] else "no printed digit differs"
        panel.text(0.97, 0.95, said, transform=panel.transAxes, ha="right", va="top", fontsize=8, color=GREY)
        panel.grid(True, lw=0.3, color=GRID)
    for panel in panels[len(found):]:
        panel.set_axis_off()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return saved(figure, path)


def sweep(document: dict[str, Any], path: Path) -> Path:
    """The ratio of every shape and pass, sorted: above the line we are faster."""
    figure = new_figure(9, 4.6)
    axes = figure.subplots()
    for (which, marker), colour in zip(MARKERS.items(), COLOURS.values(), strict=False):
        values = _sorted_ratios(document["cases"], which)
        if values:
            axes.semilogy(range(1, len(values) + 1), values, marker + "-", ms=4, lw=0.6, label=which, color=colour)
    axes.axhline(1.0, color="black", lw=1)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="shapes, sorted", ylabel=f"time of {CHANNELS_LAST} / ours", title=document["environment"]["cpu"])
    axes.grid(True, which="both", lw=0.3, color=GRID)
    axes.legend()
    return saved(figure, path)


def _sorted_ratios(cases: Sequence[dict[str, Any]], which: str) -> list[float]:
    return sorted(case["ratios"][CHANNELS_LAST] for case in cases
                  if case["pass"] == which and CHANNELS_LAST in case["ratios"])
