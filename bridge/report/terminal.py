# SPDX-License-Identifier: MIT
"""A judgement on a terminal: the verdict first, then what is behind it."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from bridge.judged import Comparison
from bridge.outcome import Outcome
from bridge.report.facts import (
    adequacy_lines,
    effort_lines,
    facts,
    finding_lines,
    not_judged_lines,
    pattern_lines,
    step_lines,
    title,
)
from bridge.report.rows import compact, rows
from bridge.report.table import COLOURS, table
from bridge.verdict import Verdict, count

#: So many faults are described, the others named: the first in the order of computation cause most of the rest
MOST_WHOLE = 3
#: Remarks on the data; a report has them all
MOST_REMARKS = 2
LEGEND = "T = largest error / bound E; right means T <= 1. digits: decimals that agree."


def print_report(console: Console, comparison: Comparison, verdict: Verdict, *, every_step: bool) -> None:
    """Verdict, faults, hints, zones of the steps, table, what was not judged, facts, what the data cannot show."""
    console.print(Text(verdict.words, style=f"bold {COLOURS[verdict.outcome]}"))
    _faults(console, verdict)
    for hint in verdict.hints:
        _indented(console, hint)
    console.print()
    console.print(Text(title(comparison), style="bold"))
    for line in step_lines(comparison):
        console.print(Text(line))
    _table(console, comparison, every_step)
    for line in not_judged_lines(comparison):
        console.print(Text(line, style="yellow"))
    for line in facts(comparison):
        console.print(Text(line, style="dim"))
    if verdict.adequacy is not None:
        for line in adequacy_lines(verdict.adequacy, MOST_REMARKS):
            console.print(Text(line, style="yellow" if verdict.adequacy.blind else "dim"))


def _faults(console: Console, verdict: Verdict) -> None:
    """What is wrong: the first faults with all that is known, the others by name."""
    if verdict.diagnosis is None:
        return
    for line in pattern_lines(verdict.diagnosis):
        _indented(console, line, style="bold")
    for number, finding in enumerate(verdict.diagnosis.findings, 1):
        head, *rest = finding_lines(number, finding)
        _indented(console, head, style="bold" if verdict.outcome is Outcome.BUG else "")
        for line in rest if number <= MOST_WHOLE else []:
            _indented(console, line, by=5)
    for line in effort_lines(verdict.diagnosis):
        _indented(console, line, style="dim")


def _indented(console: Console, text: str, by: int = 2, style: str = "") -> None:
    console.print(Padding(Text(text, style=style), (0, 0, 0, by), expand=False))


def _table(console: Console, comparison: Comparison, every_step: bool) -> None:
    """Everything, or what matters most and a word on the rest."""
    possible = rows(comparison)
    shown = possible if every_step else compact(comparison)
    if not shown:
        return
    console.print(Text(LEGEND, style="dim"))
    console.print(table(comparison, shown, console.width, sections=every_step))
    seen = {id(one) for one in shown}
    hidden = [one for one in possible if id(one) not in seen]
    if hidden:
        wrong = sum(not one.passed for one in hidden)
        what = f"{wrong} of them outside their bounds" if wrong else "all inside their bounds"
        console.print(Text(f"{count(len(hidden), 'row')} more, {what}: --all shows every one.", style="dim"))
