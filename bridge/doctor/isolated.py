# SPDX-License-Identifier: MIT
"""Questions that may crash, abort or hang the process that asks them: asked in a child.

A broken CUDA installation does not always answer with an error. cuDNN calls abort() when one of its parts is missing,
a driver may wait for ever. The child writes what it begins and what it ends; so the question that it died of is
known, and a new child goes on behind it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: So long a killed process is waited for: one that hangs inside the driver cannot be ended
LEAVE = 2.0


@dataclass(frozen=True)
class ProbeAnswer:
    """What a question gave; `error` where it gave nothing.

    Attributes
    ----------
    died : the process went with it; `error` says how, `said` is the last line that it wrote
    """

    value: Any = None
    error: str = ""
    died: bool = False
    said: str = ""

    def why(self, doing: str = "") -> str:
        """Return the error; of a process that died also what it did, and its last words.

        Examples
        --------
        >>> ProbeAnswer(error="ended by SIGABRT", died=True, said="no libx.so").why("while loading liby.so")
        'ended by SIGABRT while loading liby.so: no libx.so'
        """
        text = f"{self.error} {doing}".rstrip() if self.died else self.error
        return f"{text}: {self.said}" if self.said else text


def ask(questions: Sequence[str], limit: float) -> dict[str, ProbeAnswer]:
    """Return the answers of ``bridge.doctor.isolated_child``, a child that may be silent for `limit` seconds.

    Parameters
    ----------
    questions : names that `bridge.doctor.isolated_child` knows, asked in this order in one process
    limit : seconds in which there must be another answer; there is one more process for each question that one died of

    Examples
    --------
    >>> ask(["echo:hello"], 60)["echo:hello"].value
    'hello'
    """
    answers: dict[str, ProbeAnswer] = {}
    left = list(questions)
    while left:
        found, end = _one_child(left, limit)
        answers |= found
        left = [one for one in left if one not in answers]
        if left:
            # Those before it are answered, so it is the one that the child was at
            answers[left.pop(0)] = end
    return answers


def _one_child(questions: Sequence[str], limit: float) -> tuple[dict[str, ProbeAnswer], ProbeAnswer]:
    """What it answered, and how it ended."""
    with tempfile.TemporaryDirectory(prefix="bridge-doctor-", ignore_cleanup_errors=True) as name:
        answers, errors = Path(name) / "answers", Path(name) / "errors"
        command = [sys.executable, "-m", "bridge.doctor.isolated_child", str(answers), *questions]
        # Into a file: a pipe that a grandchild holds open would be waited for
        with errors.open("wb") as stream:
            status = run(command, limit, stream, answers)
        lines = errors.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [printable(line.strip()) for line in lines if line.strip()]
        return _read(answers), ProbeAnswer(None, how_it_ended(status, limit), True, said[-1] if said else "")


def run(command: Sequence[str], limit: float, output: Any, answers: Path | None = None) -> int | None:
    """Return the exit status of a program whose output goes to `output`; None if it was ended because its time was up.

    Parameters
    ----------
    limit : seconds; where a program writes `answers` those in which that file must become longer
    """
    # Python's own dump would hide the last words of the library
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONFAULTHANDLER"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
                               start_new_session=True)
    try:
        return _wait(process, limit, answers)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(LEAVE)


def _wait(process: subprocess.Popen[bytes], limit: float, answers: Path | None) -> int | None:
    written = 0
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(limit)
        size = answers.stat().st_size if answers is not None and answers.exists() else 0
        if size == written:
            return None
        written = size


def how_it_ended(status: int | None, limit: float) -> str:
    """Return in words how a process ended.

    Examples
    --------
    >>> how_it_ended(-6, 10)
    'the process was ended by SIGABRT'
    """
    if status is None:
        return f"no answer within {limit:g} s"
    if status < 0:
        return f"the process was ended by {_signal(-status)}"
    return f"the process ended with the exit status {status}"


def printable(text: str) -> str:
    """Return the text without what a terminal would act on."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _read(path: Path) -> dict[str, ProbeAnswer]:
    """The lines that are whole: the child may have died while it wrote the last."""
    found: dict[str, ProbeAnswer] = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                one = json.loads(line)
                found[one["question"]] = ProbeAnswer(one["value"], one["error"])
    return found
