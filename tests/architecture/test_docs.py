# SPDX-License-Identifier: MIT
"""What the documentation shows is what runs."""

from __future__ import annotations

import doctest
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.judge.diagnosis.catalogue import KINDS
from bridge.judge.judge import judge
from bridge.judge.verdict import Outcome
from bridge.operations import OPERATIONS
from bridge.operations.pointwise import Pointwise
from tests import ROOT


def compile_example(root: Path, folder: Path) -> list[str]:
    h5fc = shutil.which("h5fc")
    if h5fc is None:
        pytest.skip("h5fc, HDF5's compiler wrapper, is not on the search path")
    source = root / "examples/3_judge/write_result.f90"
    subprocess.run([h5fc, source, "-o", folder / "write_result"], cwd=folder, check=True, capture_output=True)
    return [str(folder / "write_result")]


@pytest.mark.parametrize("language", ["fortran", "python"])
def test_the_examples_write_results_that_are_judged_right(root: Path, small_fixture: Path, tmp_path: Path,
                                                          language: str) -> None:
    if language == "fortran":
        command = compile_example(root, tmp_path)
    else:
        command = [sys.executable, str(root / "examples" / "3_judge" / "write_result.py")]
    shutil.copy(small_fixture, tmp_path / "fixture.h5")
    subprocess.run(command, cwd=tmp_path, check=True)
    comparison, verdict = judge(tmp_path / "fixture.h5", tmp_path / "result.h5", adequacy=False)
    assert verdict.outcome is Outcome.ROUNDING
    assert [judged.name for judged in comparison.judged] == ["forward/relu1"]


def test_the_document_shows_the_examples(root: Path) -> None:
    text = (root / "docs" / "exchange-file.md").read_text(encoding="utf-8")
    for name in ("write_result.f90", "write_result.py"):
        assert (root / "examples" / "3_judge" / name).read_text(encoding="utf-8") in text


def test_the_document_has_every_operation(root: Path) -> None:
    rows = re.findall(r"^\| (`.*?) \|", (root / "docs" / "exchange-file.md").read_text(encoding="utf-8"), re.MULTILINE)
    described = {kind for row in rows for kind in re.findall(r"`(\w+)`", row)}
    # Those of functions of each number are in operations.md
    assert described >= {kind for kind, one in OPERATIONS.items() if not issubclass(one, Pointwise)}


def test_nothing_is_left_to_be_filled_in(root: Path) -> None:
    for path in [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").glob("*.md")]:
        assert "_PLACE" not in path.read_text(encoding="utf-8"), path


def kinds_table() -> list[tuple[str, str, str]]:
    """Number, title and what to look at, as docs/faults.md must show them."""
    return [(str(one.number), one.title, one.look_at) for one in KINDS]


def test_every_fault_is_described(root: Path) -> None:
    """The registry's words, and in two more columns how the fault is predicted and where it shows."""
    text = (root / "docs" / "faults.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines()
            if re.match(r"\| \d", line)]
    expected = "\n".join(" | ".join(row) for row in kinds_table())
    assert [(row[0], row[1], row[-1]) for row in rows] == kinds_table(), f"expected:\n{expected}"
    assert all(len(row) == 5 and all(row) for row in rows)


def test_links_lead_somewhere(root: Path) -> None:
    """To files that exist, from README and all documents."""
    for path in [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


#: Modules that cannot be imported without a package of an extra
NEEDED = {"benchmarks.validator.jax_graph": "jax"}


@pytest.mark.parametrize("folder", sorted({
    str(path.parent.relative_to(ROOT)) for package in ("bridge", "reference", "benchmarks")
    for path in (ROOT / package).rglob("*.py")}))
def test_docstrings(folder: str) -> None:
    failed = []
    for path in sorted((ROOT / folder).glob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if path.stem == "__main__" or (name in NEEDED and importlib.util.find_spec(NEEDED[name]) is None):
            continue
        if doctest.testmod(importlib.import_module(name)).failed:
            failed.append(name)
    assert not failed
