# SPDX-License-Identifier: MIT
"""``python -m benchmarks``: speed and memory beside PyTorch, JAX, h5py and what the machine can do.

Runs of the frameworks are interleaved, each in a process of its own, with the same number of threads on the same
processors; while one works the others are stopped. Only medians and their ratios mean something on a machine that
others use too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.cpu import SECTIONS, module
from benchmarks.harness.document import RESULTS, Options, make
from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.options import add_without
from benchmarks.harness.tables import goals
from bridge.common.atomic_file import write_json
from bridge.common.cli import Output, complain, new_parser, run

#: Modules that are commands of their own
OTHERS = {
    "gallery": "published mistakes rebuilt: how they look, what they are",
    "healthy": "right programs of random shapes: is any called wrong?",
    "validator.programs": "mistakes in the examples' programs: are they named?",
    "fuzz": "broken and hostile files for the readers",
    "zoo": "networks of public packages: read, judged and trained?",
    "gpu_check": "tests, validation and memcheck on a GPU",
    "gpu_bench": "a training step on a GPU beside PyTorch's, and its limits",
    "gpu.networks": "steps of a U-Net and of ResNet-18 on a GPU",
    "gpu.layers": "convolutions on a GPU, by our kernels and by cuDNN",
}
EPILOG = """

examples:
  python -m benchmarks                       everything: an hour on two cores
                                             that have nothing else to do
  python -m benchmarks step layers           two sections
  python -m benchmarks --quick --output DIR  does it all work? a minute; the
                                             figures mean nothing
  python -m benchmarks step --without torch.compile,jax
  CNN_CPU_LEVEL=avx2 python -m benchmarks layers --output DIR
                                             with kernels for another
                                             instruction set

Each section writes DIR/SECTION.json, most of them pictures too (they need matplotlib). docs/benchmarks.md says what the
figures mean. Frameworks that are not installed are skipped, and the tables say so; pip install 'jax[cpu]' brings JAX.

exit codes:
  0    measured, whatever was found
  1    a framework failed or computes something else
  2    bad usage
  130  interrupted"""


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    listed, others = (_listed(texts, "  ") for texts in (SECTIONS, OTHERS))
    p = new_parser("benchmarks", str(__doc__), f"sections:\n{listed}\n\nother programs, python -m benchmarks.NAME:\n"
                   f"{others}{EPILOG}")
    p.add_argument("sections", nargs="*", metavar="SECTION", help="what to measure (default: all sections)")
    p.add_argument("--quick", action="store_true", help="tiny sizes and two runs, to see that everything works")
    p.add_argument("--runs", type=_positive, metavar="N", help="runs of each framework (default: 3 to 9, by section)")
    add_without(p)
    p.add_argument("--output", type=Path, metavar="DIR", help="folder of the files (default benchmarks/results; with "
                                                              "--quick none are written unless this is given)")
    p.add_argument("--list", action="store_true", help="name the sections, and end")
    return p


def _listed(texts: dict[str, str], margin: str = "") -> str:
    """One line for each name."""
    width = max(10, *map(len, texts))
    return "\n".join(f"{margin}{name:<{width}} {text}" for name, text in texts.items())


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}, expected 1 or more")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, print."""
    p = parser()
    a = p.parse_args(arguments)
    unknown = [name for name in a.sections if name not in SECTIONS]
    if unknown:
        p.error(f"no section {unknown[0]!r}, expected {', '.join(SECTIONS)}")
    if a.list:
        print(_listed(SECTIONS))
        return 0
    return run("benchmarks", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    options = Options(a.quick, a.runs, a.without)
    console = Output()
    folder = a.output or (None if a.quick else RESULTS)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    documents, code = [], 0
    for name in a.sections or SECTIONS:
        try:
            documents.append(_section(name, options, folder, console))
        except BenchmarkError as error:
            code = complain("benchmarks", f"{name}: {error}", 1)
    if every := [goal for document in documents for goal in document["goals"]]:
        console.print(goals(every, "goals" + " (a quick run: the figures mean nothing)" * a.quick))
    return code


def _section(name: str, options: Options, folder: Path | None, console: Console) -> dict[str, Any]:
    """Measure one section, write it, print it."""
    section = module(name)
    document = make(name, options, *section.measure(options, Output(stderr=True)))
    for made in section.tables(document):
        console.print(made, "")
    if folder is not None:
        write_json(folder / f"{name}.json", document)
        console.print(f"written: {folder / name}.json", highlight=False, soft_wrap=True)
        for picture in _pictures(section, document, folder, console):
            console.print(f"written: {picture}", highlight=False, soft_wrap=True)
    return document


def _pictures(section: Any, document: dict[str, Any], folder: Path, console: Console) -> list[Path]:
    if not hasattr(section, "draw"):
        return []
    try:
        return section.draw(document, folder)
    except ModuleNotFoundError as error:
        console.print(f"no pictures: {error.name} is not installed", highlight=False)
        return []


if __name__ == "__main__":
    sys.exit(main())
