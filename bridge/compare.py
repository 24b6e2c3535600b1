# SPDX-License-Identifier: MIT
"""``python -m bridge.compare FIXTURE RESULT``: judge any candidate's file, complete or partial."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from bridge.command import BAD_INPUT, Output, check_writable, complain, run
from bridge.comparison import compare
from bridge.judged import Comparison
from bridge.memory import keep_freed_memory
from bridge.precision import recognise
from bridge.progress import Report, stage
from bridge.report import print_report, to_dict, write_json
from bridge.verdict import Verdict, decide

EXIT_CODES = """exit codes:
  0  right: every difference is rounding
  1  a bug
  2  bad input or usage
  3  lower precision than declared (TF32, bf16, ...)
  4  cannot tell"""


def judge(
    fixture: str | os.PathLike[str], result: str | os.PathLike[str], progress: Report | None = None
) -> tuple[Comparison, Verdict]:
    """Compare two files and decide.

    A result that fails, but shows a lower precision, is judged again by the bounds of that precision: it excuses
    rounding, not a bug.

    Raises
    ------
    FileError
        See `bridge.comparison.compare`.
    """
    comparison = compare(fixture, result, progress)
    recognised = recognise(fixture, result, comparison) if comparison.failures else None
    lowered = compare(fixture, result, progress, recognised.name) if recognised else None
    return comparison, decide(comparison, recognised, lowered)


def add_output_arguments(p: argparse.ArgumentParser) -> None:
    """What `compare` and `validate` share."""
    p.add_argument("--json", metavar="FILE", help="write the verdict and every number as JSON too")
    p.add_argument("--all", action="store_true", help="print every step (default: up to 3 steps, else the worst)")


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = argparse.ArgumentParser(
        prog="python -m bridge.compare",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Decide whether RESULT, written by any program in the format of docs/exchange-file.md, is a right\n"
        "computation of what FIXTURE (written by python -m reference.export) asks for. RESULT may hold\n"
        "only some of the tensors; the rest is listed as not judged.",
        epilog=EXIT_CODES,
    )
    p.add_argument("fixture", metavar="FIXTURE", help="exchange file of the reference")
    p.add_argument("result", metavar="RESULT", help="exchange file of the candidate")
    add_output_arguments(p)
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code is the verdict."""
    a = parser().parse_args(arguments)
    return run("bridge.compare", lambda: _compare(a))


def _compare(a: argparse.Namespace) -> int:
    check_writable("--json", a.json)
    keep_freed_memory()
    with stage(Output(stderr=True), "compare with the float64 oracle") as progress:
        comparison, verdict = judge(a.fixture, a.result, progress)
    print_report(Output(), comparison, verdict, every_step=a.all or comparison.steps <= 3)
    return finish("bridge.compare", a.json, to_dict(comparison, verdict))


def finish(name: str, path: str | None, document: dict[str, Any]) -> int:
    """Write the JSON file, if one is wanted; the exit code. A verdict against the candidate stays, whatever fails."""
    code = int(document["exit_code"])
    try:
        if path is not None:
            write_json(path, document)
    except OSError as error:
        return complain(name, f"--json {path}: {error.strerror}", code or BAD_INPUT)
    return code


if __name__ == "__main__":
    sys.exit(main())
