# SPDX-License-Identifier: MIT
"""Of two trainings in a folder the second is refused, and told of the first; a dead one is in nobody's way."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bridge.common.errors import FileError
from bridge.train import lock
from bridge.train.lock import locked
from tests import ROOT

HOLDER = """
import pathlib, sys, time
from bridge.train.lock import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """Another process that has the lock."""
    found = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True,
                             env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert found.stdout is not None and found.stdout.readline() == "held\n"
    return found


def test_another_process_is_named_until_it_is_killed(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        with pytest.raises(FileError, match=f"process {other.pid} on {socket.gethostname()} since 2"), locked(tmp_path):
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert (tmp_path / lock.NAME).exists()
    with locked(tmp_path):
        pass
    assert not (tmp_path / lock.NAME).exists()


@pytest.mark.parametrize(("content", "age", "free"), [
    ({"pid": os.getppid(), "host": socket.gethostname()}, 9e9, False),
    ({"pid": 2**22 + 1, "host": socket.gethostname()}, 0, True),
    ({"pid": 1, "host": "elsewhere"}, 30, False), ({"pid": 1, "host": "elsewhere"}, 300, True), (None, 300, True)])
def test_without_locks_of_the_file_system(content: object, age: float, free: bool, tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of a process of this machine, and the last sign of life of another's."""
    def none(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", none)
    path = tmp_path / lock.NAME
    path.write_text("" if content is None else json.dumps(content))
    then = max(0.0, time.time() - age)
    os.utime(path, (then, then))
    if free:
        with locked(tmp_path):
            assert json.loads(path.read_text())["pid"] == os.getpid()
    else:
        with pytest.raises(FileError, match="another training is at work in it, process"), locked(tmp_path):
            pass


def test_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SIGN", 0.01)
    with locked(tmp_path):
        path = tmp_path / lock.NAME
        os.utime(path, (0, 0))
        for _ in range(500):
            if path.stat().st_mtime > 0:
                break
            time.sleep(0.01)
        assert path.stat().st_mtime > 0
