# SPDX-License-Identifier: MIT
"""What the data can show, computed in a process beside the comparison: it keeps one core busy for seconds.

``python -m bridge.judge.diagnosis.background`` reads a pickled crop from standard input and writes a pickled
`Adequacy` to standard output, for its parent. It opens no file: the parent has read what it needs.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from bridge.common.errors import FileError
from bridge.judge.diagnosis.adequacy import compute_adequacy, in_long_sums
from bridge.judge.diagnosis.faults.crop import Crop
from bridge.judge.diagnosis.records import Adequacy, Sight
from bridge.judge.measure.file_pair import FilePair

#: Pixels of all batches whose comparison takes longer than a process needs to start
LARGE = 1 << 19
#: The work is made of small products, which threads that wait for each other only slow down
ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

#: Arguments of `bridge.judge.diagnosis.adequacy.compute_adequacy`
Work = tuple[Crop, Sequence[Sight]]


@contextmanager
def adequacy_in_background(pair: FilePair) -> Iterator[Callable[[], Adequacy]]:
    """Begin `bridge.judge.diagnosis.adequacy.compute_adequacy`; what is given waits for it and returns what it found.

    Of small results, and where no process can be started or it fails, all is computed in this process, and only when
    it is asked for.
    """
    child = None
    if pair.steps * math.prod(pair.batch_shape) >= LARGE:
        # What is wrong with a batch is said by the comparison
        with suppress(FileError):
            child = _start(_work(pair))
    try:
        yield lambda: _found(child, pair)
    finally:
        if child is not None:
            child.kill()
            with child:  # closes the pipe and waits
                pass


def adequacy_of(pair: FilePair) -> Adequacy:
    """Return what a fixture can show of a candidate that writes what its result holds, computed in this process."""
    return compute_adequacy(*_work(pair))


def _work(pair: FilePair) -> Work:
    crop = Crop(pair)
    return crop, in_long_sums(pair) if crop.share < 1 else []


def _start(work: Work) -> subprocess.Popen[bytes] | None:
    """The child. It reads from a file without a name: a pipe would let this process wait until the child has begun."""
    if not sys.executable:
        return None
    command = [sys.executable, "-m", "bridge.judge.diagnosis.background"]
    try:
        with tempfile.TemporaryFile() as given:
            pickle.dump(work, given)
            given.seek(0)
            return subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                    env=os.environ | ALONE)
    except OSError:
        return None


def _found(child: subprocess.Popen[bytes] | None, pair: FilePair) -> Adequacy:
    told = b"" if child is None else child.communicate()[0]
    if child is None or child.returncode != 0:
        return adequacy_of(pair)
    found = pickle.loads(told)
    assert isinstance(found, Adequacy)
    return found


def main() -> None:
    """Compute the adequacy and write it to standard output, as the child process does."""
    found = compute_adequacy(*pickle.load(sys.stdin.buffer))
    # Without a buffer, which a user may ask for, a signal in the middle of a write would lose the rest
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
