# SPDX-License-Identifier: MIT
"""How far the work is: a bar on a terminal, a line per stage elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Stages:
    """Context manager that is told when a stage begins.

    Parameters
    ----------
    total : int
        Number of stages to come.
    quiet : bool
        Show nothing at all: for callers from Python.

    The bar goes to standard error, and only where that is a terminal. The lines go to standard output, so
    that standard error holds nothing but an error.
    """

    def __init__(self, total: int, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._quiet = quiet
        self._bar: Progress | None = None
        if not quiet and console.is_interactive:
            columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", total=total)
        self._begun = 0

    def begin(self, text: str) -> None:
        """The stage before is done, this one begins."""
        if self._bar is not None:
            self._bar.update(self._task, completed=self._begun, description=text)
        elif not self._quiet:
            print(text, flush=True)
        self._begun += 1

    def __enter__(self) -> Stages:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
