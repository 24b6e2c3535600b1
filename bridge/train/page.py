# SPDX-License-Identifier: MIT
"""A training as one HTML file: loss curve, resolution, audits, and what the network does to an image."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from bridge.common.atomic_file import write_text
from bridge.report.drawing.axes import BOTTOM, LEFT, RIGHT, TOP, LinearAxis, frame, line, log_axis, svg, text
from bridge.report.drawing.png import grey_png, inside_a_page
from bridge.report.environment import environment
from bridge.report.html_page import document
from bridge.report.html_parts import definitions, figure, paragraphs, scrolling, section
from bridge.train.quality import Quality
from bridge.train.ring_correlation import THRESHOLD

NAME = "report.html"
#: Points of a curve, each the mean of its steps; pixels of a picture along its longer side; rows of a table
MOST_POINTS, MOST_PIXELS, MOST_ROWS = 400, 512, 200
#: Percent of the pixels that are black, or white
CLIPPED = 0.5

Line = Mapping[str, Any]


def write_page(folder: Path, lines: Sequence[Line], found: Quality | None, settings: Mapping[str, str]) -> Path:
    """Write the page of a training to its folder, and return its name.

    Parameters
    ----------
    lines : of the log, see `bridge.train.log.read`
    found : of the last validation
    settings : what the training is, for the reader
    """
    path = folder / NAME
    write_text(path, page(lines, found, settings))
    return path


def page(lines: Sequence[Line], found: Quality | None, settings: Mapping[str, str]) -> str:
    """Return the page."""
    validated = [one for one in lines if one.get("validation_loss") is not None]
    audited = [one for one in lines if one.get("audit")]
    wrong = _wrong(audited)
    # A step that was wrong is not one of those that are done
    done = (lines[-1]["step"] + 1 if lines else 0) - bool(wrong)
    headline = f"BUG: step {wrong[0]['step']} is wrong, after {done} steps of training" if wrong else \
        f"{done} steps of training"
    parts = [f"<header>\n<h1>{headline}</h1>\n{paragraphs(_summary(lines, validated, audited), 'soft')}\n</header>",
             section("Noisy and denoised", _pictures(found)),
             section("Loss and resolution", _figures(_losses(lines, validated), _correlations(found)), _signal(found)),
             section("Validations", _validations(validated)),
             section("Audits", _audits(audited)), section("Left out", _left_out(lines)),
             section("Settings", definitions(dict(settings))),
             section("Environment", definitions(environment()))]
    return document(headline, "\n".join(filter(None, parts)))


def _summary(lines: Sequence[Line], validated: Sequence[Line], audited: Sequence[Line]) -> list[str]:
    said = [f"Loss {lines[0]['loss']:.4g} at first, {lines[-1]['loss']:.4g} at last."] if lines else []
    if validated:
        best = min(validated, key=lambda one: float(one["validation_loss"]))
        said.append(f"Best validation loss {best['validation_loss']:.4g}, after step {best['step']}.")
    if wrong := _wrong(audited):
        said.insert(0, f"A step of the training is wrong: {len(wrong)} of {len(audited)} audits has found a bug, at "
                    f"step {wrong[0]['step']}.")
    elif audited:
        right = sum(one["audit"]["verdict"] == "rounding" for one in audited)
        said.append(f"{right} of {len(audited)} audited steps are right: their errors are rounding.")
    return said


def _wrong(audited: Sequence[Line]) -> list[Line]:
    """Steps that are a bug; the first has ended the training."""
    return [one for one in audited if one["audit"]["verdict"] == "bug"]


def _losses(lines: Sequence[Line], validated: Sequence[Line]) -> str:
    curves = [("curve", _thinned([(one["step"], one["loss"]) for one in lines])),
              ("limit", [(one["step"], one["validation_loss"]) for one in validated])]
    values = [value for _, points in curves for _, value in points if 0 < value < math.inf]
    if len(lines) < 2 or not values:
        return ""
    x_axis = LinearAxis(0, lines[-1]["step"], LEFT, RIGHT)
    low, high = min(values), max(values)
    # Decades are too coarse for a loss that changes by less
    y_axis = log_axis(values, BOTTOM, TOP) if high > 20 * low else LinearAxis(
        min(0.9 * low, low - 1e-12), max(1.1 * high, high + 1e-12), BOTTOM, TOP)
    body = frame(x_axis.ticks(), y_axis.ticks(), "step", "loss")
    for kind, points in curves:
        drawn = [(x_axis.place(step), y_axis.place(value)) for step, value in points if 0 < value < math.inf]
        body += [line(drawn, kind)] if len(drawn) > 1 else []
    steps = -(-len(lines) // MOST_POINTS)
    caption = f"Loss of the batches{f', means of {steps} steps' if steps > 1 else ''}"
    return figure(svg(body, caption), caption + ("; dashed: of the validations." if validated else "."))


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Means of as many points as make few."""
    every = max(1, -(-len(points) // MOST_POINTS))
    parts = [points[i:i + every] for i in range(0, len(points), every)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]


def _correlations(found: Quality | None) -> str:
    if found is None:
        return ""
    x_axis, y_axis = LinearAxis(0, 0.5, LEFT, RIGHT), LinearAxis(-0.2, 1, BOTTOM, TOP)
    body = frame(x_axis.ticks(), y_axis.ticks(), "cycles per pixel", "Fourier ring correlation")
    for kind, one in (("limit", found.before), ("curve", found.after)):
        places = zip(one.frequency, np.clip(one.correlation, -0.2, 1), strict=True)
        body.append(line(((x_axis.place(float(f)), y_axis.place(float(c))) for f, c in places), kind))
    y = y_axis.place(THRESHOLD)
    body += [f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>', text(LEFT + 3, y - 4, f"{THRESHOLD:g}")]
    pair = "the network's outputs of both halves" if found.psnr is None else "output and target"
    other = "the halves themselves" if found.psnr is None else "input and target"
    caption = f"Of {pair}; dashed: of {other}. Below {THRESHOLD:g} from {found.after.resolution():.3f} cycles per " \
        f"pixel on, dashed from {found.before.resolution():.3f}."
    return figure(svg(body, "Fourier ring correlation"), caption)


def _signal(found: Quality | None) -> str:
    if found is None or found.psnr is None:
        return ""
    before, after = found.psnr
    return paragraphs([f"Peak signal to noise ratio: {before:.2f} dB before, {after:.2f} dB after."])


def _pictures(found: Quality | None) -> str:
    if found is None:
        return ""
    low, high = np.percentile(found.noisy, (CLIPPED, 100 - CLIPPED))
    difference = found.noisy - found.denoised
    most = float(np.percentile(np.abs(difference), 100 - CLIPPED))
    shown = (("Noisy", found.noisy, low, high), ("Denoised, the same grey levels", found.denoised, low, high),
             (f"Difference, from {-most:.3g} to {most:.3g}", difference, -most, most))
    return _figures(*(figure(_picture(image, float(a), float(b), name), name) for name, image, a, b in shown),
                    kind="figures three")


def _figures(*drawn: str, kind: str = "figures") -> str:
    """Beside each other where there is room."""
    inside = "\n".join(filter(None, drawn))
    return f'<div class="{kind}">\n{inside}\n</div>' if inside else ""


def _picture(image: np.ndarray, low: float, high: float, name: str) -> str:
    """Black up to `low`, white from `high` on; of large images the middle."""
    height, width = image.shape
    h, w = min(height, MOST_PIXELS), min(width, MOST_PIXELS)
    part = image[(height - h) // 2:(height + h) // 2, (width - w) // 2:(width + w) // 2]
    levels = np.clip((part - low) / max(high - low, 1e-30) * 255, 0, 255).astype(np.uint8)
    return f'<img alt="{escape(name)}" src="{inside_a_page(grey_png(levels))}">'


def _validations(validated: Sequence[Line]) -> str:
    rows = [(str(one["step"]), f"{one['validation_loss']:.6g}",
             "" if one.get("resolution") is None else f"{one['resolution']:.3f}") for one in validated]
    return _table("validations", ("after step", "loss", "cycles per pixel"), rows)


def _audits(audited: Sequence[Line]) -> str:
    rows = [(str(one["step"]), one["audit"]["verdict"].replace("_", " "), f"{one['audit']['t']:.3g}",
             f"{one['audit']['seconds']:.2f}") for one in audited]
    return _table("audits", ("step", "verdict", "T", "seconds"), rows)


def _left_out(lines: Sequence[Line]) -> str:
    """Files and images that were not taken, each once."""
    reasons = dict.fromkeys(one for line in lines for one in line.get("left_out", ()))
    return _table("left out", ("why",), [(one,) for one in reasons])


def _table(name: str, heads: Sequence[str], rows: Sequence[Iterable[str]]) -> str:
    if not rows:
        return ""
    shown = rows if len(rows) <= MOST_ROWS else rows[-MOST_ROWS:]
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    body = ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in shown]
    more = [f"The last {len(shown)} of {len(rows)}; all stand in log.jsonl."] if len(shown) < len(rows) else []
    return scrolling(name, f"<thead><tr>{head}</tr></thead>", body) + paragraphs(more, "soft")
