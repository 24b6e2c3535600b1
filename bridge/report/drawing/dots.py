# SPDX-License-Identifier: MIT
"""T of every tensor of every step in one figure: a row for each tensor, a dot for each step, a line at 1.

Places across are shares of the width, so that the words are as large on a phone as on a screen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bridge.common.number_format import short
from bridge.judge.measure.findings import Judged
from bridge.report.drawing.axes import LogAxis
from bridge.report.table import shortened

#: Pixels from row to row, above the first and below the last, and over which the dots of a row are spread
ROW, HEAD, FOOT, SPREAD = 18, 44, 22, 8.0
#: Steps that are told apart; of more, those in a row share a dot, the largest T of them
MOST_STEPS = 12
#: Letters of a name, their width in pixels, and the width of a phone's page
MOST_LETTERS, LETTER, NARROW = 26, 6.4, 350
#: Decades beyond which all is one to the reader
LOWEST, HIGHEST = -6, 12
#: Percent of the width where the axis ends, and for what it cannot show
END, ASIDE = 94.0, 6.0


def dots(judged: Sequence[Judged]) -> str:
    """Return an SVG.

    Parameters
    ----------
    judged : in the order of computation; not empty
    """
    rows: dict[str, list[Judged]] = {}
    for one in judged:
        rows.setdefault(one.name, []).append(one)
    steps = sorted({one.step for one in judged})
    group = {step: i * min(len(steps), MOST_STEPS) // len(steps) for i, step in enumerate(steps)}
    letters = min(max(map(len, rows)), MOST_LETTERS)
    scale = _Scale([one.t for one in judged], 100 * letters * LETTER / NARROW + 3)
    bottom = HEAD + ROW * len(rows)
    body = [*_legend(steps, group), *scale.frame(bottom)]
    for i, (name, found) in enumerate(rows.items()):
        y = HEAD + ROW * (i + 0.5)
        body.append(f'<text x="{scale.start - 2:.1f}%" y="{y + 4:g}" text-anchor="end">'
                    f"{escape(shortened(name, letters))}</text>")
        body += _row(found, group, scale, y)
    label = f"T of {len(rows)} tensors in {len(steps)} steps, logarithmic; right code stays left of the line at 1"
    return (f'<svg class="dots" width="100%" height="{bottom + FOOT}" role="img" aria-label="{label}">\n'
            f"<title>{label}</title>\n" + "\n".join(body) + "\n</svg>")


class _Scale:
    """The logarithmic axis; what is 0, or below it, or not finite, or above it stands aside."""

    def __init__(self, found: Sequence[float], start: float) -> None:
        known = [math.log10(t) for t in found if 0 < t < math.inf]
        low = min(max(math.floor(min(known, default=-1)), LOWEST), -1)
        high = max(min(math.ceil(max(known, default=1)), HIGHEST), 1)
        self.start, self.words = start, ["", ""]
        if any(t < 10.0**low for t in found):
            self.words[0] = f"<{10.0**low:g}" if any(0 < t < 10.0**low for t in found) else "0"
        if any(not t <= 10.0**high for t in found):
            self.words[1] = f">{10.0**high:g}" if any(10.0**high < t < math.inf for t in found) else "\u221e"
        self.axis = LogAxis(low, high, start + ASIDE * bool(self.words[0]), END - ASIDE * bool(self.words[1]))

    def place(self, t: float) -> float:
        """In percent of the width."""
        if not t <= 10.0**self.axis.high:
            return END
        return self.start if t < 10.0**self.axis.low else self.axis.place(t)

    def frame(self, bottom: float) -> list[str]:
        """What lies beyond 1, the grid, the labels above and below, and the line."""
        one = self.axis.place(1.0)
        body = [f'<rect class="beyond" x="{one:.1f}%" y="{HEAD}" width="{END - one:.1f}%" height="{bottom - HEAD}"/>']
        ticks = [*self._decades(), (self.start, self.words[0]), (END, self.words[1])]
        for x, word in ticks:
            if word:
                body.append(f'<line class="grid" x1="{x:.1f}%" x2="{x:.1f}%" y1="{HEAD}" y2="{bottom}"/>')
                body += [f'<text x="{x:.1f}%" y="{y:g}" text-anchor="middle">{escape(word)}</text>'
                         for y in (HEAD - 6, bottom + 15)]
        return [*body, f'<line class="limit" x1="{one:.1f}%" x2="{one:.1f}%" y1="{HEAD}" y2="{bottom}"/>']

    def _decades(self) -> list[tuple[float, str]]:
        """At most five, and 1 is one of them."""
        axis = self.axis
        every = -(-(axis.high - axis.low) // 4)
        return [(axis.place(10.0**e), f"{10.0**e:g}") for e in range(axis.low, axis.high + 1) if e % every == 0]


def _legend(steps: Sequence[int], group: dict[int, int]) -> list[str]:
    """The first group of steps, the last, and one between; all of a few."""
    groups = sorted(set(group.values()))
    if len(groups) > 4:
        groups = [groups[0], groups[len(groups) // 2], groups[-1]]
    body = []
    for i, one in enumerate(groups):
        inside = [step for step in steps if group[step] == one]
        words = f"step {inside[0]}" if len(inside) == 1 else f"steps {inside[0]} to {inside[-1]}"
        x = 6 + i * (80 if len(steps) <= MOST_STEPS else 115)
        body += [_dot(f"{x}", 12, one, max(group.values()) + 1), f'<text x="{x + 8}" y="16">{words}</text>']
    return body


def _row(found: Sequence[Judged], group: dict[int, int], scale: _Scale, y: float) -> list[str]:
    """A dot for each group of steps, the later lower."""
    groups = max(group.values()) + 1
    worst: dict[int, Judged] = {}
    for one in found:
        here = group[one.step]
        if here not in worst or not one.t <= worst[here].t:
            worst[here] = one
    body = []
    for i, one in worst.items():
        lower = SPREAD * (i / (groups - 1) - 0.5) if groups > 1 else 0.0
        said = f"{one.name}, step {one.step}: T = {short(one.t)}, {one.outcome.words}"
        body.append(_dot(f"{scale.place(one.t):.2f}%", y + lower, i, groups, one.outcome.label, said))
    return body


def _dot(x: str, y: float, i: int, groups: int, kind: str = "rounding", said: str = "") -> str:
    """The later the fuller."""
    mark = f'<circle class="dot {kind}" cx="{x}" cy="{y:.1f}" r="3.5" fill-opacity="{(i + 1) / groups:.2f}"'
    return f"{mark}><title>{escape(said)}</title></circle>" if said else f"{mark}/>"
