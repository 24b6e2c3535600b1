# SPDX-License-Identifier: MIT
"""What the documentation shows is what runs."""

from __future__ import annotations

import doctest
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.compare import judge
from bridge.verdict import Outcome


def compile_example(root: Path, folder: Path) -> list[str]:
    h5fc = shutil.which("h5fc")
    if h5fc is None:
        pytest.skip("h5fc, HDF5's compiler wrapper, is not on the search path")
    subprocess.run([h5fc, root / "docs" / "examples" / "write_result.f90", "-o", folder / "write_result"], cwd=folder,
                   check=True, capture_output=True)
    return [str(folder / "write_result")]


@pytest.mark.parametrize("language", ["fortran", "python"])
def test_the_examples_write_results_that_are_judged_right(root: Path, small_fixture: Path, tmp_path: Path,
                                                          language: str) -> None:
    if language == "fortran":
        command = compile_example(root, tmp_path)
    else:
        command = [sys.executable, str(root / "docs" / "examples" / "write_result.py")]
    shutil.copy(small_fixture, tmp_path / "fixture.h5")
    subprocess.run(command, cwd=tmp_path, check=True)
    comparison, verdict = judge(tmp_path / "fixture.h5", tmp_path / "result.h5")
    assert verdict.outcome is Outcome.ROUNDING
    assert [judged.name for judged in comparison.judged] == ["forward/relu1"]


def test_the_document_shows_the_examples(root: Path) -> None:
    text = (root / "docs" / "exchange-file.md").read_text(encoding="utf-8")
    for name in ("write_result.f90", "write_result.py"):
        assert (root / "docs" / "examples" / name).read_text(encoding="utf-8") in text


def test_nothing_is_left_to_be_filled_in(root: Path) -> None:
    for path in [root / "README.md", *(root / "docs").glob("*.md")]:
        assert "_PLACE" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("name", [f"{path.parent.name}.{path.stem}".removesuffix(".__init__")
                                  for package in ("bridge", "reference")
                                  for path in sorted((Path(__file__).resolve().parents[1] / package).glob("*.py"))])
def test_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
