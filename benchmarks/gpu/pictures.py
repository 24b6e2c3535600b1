# SPDX-License-Identifier: MIT
"""Pictures: times by size, ratios over sizes and batches, the roofline bound beside ours and PyTorch's best."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.frameworks.gpu import FRAMEWORKS, OURS
from benchmarks.gpu.document import cell_of
from benchmarks.harness.pictures import BLACK, BLUE, GREEN, GREY, GRID, ORANGE, PINK, RED, SKY, WINE, new_figure, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Found = dict[str, Any]
OURS_COLOUR, BOUND_COLOUR, BEST_COLOUR = BLUE, "#999999", RED
#: Lines of the times: frameworks and colours; markers tell them apart, too
LINES = {OURS: (OURS_COLOUR, "o"), "torch eager": (ORANGE, "s"), "torch benchmark channels_last": (PINK, "^"),
         "torch CUDA graph": (GREEN, "v"), "torch CUDA graph channels_last": (SKY, "D"),
         "torch.compile channels_last": (WINE, "P"), "torch.compile max-autotune channels_last": (BLACK, "X")}
#: The ratio map's colours end at so many times faster or slower
MOST = 4.0


def _title(figure: Figure, document: Found, words: str) -> None:
    warning = "\nPRETENDED: these figures mean nothing" if document["pretended"] else ""
    figure.suptitle(f"{words}: {document['gpu']['name']}{warning}", color="#B00000" if warning else "black",
                    fontsize=11)


def draw(document: Found, path: Path) -> list[Path]:
    """All pictures, beside the JSON in `path`."""
    made = []
    for name, drawn in (("times", times(document)), ("ratios", ratios(document)), ("roofline", rooflines(document))):
        made.append(saved(drawn, path.with_name(f"{path.stem}_{name}.png")))
    return made


def times(document: Found) -> Figure:
    """A panel for each precision: ms of a step against the image's side, at the mission's batch, above the bound."""
    precisions, batch = document["precisions"], document["mission"]["batch"]
    figure = new_figure(4.6 * len(precisions), 4.9)
    axes = figure.subplots(1, len(precisions), squeeze=False, sharey=True)[0]
    for place, precision in zip(axes, precisions, strict=True):
        cells = sorted((one for one in document["cells"] if (one["batch"], one["precision"]) == (batch, precision)),
                       key=lambda one: one["size"])
        if cells:
            place.plot([one["size"] for one in cells], [1000 * one["roofline"]["each"] for one in cells], "--", lw=1.2,
                       color=BOUND_COLOUR, label="roofline bound")
        for name, (colour, marker) in LINES.items():
            there = [(one["size"], 1000 * one["results"][name]["median"]) for one in cells
                     if "median" in one["results"].get(name, {})]
            if there:
                place.plot(*zip(*there, strict=True), marker + "-", ms=5, lw=1.8 if name == OURS else 0.9, color=colour,
                           label=name, zorder=3 if name == OURS else 2)
        place.set_xscale("log", base=2)
        place.set_yscale("log")
        place.set_xticks([one["size"] for one in cells], [str(one["size"]) for one in cells])
        place.minorticks_off()
        place.grid(True, lw=0.3, color=GRID)
        place.set(title=precision, xlabel=f"side of {batch} images, pixels")
    axes[0].set_ylabel("ms for a step")
    labels = {label: handle for place in axes for handle, label in zip(*place.get_legend_handles_labels(), strict=True)}
    if labels:
        figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=4, fontsize=8)
    _title(figure, document, "a training step")
    return figure


def ratios(document: Found) -> Figure:
    """A map for each precision: the best of PyTorch over ours, sizes to the right, batches upwards."""
    precisions, sizes, batches = document["precisions"], document["sizes"], document["batches"]
    figure = new_figure(1.2 + (0.95 * len(sizes) + 1.0) * len(precisions), 1.9 + 0.62 * len(batches))
    axes = figure.subplots(1, len(precisions), squeeze=False, sharey=True)[0]
    drawn = None
    for place, precision in zip(axes, precisions, strict=True):
        values = [[_ratio(document, size, batch, precision) for size in sizes] for batch in batches]
        drawn = place.imshow([[_clipped(one) for one in row] for row in values], cmap="PuOr", vmin=-math.log2(MOST),
                             vmax=math.log2(MOST), origin="lower", aspect="auto")
        place.set_facecolor("#eeeeee")
        for row, line in enumerate(values):
            for column, value in enumerate(line):
                dark = value is not None and abs(_clipped(value)) > 0.6 * math.log2(MOST)
                place.text(column, row, "-" if value is None else f"{value:.2f}", ha="center", va="center",
                           fontsize=9, color="white" if dark else "black")
        place.set_xticks(range(len(sizes)), [str(one) for one in sizes])
        place.set_yticks(range(len(batches)), [str(one) for one in batches])
        place.set(title=precision, xlabel="side of an image, pixels")
    axes[0].set_ylabel("images")
    bar = figure.colorbar(drawn, ax=list(axes), ticks=[-2, -1, 0, 1, 2], shrink=0.9)
    bar.ax.set_yticklabels(["1/4", "1/2", "1", "2", "4"])
    bar.set_label("best of PyTorch / ours", fontsize=8)
    _title(figure, document, "the best of PyTorch over ours, above 1 we are faster (-: not measured)")
    return figure


def _ratio(document: Found, size: int, batch: int, precision: str) -> float | None:
    cell = cell_of(document["cells"], size, batch, precision)
    return None if cell is None else cell.get("ratios", {}).get(OURS)


def _clipped(value: float | None) -> float:
    """For the colour; no number where there is none, which has no colour."""
    return math.nan if value is None else max(-math.log2(MOST), min(math.log2(MOST), math.log2(value)))


def rooflines(document: Found) -> Figure:
    """Bars at the mission's size: the roofline bound, operation by operation, ours, and everybody of PyTorch."""
    mission, precisions = document["mission"], document["precisions"]
    cells = {one: cell_of(document["cells"], mission["size"], mission["batch"], one) for one in precisions}
    rows = max((len(one["results"]) for one in cells.values() if one), default=1) + 1
    figure = new_figure(4.9 * len(precisions), 1.4 + 0.3 * rows)
    axes = figure.subplots(1, len(precisions), squeeze=False)[0]
    for place, (precision, cell) in zip(axes, cells.items(), strict=True):
        place.set(title=precision, xlabel="ms for a step (share of the roofline bound)")
        if cell is not None:
            _bars(place, document, precision, cell)
        else:
            place.set_axis_off()
            place.text(0.5, 0.5, "not measured", ha="center", transform=place.transAxes)
    figure.supxlabel("roofline bound: dark where arithmetic takes longer, light where memory does", fontsize=8)
    _title(figure, document, f"{mission['batch']} x 1 x {mission['size']} x {mission['size']}")
    return figure


def _bars(axes: Axes, document: Found, precision: str, cell: Found) -> None:
    order = {one.name: number for number, one in enumerate(FRAMEWORKS)}
    there = sorted((name for name, one in cell["results"].items() if "median" in one), key=order.__getitem__)
    names = ["roofline bound", *there]
    left = 0.0
    for number, one in enumerate(document["rooflines"][precision]["limits"]):
        # Parts of the roofline bound, arithmetic darker than memory
        axes.barh(0, 1000 * one["seconds"], left=left, color=GREY if one["limit"] == "arithmetic" else "#BBBBBB",
                  edgecolor="white", lw=0.5 if number else 0.0)
        left += 1000 * one["seconds"]
    for row, name in enumerate(there, 1):
        one = cell["results"][name]
        low, high = one["quartiles"]
        colour = OURS_COLOUR if name.startswith(OURS) else BEST_COLOUR if name == cell.get("best_torch") else "#E8C8A8"
        axes.barh(row, 1000 * one["median"], color=colour, alpha=1.0 if name in (OURS, cell.get("best_torch")) or
                  not name.startswith(OURS) else 0.55)
        axes.plot([1000 * low, 1000 * high], [row, row], color="black", lw=1)
        axes.annotate(f"{1000 * one['median']:.3g} ({100 * one['of_roofline']:.0f} %)", (1000 * high, row),
                      xytext=(3, 0), textcoords="offset points", va="center", fontsize=7)
    axes.axvline(1000 * cell["roofline"]["each"], color=GREY, lw=0.8, ls="--")
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set_xlim(left=0)
