# SPDX-License-Identifier: MIT
"""``python -m benchmarks.validator.programs``: mistakes in the examples' programs, and what the judge says of each.

Each network of the examples is taken in small, and trained for two steps by a right program and by ten wrong ones.
Prints the table, writes it as JSON, and with ``--document`` as docs/programs.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.harness.document import RESULTS, versions
from benchmarks.harness.options import some_of
from benchmarks.harness.processes import ROOT
from benchmarks.harness.tables import table
from benchmarks.validator.programs.judged import WAYS, judged
from benchmarks.validator.programs.mistakes import Program
from bridge.common.atomic_file import write_json, write_text
from bridge.common.cli import Output, new_parser, run
from bridge.common.command_files import check_files
from bridge.common.progress import stage

#: Modules of this package, and the example that each has in small
PROGRAMS = {"gpt": "9_gpt", "emulator": "10_emulator", "tomogram": "11_tomogram", "vit": "12_vit",
            "heat": "13_heat"}
DOCUMENT = ROOT / "docs" / "programs.md"
EPILOG = """exit codes:
  0    all were judged, whatever was found
  1    a right program is not called right
  2    bad usage
  130  interrupted

examples:
  python -m benchmarks.validator.programs --only vit
  python -m benchmarks.validator.programs --document"""


def program(name: str) -> Program:
    """Return the program of a name."""
    made: Program = importlib.import_module(f"benchmarks.validator.programs.{name}").program()
    return made


def main(arguments: list[str] | None = None) -> int:
    """Judge, print, write."""
    p = new_parser("benchmarks.validator.programs", str(__doc__), EPILOG)
    p.add_argument("--only", type=some_of(PROGRAMS), metavar="NAME,...", help=f"of {', '.join(PROGRAMS)}")
    p.add_argument("--json", metavar="FILE", help="where the answers go (default: benchmarks/results/programs.json, "
                                                  "where all programs are judged)")
    p.add_argument("--document", action="store_true", help="write docs/programs.md from the answers, too")
    a = p.parse_args(arguments)
    return run("benchmarks.validator.programs", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    names = a.only or list(PROGRAMS)
    path = a.json or (str(RESULTS / "programs.json") if len(names) == len(PROGRAMS) else None)
    check_files([], [("--json", path)] if path else [])
    try:
        found = measure(names)
    except AssertionError as error:
        Output(stderr=True).print(str(error), highlight=False)
        return 1
    made = table("", "program", "mistake", "way", "first wrong tensor", "what is said", texts=5)
    for one in found["programs"]:
        for mistake in one["mistakes"]:
            made.add_row(one["name"], mistake["mistake"], mistake["way"], mistake["tensor"], mistake["said"])
    Output().print(made)
    Output().print(", ".join(f"{way}: {n}" for way, n in found["counts"].items()), highlight=False)
    if path:
        write_json(Path(path), found)
    if a.document and path:
        write_text(DOCUMENT, document(json.loads(Path(path).read_text(encoding="utf-8"))))
    return 0


def measure(names: list[str]) -> dict[str, Any]:
    """Return the document of all mistakes of some programs."""
    found = []
    for name in names:
        one, answers = program(name), []
        with stage(Output(stderr=True), name) as report:
            for answer in judged(one, one.mistakes):
                answers.append(answer.as_dict())
                report(len(answers), len(one.mistakes))
        found.append({"name": name, "mistakes": answers})
    return {"counts": counts(found), "versions": versions(("fortran-torch-bridge", "torch", "numpy")),
            "programs": found}


def counts(programs: list[dict[str, Any]]) -> dict[str, int]:
    """Return how many mistakes are known in each way.

    >>> counts([{"mistakes": [{"way": "unknown"}, {"way": "named"}, {"way": "named"}]}])
    {'named': 2, 'unknown': 1}
    """
    found = Counter(mistake["way"] for one in programs for mistake in one["mistakes"])
    return {way: found[way] for way in WAYS if found[way]}


def document(found: dict[str, Any]) -> str:
    """Return docs/programs.md."""
    number = sum(found["counts"].values())
    missed = found["counts"].get("missed", 0)
    few = Counter(mistake["few"] for one in found["programs"] for mistake in one["mistakes"])
    prose = (
        f"`python -m benchmarks.validator.programs` takes the networks of {len(found['programs'])} "
        f"[examples](../examples) in small, and plants {number} mistakes that people make when they write such a "
        "program, one at a time. A program in PyTorch with the mistake trains for two steps, writes every tensor, and "
        f"is judged. The right program of each is called right, and {number - missed} of {number} wrong ones are "
        "called a bug ([figures](../benchmarks/results/programs.json)). Which words are the mistake was decided when "
        "the answers were read.",
        "Where a program writes the outputs of layers with parameters, their gradients, the loss and the weights "
        f"alone, {few['bug']} are called a bug, {few['cannot_tell']} end as *cannot tell*, and {few['rounding']} as "
        "right: a mistake that changes nothing of what is written cannot be seen.",
        f"Versions: {', '.join(f'{name} {one}' for name, one in found['versions'].items())}.")
    first, second, last = (textwrap.fill(one, 120, break_long_words=False, break_on_hyphens=False) for one in prose)
    lines = [
        "# Mistakes in whole programs", "", first, "",
        "| how it is known | mistakes | what that means |", "| --- | ---: | --- |",
        *(f"| {way} | {found['counts'].get(way, 0)} | {means} |" for way, means in WAYS.items()), "", second, "", last]
    for one in found["programs"]:
        folder = PROGRAMS[one["name"]]
        lines += ["", f"## {one['name']}", "", f"[examples/{folder}](../examples/{folder}), and the mistakes in "
                  f"[{one['name']}.py](../benchmarks/validator/programs/{one['name']}.py).", "",
                  "| what the program does | known | first wrong tensor | what the judge says |",
                  "| --- | --- | --- | --- |"]
        lines += [f"| {_cell(m['mistake'])} | {m['way']} | {_tensor(m)} | {_cell(m['said'])} |"
                  for m in one["mistakes"]]
    return "\n".join(lines) + "\n"


def _tensor(mistake: dict[str, Any]) -> str:
    step = f", step {mistake['step']}" if mistake["step"] else ""
    return f"`{mistake['tensor']}`{step}" if mistake["tensor"] else ""


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("*", "\\*")


if __name__ == "__main__":
    sys.exit(main())
