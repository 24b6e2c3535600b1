# SPDX-License-Identifier: MIT
"""The table of tensors, as wide as the terminal is."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from bridge.common.number_format import short
from bridge.judge.measure.condition import kappa
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.outcome import Outcome

#: Of a long name at least so many characters are shown, however narrow the terminal
SHORTEST_NAME = 12
#: Between two columns
GAP = 2

COLOURS = {
    Outcome.ROUNDING: "green",
    Outcome.BUG: "bold red",
    Outcome.PRECISION: "bold yellow",
    Outcome.CANNOT_TELL: "bold yellow",
    Outcome.BAD_INPUT: "bold red",
}

#: Columns besides the name, in the order in which a narrow terminal keeps them
NUMBERS: dict[str, Callable[[Comparison, Judged], str]] = {
    "step": lambda _, j: str(j.step),
    "T": lambda _, j: short(j.t),
    "outcome": lambda _, j: j.outcome.words + ", estimated" * j.estimated,
    "digits": lambda _, j: digits(j.statistic.digits),
    "max error": lambda _, j: short(j.statistic.error),
    "E there": lambda _, j: short(j.statistic.bound),
    "kappa": lambda c, j: "-" if (k := kappa(c, j)) is None else short(k),
    "worst at": lambda _, j: ",".join(map(str, j.statistic.at)) or "-",
}


def digits(value: float) -> str:
    """
    >>> digits(6.84), digits(math.inf), digits(math.nan), digits(-0.3)
    ('6.8', 'all', '-', '0')
    """
    if math.isnan(value):
        return "-"
    return "all" if value == math.inf else "0" if value < 0.05 else f"{value:.1f}"


def shortened(name: str, width: int) -> str:
    """Return a long name without its middle: its ends tell more.

    >>> shortened("forward/conv1", 9), shortened("forward/conv1", 13)
    ('forw…onv1', 'forward/conv1')
    """
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}\u2026{name[len(name) - tail :]}"


def table(comparison: Comparison, shown: list[Judged], width: int, *, sections: bool = False) -> Table:
    """Return the columns that fit into `width`, numbers whole, and of the names what is left; `sections` parts the
    steps.
    """
    cells = {head: [cell(comparison, judged) for judged in shown] for head, cell in NUMBERS.items()}
    widths = {head: max(map(len, (head, *column))) for head, column in cells.items()}
    wanted = max([len(judged.name) for judged in shown] + [SHORTEST_NAME])
    kept = _that_fit(widths, width, wanted)
    names = max(width - sum(widths[head] + GAP for head in kept), SHORTEST_NAME)
    found = Table(pad_edge=False, box=None, header_style="bold")
    found.add_column("tensor", no_wrap=True)
    for head in kept:
        found.add_column(head, justify="left" if head == "outcome" else "right", no_wrap=True, min_width=widths[head])
    for i, judged in enumerate(shown):
        row = [Text(cells[head][i], style=COLOURS[judged.outcome] if head == "outcome" else "") for head in kept]
        style = "" if judged.passed else "bold"
        found.add_row(Text(shortened(judged.name, names)), *row, style=style)
        if sections and shown[i + 1 :] and shown[i + 1].step != judged.step:
            found.add_section()
    return found


def _that_fit(widths: dict[str, int], width: int, wanted: int) -> list[str]:
    """The first columns beside which names fit; up to E there, names are shortened rather than numbers left out."""
    heads = list(widths)
    for last in range(len(heads), 2, -1):
        kept = heads[:last]
        names = wanted if last > heads.index("E there") + 1 else SHORTEST_NAME
        if sum(widths[head] + GAP for head in kept) + names <= width:
            return kept
    return heads[:2]
