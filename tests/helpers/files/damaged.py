# SPDX-License-Identifier: MIT
"""Copies of files that are spoilt, and what is said of them: one line that names the file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge import step

Spoil = Callable[[h5py.File], object]

INPUT = "batches/0/input"


def check_line(text: str, path: Path, *wanted: str) -> None:
    """One line that names the file and what is wrong."""
    lines = [line for line in text.splitlines() if line and not line.startswith("compare with")]
    assert len(lines) == 1 and "Traceback" not in text, text
    assert str(path) in lines[0] and all(word in lines[0] for word in wanted), (lines[0], wanted)


def refused_by_step(path: Path, folder: Path, capfd: pytest.CaptureFixture) -> None:
    """By the Fortran reader, which leaves no file behind."""
    capfd.readouterr()
    assert step.main([str(path), str(folder / "out.h5")]) == 2
    assert not list(folder.glob("*out.h5*"))
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("bridge.step: ") and len(lines[0]) > 30, lines


def cycle(file: h5py.File, name: str) -> None:
    file["loop"] = h5py.SoftLink("/" + name)
    file[name] = h5py.SoftLink("/loop")


def spoilt(source: Path, folder: Path, spoil: Spoil) -> Path:
    """A spoilt copy, and beside it what its links may point to."""
    path = folder / "bad.h5"
    shutil.copyfile(source, path)
    with h5py.File(folder / "other.h5", "w") as other:
        other["x"] = np.ones((2, 1, 9, 12), np.float32)
    (folder / "other.raw").write_bytes(bytes(864))
    with h5py.File(path, "r+") as file:
        spoil(file)
    return path
