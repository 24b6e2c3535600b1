# SPDX-License-Identifier: MIT
"""Tables for the terminal, all alike."""

from __future__ import annotations

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
