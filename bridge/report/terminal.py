# SPDX-License-Identifier: MIT
"""A judgement on a terminal: the verdict first, then what is behind it."""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.text import Text

from bridge.common.number_format import count
from bridge.common.stages import attempt
from bridge.judge.diagnosis.records import Diagnosis
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.report.facts import (
    adequacy_lines,
    effort_lines,
    facts,
    finding_lines,
    missing_lines,
    not_judged_lines,
    pattern_lines,
    step_lines,
    title,
)
from bridge.report.rows import compact, rows
from bridge.report.table import COLOURS, table

#: So many faults are described, the others named: the first in the order of computation cause most of the rest
MOST_WHOLE = 3
#: A space at which no line is broken
KEPT = "\N{NO-BREAK SPACE}"
LEGEND = "T = largest error / bound E; right means T <= 1. digits: decimals that agree."


def print_report(console: Console, comparison: Comparison, verdict: Verdict, *, every_step: bool) -> None:
    """Print verdict, faults, hints, outcomes of the steps, table, what was not judged, facts, what the data cannot
    show.

    A part that fails is added to what the verdict misses.
    """
    _print(console, verdict.words, style=f"bold {COLOURS[verdict.outcome]}")
    for name, part in {
        "the faults": lambda: _faults(console, verdict),
        "the table": lambda: _tensors(console, comparison, every_step),
        "the facts": lambda: _facts(console, comparison),
        "what these data can show": lambda: _adequacy(console, verdict),
    }.items():
        attempt(verdict.missing, f"{name}, on the terminal", part, None)
    for line in missing_lines(verdict):
        _print(console, line, style="yellow")


def _tensors(console: Console, comparison: Comparison, every_step: bool) -> None:
    console.print()
    _print(console, title(comparison), style="bold")
    for line in step_lines(comparison):
        _print(console, line)
    _table(console, comparison, every_step)


def _facts(console: Console, comparison: Comparison) -> None:
    for line in not_judged_lines(comparison):
        _print(console, line, style="yellow")
    for line in facts(comparison):
        _print(console, line, style="dim")


def _adequacy(console: Console, verdict: Verdict) -> None:
    if verdict.adequacy is not None:
        for line in adequacy_lines(verdict.adequacy, remarks=False):
            _print(console, line, style="yellow" if verdict.adequacy.blind else "dim")


def _faults(console: Console, verdict: Verdict) -> None:
    """What is wrong: the first faults with all that is known, the others by name; then where to look."""
    if verdict.diagnosis is not None:
        _findings(console, verdict, verdict.diagnosis)
    for hint in verdict.hints:
        _print(console, hint, by=2)


def _findings(console: Console, verdict: Verdict, diagnosis: Diagnosis) -> None:
    findings = diagnosis.findings
    for line in pattern_lines(diagnosis):
        _print(console, line, by=2, style="bold")
    whole = 0
    for number, finding in enumerate(findings, 1):
        head, *rest = finding_lines(number, finding, findings[: number - 1])
        _print(console, head, by=2, style="bold" if verdict.outcome is Outcome.BUG else "")
        whole += bool(rest)
        for line in rest if whole <= MOST_WHOLE else rest[:1]:
            _print(console, line, by=5)
    for line in effort_lines(diagnosis):
        _print(console, line, by=2, style="dim")


def _print(console: Console, text: str, *, by: int = 0, style: str = "") -> None:
    """Wrapped to the terminal, without blanks at the ends of lines; T stays with its value."""
    margin, whole = " " * by, text.replace("T = ", f"T{KEPT}={KEPT}")
    lines = textwrap.wrap(
        whole, console.width, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    )
    console.print(Text("\n".join(lines).replace(KEPT, " "), style=style), soft_wrap=True)


def _table(console: Console, comparison: Comparison, every_step: bool) -> None:
    """Everything, or what matters most and a word on the rest."""
    possible = rows(comparison)
    shown = possible if every_step else compact(comparison)
    if not shown:
        return
    _print(console, LEGEND, style="dim")
    console.print(table(comparison, shown, console.width, sections=every_step))
    seen = {id(one) for one in shown}
    hidden = [one for one in possible if id(one) not in seen]
    if hidden:
        wrong = sum(not one.passed for one in hidden)
        what = f"{wrong} of them outside their bounds" if wrong else "all inside their bounds"
        _print(console, f"{count(len(hidden), 'row')} more, {what}: --all shows every one.", style="dim")
