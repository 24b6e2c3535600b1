# SPDX-License-Identifier: MIT
"""NVIDIA's wheels are found without being imported, and the program cnn_step is told of them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

from bridge.engine.library import extension, programs
from bridge.engine.library.nvidia_wheels import VARIABLE, name_wheels


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folders of wheels in two places of the search path, and one that is none."""
    folders = [tmp_path / "a/nvidia/cudnn/lib", tmp_path / "a/nvidia/cu13/lib", tmp_path / "b/nvidia/cublas/lib"]
    for folder in (*folders, tmp_path / "b/nvidia/nccl/lib", tmp_path / "b/nvidia/cudnn/include"):
        folder.mkdir(parents=True)
    # Set first, so that it is taken back after the test
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    # Those of this environment stay out of it: some are a package that hides others of its name
    path, find = [str(tmp_path / "a"), str(tmp_path / "b")], importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec",
                        lambda name: PathFinder.find_spec(name, path) if name == "nvidia" else find(name))
    importlib.invalidate_caches()
    return [str(folder) for folder in folders]


def test_folders_are_found(wheels: list[str]) -> None:
    before = set(sys.modules)
    name_wheels()
    assert os.environ[VARIABLE].split(os.pathsep) == wheels
    assert set(sys.modules) == before


def test_a_users_setting_stays(wheels: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for own in ("/somewhere", ""):
        monkeypatch.setenv(VARIABLE, own)
        name_wheels()
        assert os.environ[VARIABLE] == own


def test_nothing_is_named_where_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    for spec in (lambda name: None, lambda name: (_ for _ in ()).throw(ValueError("nvidia.__spec__ is None"))):
        monkeypatch.setattr(importlib.util, "find_spec", spec)
        name_wheels()
        assert VARIABLE not in os.environ


def test_the_library_is_loaded_with_them(wheels: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "_api", None)
    extension.api()
    assert os.environ[VARIABLE].split(os.pathsep) == wheels


def test_the_program_is_told(wheels: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    begin = subprocess.Popen

    def record(command: list[str], **given: Any) -> subprocess.Popen[str]:
        seen.append(given["env"])
        return begin([sys.executable, "-c", ""], **given)

    monkeypatch.setattr(subprocess, "Popen", record)
    programs.run_cnn_step(Path("a.h5"), Path("b.h5"), "cuda")
    assert seen[0][VARIABLE].split(os.pathsep) == wheels
