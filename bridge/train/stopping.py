# SPDX-License-Identifier: MIT
"""Signals that end a training after the step that is at work, so that a checkpoint can be written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bridge.common.signals import Ended

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Request:
    """Whether the end is asked for, by which signal."""

    number: int | None = None

    def error(self) -> BaseException:
        """Return what Python, or `bridge.common.signals`, would have raised at once."""
        return KeyboardInterrupt() if self.number == signal.SIGINT else Ended(self.number or signal.SIGTERM)


@contextmanager
def signals_noted(*, once: bool = True) -> Iterator[Request]:
    """Note the first of `SIGNALS` meanwhile; with `once` a second one is as it was before, and does not wait.

    Without `once` all are noted: a terminal tells every rank of Ctrl-C, and the launcher tells it again.

    Does nothing in other threads than the main one, where Python lets nobody say what a signal does.
    """
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        request.number = number
        if once:
            restore()

    def restore() -> None:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)

    for number, handler in before.items():
        if handler not in (None, signal.SIG_IGN):
            signal.signal(number, note)
    try:
        yield request
    finally:
        restore()
