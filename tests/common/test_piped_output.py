# SPDX-License-Identifier: MIT
"""What is no terminal has no edge: a pipe gets every sentence on one line and every table whole."""

from __future__ import annotations

import re
import shutil
from io import StringIO
from pathlib import Path

import h5py
import pytest
from rich.table import Table

from bridge.common.cli import Output
from tests.helpers.terminals import on_terminal, piped
from tests.helpers.tiers import deep

WORDS = "BUG: a sentence that is longer than any terminal is wide, " * 8


@pytest.fixture(scope="module")
def wrong_result(small_result: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = Path(shutil.copy(small_result, tmp_path_factory.mktemp("piped") / "wrong.h5"))
    with h5py.File(path, "r+") as file:
        gradient = file["steps/1/grads/conv2/weight"]
        gradient[...] = gradient[...][..., ::-1, ::-1]
    return path


@pytest.mark.parametrize("columns", ["", "80", "20"])
def test_a_pipe_has_no_edge(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever COLUMNS says, and where colours are forced, too."""
    monkeypatch.setenv("FORCE_COLOR", "1" if columns == "20" else "")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", columns)
    rows = Table("name", "words", box=None)
    rows.add_row("x" * 100, "y" * 300)
    out = StringIO()
    console = Output(file=out, color_system=None)
    console.print(WORDS, highlight=False)
    console.print(rows)
    lines = out.getvalue().splitlines()
    assert lines[0] == WORDS and len(lines) == 3
    assert "x" * 100 in lines[2] and "y" * 300 in lines[2]


@pytest.mark.parametrize(("options", "variables"), [deep([], {}), (["--no-diagnosis"], {"COLUMNS": "80"})])
def test_a_piped_verdict_is_one_line(options: list[str], variables: dict[str, str], small_fixture: Path,
                                     wrong_result: Path) -> None:
    lines = piped("bridge.compare", small_fixture, wrong_result, *options, **variables).lines
    verdict, blank = lines[0], lines.index("")
    assert verdict.startswith("BUG: grads/conv2/weight of step 1") and verdict.endswith("of this operation).")
    assert all(line.startswith("  ") for line in lines[1:blank])
    table = lines[lines.index(next(line for line in lines if line.startswith("tensor "))):]
    assert re.split(" {2,}", table[0].strip())[-3:] == ["E there", "kappa", "worst at"]
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
    said = piped("bridge.identities", small_fixture, wrong_result, **variables).lines
    assert said[-1].startswith("BUG: the adjoint identity fails in step 1; implicated is the filter gradient of conv2")


def test_a_terminal_has_one(small_fixture: Path, wrong_result: Path) -> None:
    lines = on_terminal(80, "bridge.compare", small_fixture, wrong_result, "--no-diagnosis").lines
    assert lines[0].startswith("BUG: grads/conv2/weight of step 1") and not lines[0].endswith(").")
    assert 70 < max(map(len, lines)) <= 80
    (head,) = [line.split() for line in lines if line.startswith("tensor ")]
    assert "kappa" not in head
