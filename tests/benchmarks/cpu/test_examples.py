# SPDX-License-Identifier: MIT
"""Losses of the examples beside PyTorch's: which examples, what they print, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.cpu import examples
from benchmarks.harness.document import RESULTS, Options
from benchmarks.harness.errors import BenchmarkError

PRINTED = "step    0  loss 1.500000\nstep   20  loss 0.750000\nmean squared error: 0.2 before, 0.1 after\n"


def test_those_that_train_are_found() -> None:
    names = [path.parent.name for path in examples.sources()]
    assert names == ["9_gpt", "10_emulator", "11_tomogram", "12_vit", "13_heat"]
    # Their Fortran programs print such lines, too
    assert all('"step ", step, "  loss ", loss' in path.read_text(encoding="utf-8") for path in examples.sources())


def test_losses_are_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (source, *_) = examples.sources()
    monkeypatch.setattr(examples, "compiled", lambda source, folder: folder / source.stem)
    said = {True: PRINTED, False: PRINTED.replace("0.75", "0.7501")}
    monkeypatch.setattr(examples, "_run", lambda command, folder: said[command[1].endswith(".py")])
    found = examples._trained(source, 21, tmp_path)
    assert found["name"] == "gpt" and found["curves"]["PyTorch"] == {"step": [0, 20], "loss": [1.5, 0.75]}
    assert found["apart"] == pytest.approx(0.0001 / 0.75)
    said[False] = PRINTED.partition("\n")[2]
    with pytest.raises(BenchmarkError, match=r"gpt: the programs print other steps, \[20\] and \[0, 20\]"):
        examples._trained(source, 21, tmp_path)


def test_without_the_library_they_are_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PKG_CONFIG_LIBDIR", str(tmp_path))
    monkeypatch.delenv("PKG_CONFIG_PATH", raising=False)
    found, goals = examples.measure(Options(quick=True), Console(stderr=True))
    assert not found["examples"] and not goals
    assert "pkg-config" in found["skipped"] and found["skipped"] in str(examples.tables(found)[0].caption)


def test_the_picture_has_a_panel_for_each(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="skipped, because matplotlib is not installed")
    document = json.loads((RESULTS / "examples.json").read_text(encoding="utf-8"))
    assert {one["name"] for one in document["examples"]} <= {path.stem for path in examples.sources()}
    (made,) = examples.draw(document, tmp_path)
    assert made.read_bytes().startswith(b"\x89PNG")
    assert examples.draw(document | {"examples": []}, tmp_path) == []


def test_what_was_published_is_within_the_goal() -> None:
    document = json.loads((RESULTS / "examples.json").read_text(encoding="utf-8"))
    assert all(one["apart"] <= examples.APART for one in document["examples"])
