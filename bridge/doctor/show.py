# SPDX-License-Identifier: MIT
"""An examination on a terminal, and as JSON."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from bridge.doctor.isolated import printable
from bridge.doctor.records import Examination, Problem, Row, Section, State
from bridge.report.environment import environment

#: Version of the JSON; a key is added without a new one, never renamed or removed
JSON_VERSION = 1
STYLES = {State.FACT: "", State.GOOD: "green", State.ABSENT: "dim", State.BAD: "bold red"}
#: Width of the names
NAMES = 24


def show(console: Console, found: Examination) -> None:
    """Print the sections, what would help, and the verdict as the last line."""
    for section in found.sections:
        _section(console, section)
    ways = [("to use the cpu", one) for one in found.cpu.problems]
    ways += [("to use cuda", one) for one in found.cuda.problems] + [("could be better", one) for one in found.advice]
    if ways:
        console.print(Text("What would help", style="bold"))
        for aim, problem in ways:
            _problem(console, aim, problem)
        console.print()
    good = found.cpu.usable
    _wrapped(console, found.words, style="bold green" if good and found.cuda.usable else
             "bold yellow" if good else "bold red")


def _section(console: Console, section: Section) -> None:
    console.print(Text(section.title, style="bold"))
    for row in section.rows:
        _row(console, row)
    console.print()


def _row(console: Console, row: Row) -> None:
    """Name, value, and the note behind it where it fits, else below."""
    indent = " " * NAMES
    width = max(console.width, NAMES + 20)
    name = f"  {row.name:<{NAMES - 3}} "
    value, note = printable(row.value), printable(row.note)
    lines = _lines(value, width - NAMES)
    text = Text(name).append(("\n" + indent).join(lines), style=STYLES[row.state])
    if note:
        if len(lines) == 1 and len(name) + len(value) + len(note) + 3 <= width:
            text.append(f" ({note})", style="dim")
        else:
            text.append("".join(f"\n{indent}{line}" for line in _lines(note, width - NAMES)), style="dim")
    console.print(text, soft_wrap=True)


def _lines(text: str, width: int) -> list[str]:
    """A path stays whole, so that it can be copied."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _problem(console: Console, aim: str, problem: Problem) -> None:
    _wrapped(console, f"{aim}: {problem.what}", by=2)
    # In one piece, so that it can be copied
    console.print(Text(f"    {printable(problem.fix)}", style="bold"), soft_wrap=True)


def _wrapped(console: Console, text: str, *, by: int = 0, style: str = "") -> None:
    margin = " " * by
    lines = _lines(printable(text), console.width - by)
    console.print(Text(margin + f"\n{margin}".join(lines), style=style), soft_wrap=True)


def to_dict(found: Examination, exit_code: int) -> dict[str, Any]:
    """Return the JSON document (docs/json.md)."""
    return {
        "json_version": JSON_VERSION,
        "words": found.words,
        "exit_code": exit_code,
        "devices": {"cpu": found.cpu.to_dict(), "cuda": found.cuda.to_dict()},
        "advice": [asdict(one) for one in found.advice],
        "sections": [{"title": one.title, "rows": [row.to_dict() for row in one.rows]} for one in found.sections],
        "cpu_facts": found.cpu_facts,
        "cuda_facts": found.facts,
        "environment": environment(),
    }
