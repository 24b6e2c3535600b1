# SPDX-License-Identifier: MIT
"""Axes of a figure in SVG: a frame with ticks. Colours come from the page, so that it can be read in the dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

#: A figure's width; text of 12 pixels can then be read on a phone
WIDTH, HEIGHT = 360, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 338, 10, 224


@dataclass(frozen=True)
class LogAxis:
    """From 10**low to 10**high, whole decades, drawn from `start` to `end`."""

    low: int
    high: int
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return where a positive value stands.

        >>> LogAxis(0, 2, 0.0, 100.0).place(10.0)
        50.0
        """
        return self.at(math.log10(value))

    def at(self, exponent: float) -> float:
        """Return where a power of ten stands, which may be beyond the range of numbers."""
        return self.start + (exponent - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and labels, at most seven.

        >>> LogAxis(-1, 1, 0.0, 2.0).ticks()
        [(0.0, '0.1'), (1.0, '1'), (2.0, '10')]
        """
        every = -(-(self.high - self.low) // 6)
        decades = range(self.low, self.high + 1, every)
        return [(self.at(e), f"{10.0**e:g}" if abs(e) < 300 else f"1e{e}") for e in decades]


@dataclass(frozen=True)
class LinearAxis:
    """From `low` to `high`, drawn from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return where a value stands.

        >>> LinearAxis(0.0, 2.0, 0.0, 100.0).place(0.5)
        25.0
        """
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and labels, at most six: multiples of 1, 2 or 5 times a power of ten.

        >>> LinearAxis(0.0, 0.5, 0.0, 1.0).ticks()[:2]
        [(0.0, '0'), (0.2, '0.1')]
        """
        least = (self.high - self.low) / 5
        decade = 10.0 ** math.floor(math.log10(least))
        every = next(one * decade for one in (1, 2, 5, 10) if one * decade >= least * (1 - 1e-9))
        first, last = math.ceil(self.low / every - 1e-9), math.floor(self.high / every + 1e-9)
        return [(self.place(i * every), f"{i * every:g}") for i in range(first, last + 1)]


def line(points: Iterable[tuple[float, float]], kind: str) -> str:
    """Return a line through points of the drawing, of a class of the page's style."""
    return f'<path class="{kind}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>'


def log_axis(values: Iterable[float], start: float, end: float) -> LogAxis:
    """Return the decades that hold all positive values; at least one."""
    found = [math.log10(v) for v in values if 0 < v < math.inf]
    low, high = (math.floor(min(found)), math.ceil(max(found))) if found else (0, 1)
    return LogAxis(low, max(high, low + 1), start, end)


def svg(body: Sequence[str], label: str, height: float = HEIGHT) -> str:
    """Return an image with an alternative text."""
    inside, alternative = "\n".join(body), escape(label)
    head = f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{alternative}">'
    return f"{head}\n<title>{alternative}</title>\n{inside}\n</svg>"


def frame(x_ticks: list[tuple[float, str]], y_ticks: list[tuple[float, str]], x_name: str, y_name: str) -> list[str]:
    """Return grid, labels and names of both axes."""
    lines = [f'<path class="grid" d="M{x:.1f} {TOP}V{BOTTOM}"/>' for x, _ in x_ticks]
    lines += [f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>' for y, _ in y_ticks]
    lines += [text(x, BOTTOM + 17, label, "middle") for x, label in x_ticks]
    lines += [text(LEFT - 5, y + 4, label, "end") for y, label in y_ticks]
    lines.append(text((LEFT + RIGHT) / 2, BOTTOM + 37, x_name, "middle"))
    middle = (TOP + BOTTOM) / 2
    lines.append(f'<g transform="rotate(-90 11 {middle:g})">{text(11, middle + 3, y_name, "middle")}</g>')
    return lines


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    """Words; escaped HTML."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'
