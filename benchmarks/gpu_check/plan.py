# SPDX-License-Identifier: MIT
"""What a check is asked to do, the child processes that do it, and what a stage has found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge import programs

#: The checkout, with tests/ and benchmarks/
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    Attributes
    ----------
    folder : for files of a run; large
    kind : "GPU" or "software device"
    device : its text
    size, small : of images, HxW
    tests : files of tests
    environment : variables of the child processes
    """

    folder: Path
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
        """A child process with all its children, ended when its time is up."""
        with subprocess.Popen(list(map(str, command)), cwd=ROOT, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True) as child:
            try:
                out, errors = child.communicate(timeout=max(limit, 0.1))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
                raise StageError(f"{Path(command[0]).name}: no end within {limit:.0f} s") from None
        return Done(" ".join(map(str, command[1:4])), child.returncode, out, errors)


class StageError(Exception):
    """A stage that did not come to its end; the message says why."""


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
            raise StageError(f"{self.what}: exit code {self.code}: {said}")
        return self


@dataclass
class Found:
    """Of one stage: "passed", "failed" or "skipped", one sentence, and numbers."""

    outcome: str
    words: str
    numbers: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, right: bool, words: str, numbers: dict[str, Any]) -> Found:
        """Passed when it is right."""
        return cls("passed" if right else "failed", words, numbers)


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
