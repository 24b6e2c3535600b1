# SPDX-License-Identifier: MIT
"""A program that is told to end by a signal cleans up, and then ends by that signal.

Python's own answer to SIGTERM and SIGHUP is to be gone at once: gigabytes stay in a folder for temporary files, and
the child that is at work goes on. Ctrl-C raises KeyboardInterrupt without help; only before a command has begun, while
its modules are imported, nobody is there to catch it. As reference/ending.py.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
#: Of signals that came, whether they raised something; a handler may put here whatever it interrupts
_heeded: SimpleQueue[bool] = SimpleQueue()
#: Held while a thread sends one again
_sending = threading.Lock()


class Ended(BaseException):
    """A signal wants the end of the program; raised wherever the main thread is."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def signals_raise() -> Iterator[None]:
    """Let `SIGNALS` raise `Ended` meanwhile, each once; not one that is ignored or handled otherwise.

    Does nothing in other threads than the main one, where Python lets nobody say what a signal does. In a finalizer,
    or the callback of a weak reference, Python ignores what is raised: there the signal is sent once more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    mine = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, _raise)
    began = signal.getsignal(signal.SIGINT)
    if isinstance(began, _ImportsEnd):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    before = sys.unraisablehook

    def again(ignored: sys.UnraisableHookArgs) -> None:
        if isinstance(ignored.exc_value, Ended):
            signal.signal(ignored.exc_value.number, _raise)
            # The thread that sent this one may be about to end
            _send_again(ignored.exc_value.number, 1.0)
        else:
            before(ignored)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before
        for number in mine:
            signal.signal(number, signal.SIG_DFL)
        if isinstance(began, _ImportsEnd):
            signal.signal(signal.SIGINT, began)


def end_by(number: int) -> None:
    """End this process as if nobody had been told of the signal; what was printed is kept."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _raise(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_name == "again" and frame.f_code.co_filename == __file__:
            # What is raised in the hook is ignored, too
            _heeded.put(False)
            _send_again(number)
            return
        frame = frame.f_back
    # A second one does not wait
    signal.signal(number, signal.SIG_DFL)
    _heeded.put(True)
    raise Ended(number)


def _send_again(number: int, patience: float = 0.0) -> None:
    """Let a thread send a signal until it is heeded, unless one does so, which may take `patience` seconds to end."""
    if not _sending.acquire(timeout=patience):
        return
    while not _heeded.empty():
        _heeded.get()
    threading.Thread(target=_insist, args=(number,), daemon=True).start()


def _insist(number: int) -> None:
    heeded = False
    while not heeded:
        time.sleep(0.001)
        os.kill(os.getpid(), number)
        heeded = _heeded.get()
    _sending.release()


class _ImportsEnd:
    """What Ctrl-C does while a command's modules are imported."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, number: int, frame: FrameType | None) -> None:
        os.write(2, f"{self.name}: interrupted\n".encode())
        os._exit(130)


def interrupt_ends_imports() -> None:
    """Let Ctrl-C end a command of this package with one line and 130 while its modules are imported.

    Until `signals_raise` there is nothing to clean up. Does nothing in the programs of others, which import the
    package, nor where Ctrl-C is ignored.
    """
    # So Python calls itself while it looks for the module of -m
    name = sys.orig_argv[-len(sys.argv)].removeprefix("-m") if sys.argv[:1] == ["-m"] else ""
    if name.split(".")[0] == "bridge" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _ImportsEnd(name))
