# SPDX-License-Identifier: MIT
"""``python -m bridge.identities FIXTURE RESULT``: do the candidate's own tensors agree with each other?"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from bridge.common.cli import Output, new_parser, run
from bridge.common.number_format import number, short
from bridge.common.progress import stage
from bridge.identities.adjoint import DATA, FILTER, FORWARD, MADE_BY, Adjoint
from bridge.identities.adjoint_check import adjoint_identities, conclusion
from bridge.judge.measure.outcome import Outcome, worst
from bridge.report.junit import Answer
from bridge.report.outputs import OutputFiles, add_file_arguments, check_outputs, finish_series
from bridge.report.series import Series

EXIT_CODES = """exit codes:
  0    consistent
  1    a bug
  2    bad input or usage, or a file cannot be written
  4    cannot tell
  130  interrupted

examples:
  python -m bridge.identities fixture.h5 result.h5
  python -m bridge.identities fixture.h5 result.h5 --report products.html"""

HEADINGS = ("layer", "step", FORWARD, FILTER, DATA, "gap / C", "T", "wrong")


def cells(one: Adjoint) -> list[str]:
    """Return the cells of a row of the table, a layer of a step."""
    shown = [f"{one.sides[name].value:.7g}" if name in one.sides else "" for name in MADE_BY]
    return [one.layer, str(one.step), *shown, f"{one.gap:.1e}", short(one.largest), one.implicated]


def table(found: list[Adjoint]) -> Table:
    """Return a table with a row for each layer and step."""
    rows = Table(box=None, header_style="bold", pad_edge=False)
    for heading in HEADINGS:
        rows.add_column(heading, justify="left" if heading in ("layer", "wrong") else "right", overflow="fold")
    for one in found:
        rows.add_row(*cells(one), style="" if one.outcome is Outcome.ROUNDING else "red")
    return rows


def series(found: list[Adjoint], files: Sequence[str] = ()) -> Series:
    """Return the series of answers that the reports show; `files` are those that were read."""
    answers = [Answer(f"{one.layer}, step {one.step}", one.outcome,
                      f"T = {short(one.largest)}{f': {one.implicated}' if one.implicated else ''}") for one in found]
    outcome = worst(one.outcome for one in found)
    identity = "Adjoint identities, <dz, z - b> = <w, dw> = <x, dx>, for every convolution and linear layer"
    return Series("identities", identity, outcome, conclusion(found), answers, HEADINGS, [cells(one) for one in found],
                  files=[os.path.basename(file) for file in files])


def to_dict(one: Adjoint) -> dict[str, Any]:
    """Return a JSON object; infinite and undefined numbers are null."""
    return {"layer": one.layer, "step": one.step, "verdict": one.outcome.label, "T": number(one.largest),
            "gap": number(one.gap), "implicated": one.implicated,
            "products": {name: number(side.value) for name, side in one.sides.items()}}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = new_parser(
        "bridge.identities",
        "Check the tensors of RESULT against each other; no right values are needed.\n\n"
        "For every convolution (also transposed) and linear layer z = w * x + b, with the gradients dz, dw and dx of "
        "the loss, the three scalar products <dz, z - b> = <w, dw> = <x, dx> are equal up to rounding: they are "
        "computed by the forward pass, the filter gradient and the data gradient. If two agree, the third pass is "
        "wrong.\n\n"
        "Only one projection of each tensor is seen: a consistent result may still be wrong. python -m bridge.compare "
        "decides that.", EXIT_CODES)
    p.add_argument("fixture", metavar="FIXTURE", help="file of the reference; its batches and first weights are read")
    p.add_argument("result", metavar="RESULT", help="file of the program that is to be checked")
    add_file_arguments(p, "conclusion and all products", "convolution of each step")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code, which is the verdict."""
    a = parser().parse_args(arguments)
    return run("bridge.identities", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    files = OutputFiles.of(a)
    check_outputs(files, [("FIXTURE", a.fixture), ("RESULT", a.result)])
    with stage(Output(stderr=True), "adjoint identities") as progress:
        found = adjoint_identities(a.fixture, a.result, progress)
    console = Output()
    console.print(table(found))
    console.print(conclusion(found), highlight=False)
    answers = series(found, (a.fixture, a.result))
    return finish_series("bridge.identities", files, answers, {"identities": [to_dict(one) for one in found]})


if __name__ == "__main__":
    sys.exit(main())
