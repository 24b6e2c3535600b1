# SPDX-License-Identifier: MIT
"""The notebook runs from top to bottom, and tells what it says it tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.tools.notebook import Cell, cells, page, run


def test_the_notebook_is_stripped(root: Path) -> None:
    """No output and no count: what a cell gives is what it gives today."""
    document = json.loads((root / "docs/story.ipynb").read_text(encoding="utf-8"))
    assert document["nbformat"] == 4 and document["cells"]
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None, cell["id"]


@pytest.mark.deep
def test_the_story_runs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was looked at agrees, the verdict is a bug with its name, and the repaired program is right."""
    pytest.importorskip("matplotlib", reason="skipped, because matplotlib is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    outputs = [run(cell, names) for cell in cells(root / "docs/story.ipynb") if cell.kind == "code"]
    assert len(names["agree"]) == 7 and all(names["agree"])
    assert (names["before"], names["after"]) == (1, 0)
    said = "".join(output.text for output in outputs)
    assert "BUG: grads/conv3/weight of step 0 is wrong" in said and "Kernel flipped, in every one" in said
    assert "RIGHT: every difference is rounding" in said
    assert names["worst"] > 1000
    assert [len(output.figures) for output in outputs].count(1) == 2


def test_a_cell_gives_what_jupyter_shows() -> None:
    names: dict[str, Any] = {}
    assert run(Cell("code", "a = 1\nprint('x')\na + 1"), names).text == "x\n2\n"
    assert run(Cell("code", "a\nNone"), names).text == run(Cell("code", "a;"), names).text == ""
    assert run(Cell("code", "b = a"), names).text == "" and names["b"] == 1
    with pytest.raises(ZeroDivisionError):
        run(Cell("code", "1 / 0"), names)


def test_a_page_has_text_code_output_and_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="skipped, because matplotlib is not installed")
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('printed')\n'value'"
    shown = [{"cell_type": "markdown", "source": ["# Title\n", "text"]}, {"cell_type": "code", "source": [code]}]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": shown}), encoding="utf-8")
    page(tmp_path / "n.ipynb", tmp_path / "n.md")
    text = (tmp_path / "n.md").read_text(encoding="utf-8")
    assert text.startswith(f"# Title\ntext\n\n```python\n{code}\n```\n\n``` {{.text .output}}\nprinted\n'value'\n```\n")
    assert "![figure of cell 2](n-2-1.png)" in text
    assert (tmp_path / "n-2-1.png").read_bytes().startswith(b"\x89PNG")
    assert run(Cell("code", "1"), {}).figures == ()
