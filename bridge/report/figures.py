# SPDX-License-Identifier: MIT
"""The figures of the HTML report: error map, errors against bounds, divergence.

A report is written wherever a comparison runs, so it needs no package besides numpy: matplotlib is optional, and 100 MB
with what it needs. Its figures are SVG whose colours are those of the page, by day and by night. Plots for papers
are in `bridge.validate.plots`, since they need PNG or PDF.
"""

from __future__ import annotations

import math

import numpy as np

from bridge.report.axes import BOTTOM, LEFT, RIGHT, TOP, frame, log_axis, svg, text
from bridge.report.colours import DECADES, FIRST, LAST, NOTHING, decades_above, indices
from bridge.report.error_map import ErrorMap
from bridge.report.png import data_uri, pooled

Array = np.ndarray

#: Pixels of a map along its longer side; larger ones are pooled
MOST_PIXELS = 512
#: Points of a scatter plot
MOST_POINTS = 1500
#: Room for an image between the labels
MAP_WIDTH, MAP_HEIGHT = RIGHT - LEFT, 288


def map_figure(found: ErrorMap) -> tuple[str, str]:
    """Return error / E over a tensor, and a caption: an image by its worst channel in every pixel, or all kernels."""
    ratio = found.ratio
    top = decades_above(ratio)
    name = f"{found.judged.name}, step {found.judged.step}"
    if found.image is not None:
        places, side = pooled(_over_channels(ratio), MOST_PIXELS)
        drawn = indices(places, top)
        axes, size = ("column w", "row h"), (ratio.shape[-1], ratio.shape[-2])
        what = f"{name}, image {found.image}: error / E"
        several = [f"{ratio.shape[0]} channels"] * (len(ratio) > 1) + [f"{side} x {side} pixels"] * (side > 1)
        what += f", the largest of {' and of '.join(several)}" if several else ""
    elif ratio.ndim == 4 and max(_sides(ratio)) <= MOST_PIXELS:
        drawn = _kernels(ratio, top)
        axes, size = ("input channel c", "output channel k"), (ratio.shape[1], ratio.shape[0])
        what = f"{name}: error / E in every {ratio.shape[2]} x {ratio.shape[3]} kernel"
    else:
        flat = ratio.reshape(ratio.shape[0], -1) if ratio.ndim < 4 else _over_channels(ratio.transpose(2, 3, 0, 1))
        places, side = pooled(flat, MOST_PIXELS)
        drawn = indices(places, top)
        size = flat.shape[1], flat.shape[0]
        axes = ("input channel c", "output channel k") if found.judged.of_parameter else ("feature", "image n")
        what = f"{name}: error / E{', the largest of each kernel' if ratio.ndim == 4 else ''}"
    return _image(drawn, axes, size, what, top), what


def _over_channels(ratio: Array) -> Array:
    """The largest over all leading axes."""
    return ratio.reshape(-1, *ratio.shape[-2:]).max(axis=0)


def _sides(ratio: Array) -> tuple[int, int]:
    k, c, r, s = ratio.shape
    return k * (r + 1), c * (s + 1)


def _kernels(ratio: Array, top: int) -> Array:
    """Kernels side by side, (k, c) of them, with a clear line between."""
    k, c, r, s = ratio.shape
    spread = np.full((k, r + 1, c, s + 1), NOTHING, np.uint8)
    spread[:, :r, :, :s] = indices(ratio, top).transpose(0, 2, 1, 3)
    return spread.reshape(k * (r + 1), c * (s + 1))[:-1, :-1]


def _image(drawn: Array, axes: tuple[str, str], size: tuple[int, int], label: str, top: int) -> str:
    """A picture, as large as it fits, with axes and the colour bar."""
    height, width = drawn.shape
    scale = min(MAP_WIDTH / width, MAP_HEIGHT / height)
    w, h = max(width * scale, 4), max(height * scale, 4)
    body = [_picture(LEFT, TOP, w, h, drawn)]
    body += [text(LEFT, TOP + h + 14, "0"), text(LEFT + w, TOP + h + 14, str(size[0] - 1), "end")]
    body += [text(LEFT + w / 2, TOP + h + 14, axes[0], "middle")] if w > 140 else [text(LEFT, TOP + h + 29, axes[0])]
    body += [text(LEFT - 5, TOP + 11, "0", "end"), text(LEFT - 5, TOP + h, str(size[1] - 1), "end")]
    if h > 100:
        middle = TOP + h / 2
        body.append(f'<g transform="rotate(-90 30 {middle:.1f})">{text(30, middle + 3, axes[1], "middle")}</g>')
    bar = TOP + h + 42
    return svg([*body, *_colour_bar(bar, top)], label, bar + 48)


def _picture(x: float, y: float, width: float, height: float, drawn: Array) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<image {place} preserveAspectRatio="none" href="{data_uri(drawn)}"/>'


def _colour_bar(y: float, top: int) -> list[str]:
    """The logarithmic scale: 10**-DECADES, 1 in the middle, 10**top; what lies beyond has the last colour."""
    scale = np.arange(FIRST, LAST + 1, dtype=np.uint8)[None, :]
    body = [_picture(LEFT, y, MAP_WIDTH, 10, scale)]
    ticks = [*range(-DECADES, 0), *range(0, top + 1, -(-top // DECADES))]
    for decade in ticks:
        x = LEFT + (1 + decade / (DECADES if decade < 0 else top)) / 2 * MAP_WIDTH
        body.append(text(x, y + 24, f"{10.0**decade:g}", "middle"))
    return [*body, text(LEFT + MAP_WIDTH / 2, y + 41, "error / E; at most 1 in right code", "middle")]


def scatter(found: ErrorMap) -> tuple[str, str] | None:
    """Return the error against bound, a point for each of some elements; None where all are exact or not finite."""
    error, bound = found.error.ravel(), found.bound.ravel()
    drawn = (error > 0) & (bound > 0) & np.isfinite(error) & np.isfinite(bound)
    places = np.flatnonzero(drawn)
    if not places.size:
        return None
    places = _sample(places, error, bound)
    e, b = error[places], bound[places]
    x_axis, y_axis = log_axis(b, LEFT, RIGHT), log_axis([*e, *b], BOTTOM, TOP)
    inside, outside = ("".join(
        f"M{x_axis.place(x):.1f} {y_axis.place(y):.1f}h0" for x, y in zip(b[chosen], e[chosen], strict=True)
    ) for chosen in (e <= b, ~(e <= b)))
    ends = [(x_axis.place(v), y_axis.place(v)) for v in (10.0**x_axis.low, 10.0**x_axis.high)]
    line = "M{:.1f} {:.1f}L{:.1f} {:.1f}".format(*ends[0], *ends[1])
    body = frame(x_axis.ticks(), y_axis.ticks(), "bound E", "|error|")
    body += [f'<path class="{kind}" d="{d}"/>' for kind, d in (("in", inside), ("out", outside), ("limit", line))]
    left_out = error.size - int(np.count_nonzero(drawn))
    what = f"{found.judged.name}, step {found.judged.step}: {len(places)} of {error.size} elements"
    what += "; the line is error = E, the bound"
    what += f"; {left_out} that are exact, have E = 0 or are not finite are not drawn" if left_out else ""
    return svg(body, what), what


def _sample(places: Array, error: Array, bound: Array) -> Array:
    """A third by the largest ratios, the rest by chance, always the same."""
    if places.size <= MOST_POINTS:
        return places
    ranked = places[np.argsort(error[places] / bound[places])]
    rest, top = np.split(ranked, [places.size - MOST_POINTS // 3])
    chosen = np.random.default_rng(0).choice(rest.size, MOST_POINTS - top.size, replace=False)
    return np.concatenate([rest[chosen], top])


def curve(divergences: list[float]) -> str | None:
    """Return the divergence after each step, logarithmic; None where there are fewer than two positive values."""
    found = [(k, value) for k, value in enumerate(divergences, 1) if 0 < value < math.inf]
    if len(found) < 2:
        return None
    last, y_axis = len(divergences), log_axis([value for _, value in found], BOTTOM, TOP)

    def place(k: int) -> float:
        return LEFT + 10 + (k - 1) / (last - 1) * (RIGHT - LEFT - 20)

    every = -(-last // 8)
    ticks = [(place(k), str(k)) for k in range(1, last + 1, every)]
    points = [f"{place(k):.1f} {y_axis.place(value):.1f}" for k, value in found]
    body = frame(ticks, y_axis.ticks(), "after step", "divergence")
    body += [f'<path class="curve" d="M{"L".join(points)}"/>', f'<path class="in big" d="M{"h0M".join(points)}h0"/>']
    return svg(body, f"Divergence of the weights over {last} steps, from {found[0][1]:.2g} to {found[-1][1]:.2g}")
