# SPDX-License-Identifier: MIT
"""What the data can show, reckoned in a process beside the comparison: it keeps one core busy for seconds.

``python -m bridge.judge.diagnosis.background FIXTURE RESULT`` writes a pickled `Adequacy` to standard output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bridge.judge.diagnosis.adequacy import reckon
from bridge.judge.diagnosis.records import Adequacy

StrPath = str | os.PathLike[str]

#: Bytes of a result whose comparison takes longer than a process needs to start
LARGE = 1 << 28
#: The work is made of small products, which threads that wait for each other only slow down
ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@contextmanager
def reckoning(fixture: StrPath, result: StrPath) -> Iterator[Callable[[], Adequacy]]:
    """Begin `bridge.judge.diagnosis.adequacy.reckon`; what is given waits for it and returns what it found.

    Small results, and where no process can be started or it fails, are reckoned in this process and only when asked.
    """
    child = _start(fixture, result)
    try:
        yield lambda: _found(child, fixture, result)
    finally:
        if child is not None:
            child.kill()
            with child:  # closes the pipe and waits
                pass


def _start(fixture: StrPath, result: StrPath) -> subprocess.Popen[bytes] | None:
    try:
        if not sys.executable or os.path.getsize(result) < LARGE:
            return None
        command = [sys.executable, "-m", "bridge.judge.diagnosis.background", os.fspath(fixture), os.fspath(result)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                env=os.environ | ALONE)
    except OSError:
        return None


def _found(child: subprocess.Popen[bytes] | None, fixture: StrPath, result: StrPath) -> Adequacy:
    told = b"" if child is None else child.communicate()[0]
    if child is None or child.returncode != 0:
        return reckon(fixture, result)
    found = pickle.loads(told)
    assert isinstance(found, Adequacy)
    return found


def main(fixture: str, result: str) -> None:
    """What the child does."""
    found = reckon(fixture, result)
    # Without a buffer, which a user may ask for, a signal in the middle of a write would lose the rest
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
