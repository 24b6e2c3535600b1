# SPDX-License-Identifier: MIT
"""The parent's side of workers: each in a process of its own, started when it is needed, ended when its time is up."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.harness.errors import BenchmarkError

#: The checkout, with tests/ and benchmarks/
ROOT = Path(__file__).resolve().parents[2]
#: For a library's import and the first call into CUDA
START_SECONDS = 90.0
INFINITE = float("inf")


class LostError(BenchmarkError):
    """A process that has ended, or was ended, instead of giving an answer; the message says how."""


class TimeUpError(LostError):
    """It was ended because the whole run's time was up: nothing is said about the framework."""


class Process:
    """One worker, started with the first request; after its end the next request starts it anew. A context manager.

    Parameters
    ----------
    worker : arguments of Python: ``-m``, a module that calls `benchmarks.harness.worker.main`, and its arguments
    environment : its variables
    pausing : stop it (SIGSTOP) while it is not asked, so that its waiting threads take no time from the others
    """

    def __init__(self, worker: Sequence[str], environment: Mapping[str, str], *, pausing: bool = False) -> None:
        self._worker, self._environment, self._pausing = worker, dict(environment), pausing
        self._child: subprocess.Popen[bytes] | None = None
        self._rest, self._fresh = b"", True

    def start(self) -> None:
        """Now, so that it is there when it is needed; nothing where it runs."""
        if self._child is not None:
            return
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self._rest, self._fresh = b"", True
        self._child = subprocess.Popen(
            [sys.executable, *self._worker], cwd=ROOT, env=self._environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._messages, start_new_session=True)

    @property
    def used(self) -> bool:
        """Whether it runs and has given an answer."""
        return self._child is not None and not self._fresh

    @property
    def number(self) -> int | None:
        """The operating system's, while it runs."""
        return self._child and self._child.pid

    def ask(self, do: str, limit: float = INFINITE, left: float = INFINITE, **request: Any) -> dict[str, Any]:
        """A request and its answer.

        Parameters
        ----------
        do, request : as the worker takes them
        limit : seconds that the answer may take, in a process that runs already
        left : seconds of the whole run

        Raises
        ------
        LostError
            If the process ends instead, or has to be ended.
        TimeUpError
            If it was ended because no time is left.
        """
        self.start()
        self._signal("SIGCONT")
        with contextlib.suppress(OSError):  # it has ended; reading says how
            self._child.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            self._child.stdin.flush()
        answer = json.loads(self._line(limit + START_SECONDS * self._fresh, left))
        self._fresh = False
        if answer.pop("broken", False):
            # Its CUDA is of no use to those who would come next
            self.close()
        self._signal("SIGSTOP")
        return answer

    def _line(self, given: float, left: float) -> bytes:
        """What it writes next."""
        end = time.monotonic() + min(given, left)
        while b"\n" not in self._rest:
            wait = max(end - time.monotonic(), 0.0)
            ready, _, _ = select.select([self._child.stdout], [], [], None if wait == INFINITE else wait)
            if not ready:
                self.close()
                raise TimeUpError("the time was up") if left < given else LostError(f"no answer within {given:.0f} s")
            some = os.read(self._child.stdout.fileno(), 2**20)
            if not some:
                raise LostError(self._last_words())
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _signal(self, name: str) -> None:
        if self._pausing and self._child is not None and hasattr(signal, name):
            self._child.send_signal(getattr(signal, name))

    def _last_words(self) -> str:
        """Exit status and the end of what it printed."""
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._child.wait(10.0)
        self._messages.seek(0)
        lines = self._messages.read().decode("utf-8", "replace").split("\n")
        words = next((line.strip() for line in reversed(lines) if line.strip()), "silent")
        self.close()
        return f"ended with status {status}: {words[:600]}"

    def close(self) -> None:
        """End it with all its children."""
        if self._child is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.communicate()
        self._messages.close()
        self._child = None

    def __enter__(self) -> Process:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


class Processes:
    """Workers by name, each made when it is first named; a context manager.

    Parameters
    ----------
    made : gives a new one
    """

    def __init__(self, made: Callable[[], Process]) -> None:
        self._made = made
        self._all: dict[str, Process] = {}

    def __getitem__(self, name: str) -> Process:
        if name not in self._all:
            self._all[name] = self._made()
        return self._all[name]

    def fresh(self) -> Processes:
        """Others of the same kind, of which none runs yet."""
        return Processes(self._made)

    @property
    def used(self) -> list[Process]:
        """Those that have given an answer, and run."""
        return [one for one in self._all.values() if one.used]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        for one in self._all.values():
            one.close()
