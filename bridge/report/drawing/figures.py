# SPDX-License-Identifier: MIT
"""The figures of the HTML report with two axes: errors against bounds, losses, divergence.

A report is written wherever a comparison runs, so it needs no package besides numpy: matplotlib is optional, and 100 MB
with what it needs. Its figures are SVG whose colours are those of the page, by day and by night. Plots for papers
are in `bridge.validate.plots`, since they need PNG or PDF.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bridge.report.drawing.axes import BOTTOM, LEFT, RIGHT, TOP, LinearAxis, LogAxis, frame, line, log_axis, svg
from bridge.report.drawing.error_map import ErrorMap

Array = np.ndarray

#: Points of a scatter plot
MOST_POINTS = 1500


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
    ends = [(x_axis.at(e), y_axis.at(e)) for e in (x_axis.low, x_axis.high)]
    limit = "M{:.1f} {:.1f}L{:.1f} {:.1f}".format(*ends[0], *ends[1])
    body = frame(x_axis.ticks(), y_axis.ticks(), "bound E", "|error|")
    body += [f'<path class="{kind}" d="{d}"/>' for kind, d in (("in", inside), ("out", outside), ("limit", limit))]
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
    y_axis = log_axis([value for _, value in found], BOTTOM, TOP)
    label = f"Divergence of the weights over {len(divergences)} steps, from {found[0][1]:.2g} to {found[-1][1]:.2g}"
    return _over_steps(y_axis, [("curve", found)], (1, len(divergences)), ("after step", "divergence"), label)


def losses(found: Sequence[tuple[int, float]], right: Sequence[tuple[int, float]]) -> str | None:
    """Return the loss of each step, found and right; None where fewer than two are finite."""
    curves = [(kind, [(k, value) for k, value in points if math.isfinite(value)])
              for kind, points in (("limit", right), ("curve", found))]
    known = [point for _, points in curves for point in points]
    low, high = (end((value for _, value in known), default=0.0) for end in (min, max))
    if len({k for k, _ in known}) < 2 or not math.isfinite(2 * (high - low)):
        return None
    # At least so much that labels of six digits differ
    room = max(0.05 * (high - low), 1e-4 * max(abs(low), abs(high))) or 1.0
    wide = low > 0 and high > 20 * low
    y_axis = log_axis([low, high], BOTTOM, TOP) if wide else LinearAxis(low - room, high + room, BOTTOM, TOP)
    label = f"Loss over the steps, found and right, between {low:.3g} and {high:.3g}"
    return _over_steps(y_axis, curves, (min(known)[0], max(known)[0]), ("step", "loss"), label)


def _over_steps(y_axis: LogAxis | LinearAxis, curves: Sequence[tuple[str, Sequence[tuple[int, float]]]],
                ends: tuple[int, int], names: tuple[str, str], label: str) -> str:
    x_axis = LinearAxis(*ends, LEFT + 10, RIGHT - 10)
    every = -(-(ends[1] - ends[0] + 1) // 8)
    ticks = [(x_axis.place(k), str(k)) for k in range(ends[0], ends[1] + 1, every)]
    body = frame(ticks, y_axis.ticks(), *names)
    for kind, values in curves:
        points = [(x_axis.place(k), y_axis.place(value)) for k, value in values]
        body += [line(points, kind)] if len(points) > 1 else []
        if kind == "curve":
            body.append(f'<path class="in big" d="{"".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)}"/>')
    return svg(body, label)
