# SPDX-License-Identifier: MIT
"""Stages that a verdict does without: what fails in one of them is said, and takes nothing else with it.

Once a result has been compared, its verdict stands. The search for the fault, what the data can show, a table, a
picture, a file: each is attempted, and what cannot be had is listed as missing beside the verdict
(`bridge.judge.verdict.Verdict.missing`).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from bridge.common.errors import BridgeError

T = TypeVar("T")


def attempt(missing: list[str], stage: str, work: Callable[[], T], instead: T) -> T:
    """Return what `work` gives; `instead` of it where it fails, and then a line more in `missing`.

    Parameters
    ----------
    missing : gets "<stage>: <why>"
    stage : name of the work, in words
    work : called once; Ctrl-C and the end of the program pass through

    Examples
    --------
    >>> missing = []
    >>> attempt(missing, "the plot", lambda: open("no/such/folder/plot.png").read(), "")
    ''
    >>> missing
    ["the plot: [Errno 2] No such file or directory: 'no/such/folder/plot.png'"]
    """
    try:
        return work()
    except Exception as error:
        missing.append(f"{stage}: {reason(error)}")
        return instead


def reason(error: Exception) -> str:
    """Return why a stage failed, in one line; of a fault of ours also the place, and the traceback on standard error.
    """
    if isinstance(error, MemoryError):
        return f"not enough memory ({error})" if str(error) else "not enough memory"
    if isinstance(error, BridgeError | OSError):
        return " ".join(str(error).split())
    with suppress(OSError):
        traceback.print_exception(error, file=sys.stderr)
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{said} ({os.path.basename(last.filename)}, line {last.lineno}); this is a fault of ours, not of the result"
