# SPDX-License-Identifier: MIT
"""Progress of long work on the terminal: a bar where somebody looks, one line where nobody does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

#: Called as ``report(done, total)``
Report = Callable[[int, int], None]


@contextmanager
def stage(console: Console, name: str) -> Iterator[Report]:
    """Announce a stage of the work; yields ``report(done, total)``, and prints the time it took.

    The bar is drawn only on a terminal; the line with the time is always printed.
    """
    start = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"),
               TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=1)
        yield lambda done, total: bar.update(task, completed=done, total=total)
    console.print(f"{name:<50} {time.monotonic() - start:6.1f} s", style="dim", highlight=False)
