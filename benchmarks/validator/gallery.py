# SPDX-License-Identifier: MIT
"""``python -m benchmarks.gallery``: published mistakes rebuilt, what made them look right, and what they are.

`benchmarks.validator.exhibits` builds them, docs/gallery.md tells their story. Exit code 1 when a fault is not named,
or the one that has no name is not found.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.validator.exhibits import BYTES_PER_PIXEL, LAYERS, RULES, Exhibit, published, saved, unknown
from bridge.common.atomic_file import write_json
from bridge.common.cli import Output, new_parser, run
from bridge.common.command_files import check_files
from bridge.common.number_format import short
from bridge.common.threads import brief_waits, keep_freed_memory
from bridge.judge.measure.outcome import Outcome
from bridge.report import print_report
from bridge.validate.workspace import workspace

#: Numbers of the faults that must be named: sequential sum; kernel flipped and column-major; added to old contents
PUBLISHED = {"loss": [32]} | {f"grads/{name}/weight": [1, 4] for name in LAYERS}
SAVED = {f"grads/{name}/weight": [23] for name in LAYERS}


def show(console: Console, exhibit: Exhibit) -> None:
    """One exhibit: what was believed, what is wrong, and the verdict."""
    console.print(exhibit.title, style="bold", highlight=False, markup=False)
    table = Table("what was looked at", "difference", "was agreement", "what it shows", box=None, pad_edge=False)
    for one in exhibit.evidence:
        table.add_row(one.what, f"{one.found:.1e}", f"{one.agreed:g}", one.truth)
    if exhibit.evidence:
        console.print(table)
        console.print()
    if exhibit.gradients:
        table = Table("weight gradient", "difference", "of its norm", "T", *RULES, box=None, pad_edge=False)
        for one in exhibit.gradients:
            says = ["content" if passes else "alarm" for passes in one.rules.values()]
            table.add_row(one.name, f"{one.difference:.1e}", f"{one.relative:.0%}", short(one.t), *says)
        console.print(table)
        console.print()
    print_report(console, exhibit.comparison, exhibit.verdict, every_step=False)
    if exhibit.repaired is not None:
        console.print(f"\nrepaired: {exhibit.repaired.words}\n", highlight=False)


def right(exhibit: Exhibit, expected: dict[str, list[int]]) -> bool:
    """The faults are named, each alone, and nothing is said against the repaired program."""
    return (
        exhibit.verdict.outcome is Outcome.BUG
        and exhibit.repaired is not None
        and exhibit.repaired.outcome is Outcome.ROUNDING
        and exhibit.named == expected
    )


def found(exhibit: Exhibit) -> bool:
    """A bug in the one tensor that is wrong itself, and no fault is named that it is not."""
    findings = exhibit.verdict.diagnosis.findings if exhibit.verdict.diagnosis else []
    tensors = [one.name for one in findings]
    return exhibit.verdict.outcome is Outcome.BUG and tensors == ["grads/conv2/weight"] and exhibit.named == {}


EXAMPLES = """exit codes:
  0    each mistake is named, or found if it has no name, and repaired programs
       are called right
  1    one is not
  2    bad usage
  130  interrupted

examples:
  python -m benchmarks.gallery                      as in docs/gallery.md
  python -m benchmarks.gallery --json gallery.json"""


def main(arguments: list[str] | None = None) -> int:
    """Build, judge, print, write."""
    p = new_parser("benchmarks.gallery", str(__doc__).partition("\n\n")[0], EXAMPLES)
    p.add_argument("--size", type=int, default=1024, metavar="S", help="height and width of the images of the first "
                   "mistake, in pixels (default 1024; where they are small its loss is right, and the exit code is 1)")
    p.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    a = p.parse_args(arguments)
    return run("benchmarks.gallery", lambda: _main(a))


def _main(a: argparse.Namespace) -> int:
    check_files([], [("--json", a.json)])
    keep_freed_memory()
    brief_waits()
    console = Output()
    with workspace(None, BYTES_PER_PIXEL * 2 * a.size**2) as folder:
        first = published(folder, a.size)
        third = unknown(folder, a.size)
    show(console, first)
    with tempfile.TemporaryDirectory() as small:
        second = saved(Path(small))
    show(console, second)
    show(console, third)
    if a.json:
        write_json(a.json, [one.to_dict() for one in (first, second, third)])
    return 0 if right(first, PUBLISHED) and right(second, SAVED) and found(third) else 1
