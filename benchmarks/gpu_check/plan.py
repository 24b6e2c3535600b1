# SPDX-License-Identifier: MIT
"""What a check is asked to do, the child processes that do it, and what a stage has found.

What child processes say goes to files as it comes, so that it is there whatever ends them, or us.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.engine.library import programs

#: The checkout, with tests/ and benchmarks/
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    Attributes
    ----------
    folder : for files of a run; large
    logs : for what child processes say
    kind : "GPU" or "software device"
    device : its text
    size, small : of images, HxW
    tests : files of tests
    environment : variables of the child processes
    """

    folder: Path
    logs: Path
    kind: str
    device: str
    size: str
    small: str
    tests: Sequence[str]
    environment: dict[str, str]

    def fixture(self, name: str, size: str, limit: float) -> Path:
        """An exchange file of one step by ``reference.export``, made when it is first asked for."""
        path = self.folder / name / "fixture.h5"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            self.run(limit, sys.executable, "-m", "reference.export", path, "--size", size,
                     "--steps", "1").expect(0)
        return path

    def step(self, fixture: Path, result: Path, limit: float, options: str = "", device: str = "") -> None:
        """``cnn_step``."""
        text = ",".join(filter(None, (device or self.device, options)))
        self.run(limit, programs.cnn_step(), fixture, result, "--device", text).expect(0)

    def run(self, limit: float, *command: str | Path) -> Done:
        """A child process with all its children, ended when its time is up.

        Raises
        ------
        StageError
            If it was ended, with what it had said.
        """
        number = len(list(self.logs.glob("*.out"))) + 1
        files = [self.logs / f"{number:02}-{_label(command)}.{end}" for end in ("out", "err")]
        # Else Python keeps back the last of what it says, and loses it when it is ended
        variables = self.environment | {"PYTHONUNBUFFERED": "1"}
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
            raise StageError(f"{Path(command[0]).name}: no end within {limit:.0f} s", "".join(said))
        return Done(" ".join(map(str, command[1:4])), code, *said)


def _label(command: Sequence[str | Path]) -> str:
    """The module or program, for the name of a file.

    >>> _label(["python3", "-m", "pytest", "-q"]), _label(["/usr/bin/cnn_step", "f.h5"])
    ('pytest', 'cnn_step')
    """
    words = list(map(str, command))
    return words[2] if words[1:2] == ["-m"] else Path(words[0]).name


class StageError(Exception):
    """A stage that did not come to its end; the message says why.

    Parameters
    ----------
    words : the message
    said : what its last child process had said, where there was one
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
        """Raise `StageError` with what it said last for another exit code."""
        if self.code not in codes:
            said = (self.errors.strip() or self.out.strip() or "nothing").splitlines()[-1]
            raise StageError(f"{self.what}: exit code {self.code}: {said}", self.out + self.errors)
        return self


@dataclass
class Found:
    """Of one stage: "passed", "failed" or "skipped", one sentence, numbers, and of a failure what was said."""

    outcome: str
    words: str
    numbers: dict[str, Any] = field(default_factory=dict)
    said: str = ""

    @classmethod
    def of(cls, right: bool, words: str, numbers: dict[str, Any], said: str = "") -> Found:
        """Passed when it is right."""
        return cls("passed", words, numbers) if right else cls("failed", words, numbers, said)


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
