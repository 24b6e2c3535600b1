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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: For torch's import and the first call into CUDA
START_SECONDS = 90.0


class LostError(Exception):
    """A process that has ended, or was ended, instead of giving an answer; the message says how."""


class TimeUpError(LostError):
    """It was ended because the whole run's time was up: nothing is said about the contestant."""


class Process:
    """One worker, started with the first question; after its end the next question starts it anew.

    Parameters
    ----------
    device : of `benchmarks.gpu.worker`
    environment : its variables
    """

    #: What is started; tests start something else
    command: Sequence[str] = (sys.executable, "-m", "benchmarks.gpu.worker")

    def __init__(self, device: str, environment: Mapping[str, str]) -> None:
        self._device, self._environment = device, dict(environment)
        self._child: subprocess.Popen[bytes] | None = None
        self._rest, self._fresh = b"", True

    def start(self) -> None:
        """Now, so that it is there when it is needed; nothing where it runs."""
        if self._child is not None:
            return
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self._rest, self._fresh = b"", True
        self._child = subprocess.Popen(
            [*self.command, self._device], cwd=ROOT, env=self._environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._messages, start_new_session=True)

    @property
    def used(self) -> bool:
        """Whether it runs and has given an answer."""
        return self._child is not None and not self._fresh

    def ask(self, do: str, limit: float, left: float = float("inf"), **request: Any) -> dict[str, Any]:
        """A question and its answer.

        Parameters
        ----------
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
        child, given = self._child, limit + START_SECONDS * self._fresh
        end = time.monotonic() + min(given, left)
        with contextlib.suppress(OSError):  # it has ended; reading says how
            child.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            child.stdin.flush()
        while b"\n" not in self._rest:
            ready, _, _ = select.select([child.stdout], [], [], max(end - time.monotonic(), 0.0))
            if not ready:
                self.close()
                raise TimeUpError("the time was up") if left < given else LostError(f"no answer within {given:.0f} s")
            some = os.read(child.stdout.fileno(), 2**20)
            if not some:
                raise LostError(self._last_words())
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        self._fresh = False
        answer = json.loads(line)
        if answer.pop("broken", False):
            # Its CUDA is of no use to those who would come next
            self.close()
        return answer

    def _last_words(self) -> str:
        """Exit status and the end of what it printed."""
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._child.wait(10.0)
        self._messages.seek(0)
        lines = self._messages.read().decode("utf-8", "replace").split("\n")
        words = next((line.strip() for line in reversed(lines) if line.strip()), "silent")
        self.close()
        return f"the process ended with status {status}: {words[:600]}"

    def close(self) -> None:
        """End it with all its children."""
        if self._child is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.communicate()
        self._messages.close()
        self._child = None


class Processes:
    """All workers by name; a context manager.

    Parameters
    ----------
    device, environment : as of `Process`
    """

    def __init__(self, device: str, environment: Mapping[str, str]) -> None:
        self.device, self.environment = device, environment
        self._all: dict[str, Process] = {}

    def __getitem__(self, name: str) -> Process:
        return self._all.setdefault(name, Process(self.device, self.environment))

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
