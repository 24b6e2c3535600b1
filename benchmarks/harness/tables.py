# SPDX-License-Identifier: MIT
"""Tables for the terminal, all alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table


def table(title: str, *headings: str, texts: int = 1) -> Table:
    """A table without lines; the first `texts` columns hold text, the others numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for place, heading in enumerate(headings):
        made.add_column(heading, justify="left" if place < texts else "right", overflow="fold")
    return made


def skipped(results: dict[str, dict[str, Any]]) -> str:
    """Who did not take part, and why; empty where all did."""
    return "\n".join(f"  skipped: {name}: {one['skipped']}" for name, one in results.items() if "skipped" in one)


def goals(found: Sequence[dict[str, Any]], title: str = "goals") -> Table:
    """What was wanted, what was found; a goal as `benchmarks.harness.document.Goal` writes it."""
    made = table(title, "goal", "wanted", "found", "")
    words = {True: "met", False: "not met", None: "not measured"}
    for goal in found:
        sign = ">=" if goal["at_least"] else "<="
        value = "" if goal["found"] is None else f"{goal['found']:.3g} {goal['unit']}"
        made.add_row(goal["text"], f"{sign} {goal['wanted']:g} {goal['unit']}", value, words[goal["met"]])
    return made


def caption(made: Table, reasons: Iterable[str]) -> Table:
    """Lines below a table, each once: who did not take part, and why."""
    made.caption, made.caption_justify = "\n".join(filter(None, dict.fromkeys(reasons))) or None, "left"
    return made


def optional(value: float | None, form: str = ".2f") -> str:
    """A number, or nothing where there is none.

    >>> optional(0.125), optional(None)
    ('0.12', '')
    """
    return "" if value is None else f"{value:{form}}"


def times(one: dict[str, Any]) -> tuple[str, str]:
    """The median and the quartiles of `benchmarks.harness.timing.summary`, in milliseconds."""
    return milliseconds(one["median"]), " .. ".join(map(milliseconds, one["quartiles"]))


def threads(number: int) -> str:
    """In words."""
    return f"{number} thread{'s' * (number != 1)}"


def title(case: dict[str, Any]) -> str:
    """Name of a case with its number of threads, said once.

    Examples
    --------
    >>> title({"name": "large", "threads": 2}), title({"name": "small, 1 thread", "threads": 1})
    ('large, 2 threads', 'small, 1 thread')
    """
    words = threads(case["threads"])
    return case["name"] if case["name"].endswith(words) else f"{case['name']}, {words}"


def milliseconds(seconds: float) -> str:
    """With three digits or more."""
    return f"{1000 * seconds:.0f}" if seconds >= 1 else f"{1000 * seconds:.3g}"
