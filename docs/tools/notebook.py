# SPDX-License-Identifier: MIT
"""A notebook run from top to bottom, without Jupyter, and written as a page.

Its cells are plain Python without magics, so that what runs here is what Jupyter runs. Of each cell the page has what
it prints, the value of its last line, and the figures of matplotlib that it has drawn.

``python -m docs.tools.notebook NOTEBOOK PAGE`` runs it in a temporary folder; figures lie beside the page.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Of figures: dots per inch
DPI = 130


@dataclass(frozen=True)
class Cell:
    """A cell as it stands in the file: ``markdown`` or ``code``."""

    kind: str
    text: str


@dataclass(frozen=True)
class Output:
    """What a cell of code has printed, and its figures as PNG files."""

    text: str
    figures: tuple[bytes, ...]


def cells(path: Path) -> list[Cell]:
    """Return the cells of a notebook (nbformat 4)."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return [Cell(one["cell_type"], "".join(one["source"])) for one in document["cells"]]


def run(cell: Cell, names: dict[str, Any], title: str = "cell") -> Output:
    """Run a cell of code in the current folder, in the namespace `names`.

    Examples
    --------
    >>> run(Cell("code", "print(1)\\n1 + 1"), {}).text
    '1\\n2\\n'
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    body = ast.parse(cell.text).body
    last = body[-1] if body else None
    if isinstance(last, ast.Expr):
        body.pop()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), title, "exec"), names)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), title, "eval"), names)
        # As in Jupyter, a semicolon at the end keeps it to itself
        if value is not None and not cell.text.rstrip().endswith(";"):
            print(repr(value))
    figures = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", dpi=DPI, bbox_inches="tight", metadata={"Software": None})
        figures.append(file.getvalue())
    pyplot.close("all")
    return Output(printed.getvalue(), tuple(figures))


def page(notebook: Path, target: Path) -> None:
    """Run a notebook in the current folder and write its page, with the figures beside it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    lines: list[str] = []
    for number, cell in enumerate(cells(notebook), 1):
        if cell.kind == "markdown":
            lines += [cell.text, ""]
            continue
        output = run(cell, names, f"{notebook.name}, cell {number}")
        lines += ["```python", cell.text, "```", ""]
        if output.text.strip():
            lines += ["``` {.text .output}", output.text.rstrip(), "```", ""]
        for which, figure in enumerate(output.figures, 1):
            name = f"{target.stem}-{number}-{which}.png"
            (target.parent / name).write_bytes(figure)
            lines += [f"![figure of cell {number}]({name})", ""]
    target.write_text("\n".join(lines), encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """Run a notebook and write its page."""
    notebook, target = (Path(one).resolve() for one in arguments)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        os.chdir(folder)
        page(notebook, target)


if __name__ == "__main__":
    main(sys.argv[1:])
