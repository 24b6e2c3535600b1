# SPDX-License-Identifier: MIT
"""The log of a training: one line of JSON for each step."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from bridge.common.atomic_file import replacing
from bridge.common.errors import FileError
from bridge.train.trainer import StepRecord

NAME = "log.jsonl"


class StepLog:
    """Appends to a file what is known of each step; a context manager that closes it.

    Parameters
    ----------
    folder : with the file `NAME`
    first_step : int
        Where the training goes on: lines of later steps, which an interrupted one may have left, are taken away.

    Raises
    ------
    FileError
        If the file cannot be read or written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with StepLog(folder) as log:
    ...         for step in range(3):
    ...             log.write(StepRecord(step, 1.0, 0.5), 0.1)
    ...     with StepLog(folder, first_step=2):
    ...         pass
    ...     [line["step"] for line in read(folder)]
    [0, 1]
    """

    def __init__(self, folder: str | os.PathLike[str], first_step: int = 0) -> None:
        path = Path(folder) / NAME
        try:
            kept = [line for line in read(folder) if line["step"] < first_step] if path.exists() else []
            with replacing(path) as part:
                Path(part).write_text("".join(map(_line, kept)), encoding="utf-8")
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise FileError(f"{path}: {error.strerror}, expected a file that can be written") from None

    def write(self, record: StepRecord, seconds: float) -> None:
        """Append a step, and the seconds since the training was started, which are not the same in every run."""
        try:
            self._file.write(_line({**asdict(record), "seconds": round(seconds, 3)}))
            self._file.flush()
        except OSError as error:
            raise FileError(f"{self._file.name}: {error.strerror}, expected room for a line") from None

    def __enter__(self) -> StepLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
                 ) -> None:
        # What could not be written is told of already
        with suppress(OSError):
            self._file.close()


def read(folder: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield what is known of each step; a last line that is not whole is left out.

    Raises
    ------
    FileError
        If a line is no JSON of a step.
    """
    path = Path(folder) / NAME
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            return
        try:
            found = json.loads(line)
            int(found["step"])
        except (ValueError, KeyError, TypeError):
            raise FileError(f"{path}: line {number} is {line.strip()[:60]!r}, expected JSON of a step") from None
        yield found


def _line(values: dict[str, Any]) -> str:
    return json.dumps(values) + "\n"
