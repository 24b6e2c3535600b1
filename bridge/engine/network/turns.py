# SPDX-License-Identifier: MIT
"""One thread at a time on a network, whose calls let other threads run meanwhile."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from bridge.common.errors import EngineError

P = ParamSpec("P")
R = TypeVar("R")


class Shared(Protocol):
    """What has one turn."""

    turn: Any


S = TypeVar("S", bound=Shared)


def new_turn() -> Any:
    """Return what a thread takes, again where it has it already.

    >>> new_turn().acquire(blocking=False)
    True
    """
    return threading.RLock()


def one_at_a_time(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Refuse a call while another thread's is at work: outputs and gradients would be those of one or the other.

    Raises
    ------
    EngineError
        By the method, in the second thread.
    """
    @functools.wraps(method)
    def alone(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        turn = self.turn
        if not turn.acquire(blocking=False):
            raise EngineError(f"{method.__name__}: another thread is at work on this network, expected one at a time "
                              "(a lock of yours, or a network for each)")
        try:
            return method(self, *args, **kwargs)
        finally:
            turn.release()
    return cast("Callable[Concatenate[S, P], R]", alone)
