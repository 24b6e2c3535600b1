# SPDX-License-Identifier: MIT
"""Interleaved runs: what is compared is measured in alternating order (a b c, c b a, ...).

What slows the machine down in between, or makes it warmer, is then no one's advantage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.harness.timing import summary


def interleaved(measured: Mapping[str, Callable[[], float | None]], rounds: int,
                between: Callable[[], object] = lambda: None) -> dict[str, list[float]]:
    """Seconds of every run, by name.

    Parameters
    ----------
    measured : by name, what runs once and gives its seconds, or None where it could not
    rounds : runs of each
    between : called before every round

    Examples
    --------
    >>> times = iter([1.0, 2.0, 3.0, 4.0])
    >>> interleaved({"a": lambda: next(times), "b": lambda: next(times)}, 2)
    {'a': [1.0, 4.0], 'b': [2.0, 3.0]}
    """
    found: dict[str, list[float]] = {name: [] for name in measured}
    for number in range(rounds):
        between()
        for name in list(measured)[:: 1 if number % 2 == 0 else -1]:
            seconds = measured[name]()
            if seconds is not None:
                found[name].append(seconds)
    return found


def warm_summaries(measured: Mapping[str, Callable[[], float | None]], rounds: int) -> dict[str, dict[str, Any]]:
    """`summary` of interleaved runs by name, after one round that is not counted."""
    interleaved(measured, 1)
    return {name: summary(times) for name, times in interleaved(measured, rounds).items()}
