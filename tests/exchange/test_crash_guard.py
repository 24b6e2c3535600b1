# SPDX-License-Identifier: MIT
"""The check of files in a child process: it may take its time, and must not be silent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge import compare, step
from bridge.common.errors import FileError
from bridge.exchange import crash_guard
from bridge.exchange.model import Conv2d, Model, Relu
from bridge.exchange.model_groups import write_model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three datasets in three groups, one of them in chunks, and a model of two layers."""
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.attrs.update({"format": "cnn-exchange", "format_version": 2})
        write_model(file.create_group("model"), Model((Conv2d("first", 1, 2, (3, 3)), Relu("second"))))
        file["steps/0/loss"] = np.float32(1)
        file.create_dataset("steps/0/forward/first", data=np.ones((2, 2, 4, 4), np.float32), chunks=(1, 2, 4, 4))
        file["steps/0/forward/second"] = np.ones((2, 2, 4, 4), np.float32)
    return tmp_path / "file.h5"


def test_a_file_of_many_objects_takes_its_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever says something from time to time is not stuck, however long it takes in all."""
    def slow(path: str, alive: Callable[[], object]) -> None:
        for _ in range(8):
            time.sleep(0.1)
            alive()

    monkeypatch.setattr(crash_guard, "_touch", slow)
    crash_guard.check_readable(path, seconds=0.4)


def test_every_object_is_a_sign_of_life(path: Path) -> None:
    signs: list[None] = []
    crash_guard._touch(str(path), lambda: signs.append(None))
    # Two layers as they are read; groups: model, its layers, each of them, the loss, steps, 0, forward
    assert len(signs) == 2 + 8 + 3


def test_a_circle_of_signs_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file has more objects than bytes for them."""
    def circle(path: str, alive: Callable[[], object]) -> None:
        while True:
            alive()

    monkeypatch.setattr(crash_guard, "_touch", circle)
    with pytest.raises(FileError, match=r"file\.h5: damaged, the HDF5 library was stuck in it for 0\.3 s"):
        crash_guard.check_readable(path, seconds=0.3)


@pytest.mark.parametrize("command", [compare.main, step.main])
def test_a_crash_is_the_childs(command: Callable[[list[str]], int], path: Path, monkeypatch: pytest.MonkeyPatch,
                               capsys: pytest.CaptureFixture[str]) -> None:
    """One line of the command, before its own library opens the file."""
    monkeypatch.setattr(crash_guard, "_touch", lambda path, alive: os.kill(os.getpid(), signal.SIGSEGV))
    assert command([str(path), str(path.with_name("result.h5"))]) == 2
    assert capsys.readouterr().err.endswith(": damaged, the HDF5 library crashed on it (SIGSEGV)\n")
    assert list(path.parent.iterdir()) == [path]
