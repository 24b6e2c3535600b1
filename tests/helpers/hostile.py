# SPDX-License-Identifier: MIT
"""Run programs on files that may crash them: in child processes, with limits of memory and time, one file after the
other. Also the child itself: ``python hostile.py MEMORY`` reads pairs of paths and answers with what compare did."""

from __future__ import annotations

import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import ROOT

SECONDS = 20.0
#: Address space of a child, most of which its libraries only reserve
MEMORY = 3 * 2**30
#: What may be in use at once: far more than the files, far less than they declare
MOST_MIB = 700.0


@dataclass
class Answer:
    """What a program did with a file; the code is negative after a signal, None after too long a time."""

    code: int | None
    errors: list[str]
    seconds: float
    mib: float = 0.0

    def complaints(self, codes: tuple[int, ...]) -> list[str]:
        """What no file may make a program do."""
        found = []
        if self.code is None:
            found.append(f"hung for {self.seconds:.0f} s")
        elif self.code < 0:
            found.append(f"died of signal {-self.code}")
        elif self.code not in codes:
            found.append(f"exit code {self.code}")
        elif self.code == 2 and len(self.errors) != 1:
            found.append(f"{len(self.errors)} lines")
        elif self.code == 2 and ".h5" not in self.errors[0]:
            found.append("no file is named")
        if any("Traceback" in line or "fault of ours" in line for line in self.errors):
            found.append("traceback")
        if any(len(line) > 1200 or not line.isprintable() for line in self.errors):
            found.append("a line that is no line")
        if self.mib > MOST_MIB:
            found.append(f"{self.mib:.0f} MiB")
        return found


def small_pair(folder: Path) -> tuple[Path, Path]:
    """A right fixture and its right result, of 150 kB together: most of their bytes are structure."""
    from torch import nn

    from bridge.engine.library import extension
    from reference.export import export
    from reference.settings import ExportSettings

    def model() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, (2, 3)))

    settings = ExportSettings(height=6, width=7, batch=2, steps=2, momentum=0.5, threads=1, model=model)
    fixture = export(folder / "fixture.h5", settings).path
    extension.run_file(fixture, folder / "result.h5")
    return fixture, folder / "result.h5"


class Judge:
    """``bridge.compare`` in a child process that is used until it dies; a context manager."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, fixture: Path, result: Path) -> Answer:
        """Judge a result; a child that hangs or dies is replaced."""
        child = self._ready()
        assert child.stdin and child.stdout
        begin = time.monotonic()
        child.stdin.write(json.dumps([str(fixture), str(result)]) + "\n")
        child.stdin.flush()
        ready, _, _ = select.select([child.stdout], [], [], SECONDS)
        line = child.stdout.readline() if ready else ""
        seconds = time.monotonic() - begin
        if line:
            answer = Answer(**json.loads(line), seconds=seconds)
            if answer.mib > MOST_MIB:
                # It keeps what it once had, and the next file would be blamed
                self._end()
            return answer
        code = child.wait() if ready else None
        self._end()
        return Answer(code, [], seconds)

    def _ready(self) -> subprocess.Popen[str]:
        if self._child is None:
            environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"}
            self._child = subprocess.Popen([sys.executable, __file__, str(MEMORY)], stdin=subprocess.PIPE, text=True,
                                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


def run_program(*command: object) -> Answer:
    """A program of its own, under the same limits."""
    begin = time.monotonic()
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                              timeout=SECONDS, errors="replace", preexec_fn=limit)
    except subprocess.TimeoutExpired:
        return Answer(None, [], time.monotonic() - begin)
    return Answer(done.returncode, done.stderr.splitlines(), time.monotonic() - begin)


def limit(memory: int = MEMORY) -> None:
    """For this process; and no core files."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _compare(fixture: str, result: str) -> dict[str, Any]:
    """With both outputs in files, where also a library's own words are seen."""
    from bridge import compare

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        _reset_peak()
        code = compare.main([fixture, result])
        err.seek(0)
        lines = err.read().decode(errors="replace").splitlines()
    return {"code": code, "errors": [line for line in lines if not line.startswith("compare with")], "mib": _peak()}


def _reset_peak() -> None:
    """Linux: /proc/self/clear_refs."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """In MiB, since the last reset where the kernel can."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    limit(int(sys.argv[1]))
    for request in sys.stdin:
        print(json.dumps(_compare(*json.loads(request))), file=answers, flush=True)
