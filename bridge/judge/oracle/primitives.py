# SPDX-License-Identifier: MIT
"""Calls of the primitives that formulas are made of, which somebody may watch and alter.

The formulas of `bridge.operations` call methods of `bridge.judge.oracle.bounded.Bounded`. The search for a mistake
evaluates the same formula with one of these calls altered (`bridge.judge.diagnosis.altered`). What a primitive calls
itself is part of it and is not watched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


class Watcher(Protocol):
    """Stands between a formula and its primitives."""

    #: where a formula names two ways to compute a number, the second one is taken
    other_way: bool

    def __call__(self, method: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        """Return what the call of a primitive gives; the first of `given` is its object."""
        ...


class _Watched(threading.local):
    watcher: Watcher | None = None


_now = _Watched()
#: Names of all primitives
PRIMITIVES: set[str] = set()


def primitive(method: Method) -> Method:
    """Make a method a primitive: its calls can be watched."""
    PRIMITIVES.add(method.__name__)

    @wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        if _now.watcher is None:
            return method(*given, **named)
        with watched(None) as watcher:
            assert watcher is not None
            return watcher(method, *given, **named)

    return call  # type: ignore[return-value]


@contextmanager
def watched(watcher: Watcher | None) -> Iterator[Watcher | None]:
    """Have a watcher (None: nobody) at the primitives of this thread; the context is the one before."""
    before, _now.watcher = _now.watcher, watcher
    try:
        yield before
    finally:
        _now.watcher = before


def is_watched() -> bool:
    """Return whether somebody watches the primitives of this thread."""
    return _now.watcher is not None


def takes_other_way() -> bool:
    """Return whether the second of two ways to compute a number is wanted."""
    return _now.watcher is not None and _now.watcher.other_way
