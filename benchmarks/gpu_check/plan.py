# SPDX-License-Identifier: MIT
"""What a check is asked to do, the child processes that do it, and what a stage has found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.children import Done, run_child
from bridge.engine.library import programs


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
        """A child process, see `benchmarks.harness.children.run_child`."""
        return run_child(command, self.environment, self.logs, limit)


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
