# SPDX-License-Identifier: MIT
"""The child's side of `benchmarks.harness.processes`: a worker reads one JSON object a line, and answers each with one.

A request is ``{"do": name, ...}``; the method ``do_NAME`` of the worker takes the rest as its arguments.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: prctl's option: send a signal when the parent ends
PR_SET_PDEATHSIG = 1


def handle(worker: object, request: dict[str, Any]) -> dict[str, Any]:
    """What the method of the worker gives that the request names."""
    return getattr(worker, f"do_{request['do']}")(**{name: one for name, one in request.items() if name != "do"})


def main(made: Callable[[], Any]) -> int:
    """Make a worker, and let its method ``answer`` take requests until they end.

    What a library prints goes to standard error, and cannot be taken for an answer.
    """
    _end_with_parent()
    _end_first()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        worker = made()
        for line in sys.stdin:
            print(json.dumps(worker.answer(json.loads(line))), file=answers, flush=True)
    return 0


def _end_with_parent() -> None:
    """Also while this process is stopped; only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _end_first() -> None:
    """Where memory runs out, this process is to be killed and no other one."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
