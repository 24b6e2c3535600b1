# SPDX-License-Identifier: MIT
"""Child processes with a time limit. What they say goes to files as it comes, and is there whatever ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.processes import ROOT


class ChildError(Exception):
    """A child process that did not come to its end, or not as it must; the message says why.

    Parameters
    ----------
    words : the message
    said : what it had said
    """

    def __init__(self, words: str, said: str = "") -> None:
        super().__init__(words)
        self.said = said


@dataclass(frozen=True)
class Done:
    """A child process that has ended."""

    what: str
    code: int
    out: str
    errors: str

    def expect(self, *codes: int) -> Done:
        """Raise `ChildError` with what it said last for another exit code."""
        if self.code not in codes:
            said = (self.errors.strip() or self.out.strip() or "nothing").splitlines()[-1]
            raise ChildError(f"{self.what}: exit code {self.code}: {said}", self.out + self.errors)
        return self


def run_child(command: Sequence[str | Path], environment: Mapping[str, str], logs: Path, limit: float) -> Done:
    """Run a program with all its children, and end them when their time is up.

    Parameters
    ----------
    command : program and arguments
    environment : variables
    logs : folder for what it says
    limit : seconds

    Raises
    ------
    ChildError
        If it was ended, with what it had said.
    """
    number = len(list(logs.glob("*.out"))) + 1
    files = [logs / f"{number:02}-{_label(command)}.{end}" for end in ("out", "err")]
    # Else Python keeps back the last of what it says, and loses it when it is ended
    variables = {**environment, "PYTHONUNBUFFERED": "1"}
    with open(files[0], "wb") as out, open(files[1], "wb") as errors, subprocess.Popen(
            list(map(str, command)), cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
            start_new_session=True) as child:
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = child.wait(timeout=max(limit, 0.1))
        if code is None:
            os.killpg(child.pid, signal.SIGKILL)
    said = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    if not said[1]:
        files[1].unlink()
    if code is None:
        raise ChildError(f"{Path(command[0]).name}: no end within {limit:.0f} s", "".join(said))
    return Done(" ".join(map(str, command[1:4])), code, *said)


def _label(command: Sequence[str | Path]) -> str:
    """The module or program, for the name of a file.

    >>> _label(["python3", "-m", "pytest", "-q"]), _label(["/usr/bin/cnn_step", "f.h5"])
    ('pytest', 'cnn_step')
    """
    words = list(map(str, command))
    return words[2] if words[1:2] == ["-m"] else Path(words[0]).name


class Clock:
    """Seconds that are left of a limit.

    >>> Clock(60.0).left > 59
    True
    """

    def __init__(self, limit: float) -> None:
        self.end = time.monotonic() + limit

    @property
    def left(self) -> float:
        """Not below 0."""
        return max(self.end - time.monotonic(), 0.0)
