# SPDX-License-Identifier: MIT
"""``python -m bridge.gradcheck [OPERATION ...]``: are the backward passes the gradients of the forward passes?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from threadpoolctl import threadpool_limits

from bridge.common.cli import Output, new_parser, run
from bridge.common.errors import ArgumentError
from bridge.common.number_format import short
from bridge.common.progress import stage
from bridge.engine.library import extension
from bridge.engine.library.device_spec import HELP, OPTIONS_HELP
from bridge.gradcheck.operations import OPERATIONS, Settings, check_fixture
from bridge.gradcheck.results import GradcheckReport, InputReport, Verdict
from bridge.judge.measure.outcome import Outcome
from bridge.report.junit import Answer
from bridge.report.outputs import OutputFiles, add_file_arguments, check_outputs, finish_series
from bridge.report.series import Series

ABOUT = """Check gradients by central differences, without any reference.

A backward pass claims to compute dL/dx. The forward pass alone can check it: (L(x + v) - L(x - v)) / 2 is the
product of v and dL/dx, up to rounding and curvature. L = sum(dy * forward(x)) with a random dy, since a dy of ones
could not see a transposed gradient. v moves single elements by eps, and, with random signs, all elements at once.

Relative to the derivative, rounding grows as 1/eps and curvature as eps**2. A step of eps = cbrt(u) times the size of
the numbers keeps both small: 4e-6 in float64 leaves ten digits, 4e-3 in float32 four or fewer. So check in float64; the
code is the same. A convolution is linear in each argument: there eps is the size of the numbers, and only rounding is
left. Where a step crosses the kink of a ReLU there is no derivative: the step is shortened, or the difference is left
out and counted."""

EXIT_CODES = """exit codes:
  0    right: every difference agrees within its bound
  1    a gradient is wrong
  2    bad input or usage, or a file cannot be written
  4    cannot tell: the precision does not resolve the gradient, or all
       differences cross kinks
  130  interrupted

examples:
  python -m bridge.gradcheck                        all operations, on the CPU
  python -m bridge.gradcheck conv2d --points 500    one operation, more closely
  python -m bridge.gradcheck --device cuda
  python -m bridge.gradcheck --fixture fixture.h5   a whole network (the file
                                                    is of reference.export)"""

#: Columns of the table besides the name, and their widths
COLUMNS = {"checked": 7, "left out": 8, "eps": 7, "error": 7, "bound": 7, "sees": 5, "verdict": 11}
OUTCOMES = {Verdict.RIGHT: Outcome.ROUNDING, Verdict.WRONG: Outcome.BUG, Verdict.CANNOT_TELL: Outcome.CANNOT_TELL}
STYLES = {Verdict.RIGHT: "bold green", Verdict.WRONG: "bold red", Verdict.CANNOT_TELL: "bold yellow"}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = new_parser("bridge.gradcheck", ABOUT, EXIT_CODES + OPTIONS_HELP)
    p.add_argument("operations", metavar="OPERATION", nargs="*", help="what to check (default: all that --list names)")
    p.add_argument("--fixture", metavar="FILE", help="check the network of this exchange file on its first batch, as "
                   "a whole, in place of the operations; takes about 12 + 4*(points + directions) forward passes for "
                   "every tensor")
    p.add_argument("--dtype", choices=("float64", "float32"), default="float64", help="precision of the "
                   "forward and backward passes (default float64)")
    p.add_argument("--device", default="cpu", help=HELP)
    p.add_argument("--seed", type=int, default=0, metavar="S", help="seed of all random numbers (default 0)")
    p.add_argument("--points", type=int, default=32, metavar="N", help="elements of each tensor that are moved alone "
                   "(default 32; all of a small tensor)")
    p.add_argument("--directions", type=int, default=4, metavar="N", help="random directions in which all elements of "
                   "a tensor are moved together (default 4)")
    add_file_arguments(p, "conclusion and all differences", "gradient")
    p.add_argument("--list", action="store_true", help="list the operations and stop")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code, which is the verdict."""
    a = parser().parse_args(arguments)
    return run("bridge.gradcheck", lambda: _list() if a.list else _check(a))


def _list() -> int:
    console = Output()
    for name, operation in OPERATIONS.items():
        console.print(f"{name:<15} {operation.about}", highlight=False, soft_wrap=True)
    return 0


def _check(a: argparse.Namespace) -> int:
    unknown = [name for name in a.operations if name not in OPERATIONS]
    if unknown:
        raise ArgumentError(f"OPERATION: {unknown[0]!r}, expected one of {', '.join(OPERATIONS)}")
    if a.fixture is not None and a.operations:
        raise ArgumentError(f"--fixture: given together with {a.operations[0]!r}, expected one of both")
    files = OutputFiles.of(a)
    check_outputs(files, [("--fixture", a.fixture)])
    extension.check_device(a.device)
    settings = Settings(a.dtype, a.device, a.seed, a.points, a.directions)
    reports = _of_fixture(a.fixture, settings) if a.fixture is not None else _of_operations(a.operations, settings)
    verdict = overall(reports)
    words = _conclusion(reports, verdict, a.dtype)
    _print(Output(), reports, Text(words, style=STYLES[verdict]))
    return finish_series("bridge.gradcheck", files, _series(reports, verdict, words),
                         _found(settings, reports, verdict))


def _of_fixture(path: str, settings: Settings) -> list[GradcheckReport]:
    with stage(Output(stderr=True), "central differences"):
        return [check_fixture(path, settings)]


def _of_operations(wanted: Sequence[str], settings: Settings) -> list[GradcheckReport]:
    """Of those that are wanted, else of all."""
    names = list(dict.fromkeys(wanted)) or list(OPERATIONS)
    # Thousands of operations on a few hundred numbers: threads would only wait for each other
    with threadpool_limits(1):
        return [report for name in names for report in OPERATIONS[name].check(settings)]


def overall(reports: list[GradcheckReport]) -> Verdict:
    """Wrong if one is; right if all are, and there are some."""
    found = {report.verdict for report in reports}
    if Verdict.WRONG in found:
        return Verdict.WRONG
    return Verdict.RIGHT if found == {Verdict.RIGHT} else Verdict.CANNOT_TELL


def _conclusion(reports: list[GradcheckReport], verdict: Verdict, dtype: str) -> str:
    if verdict is not Verdict.RIGHT:
        return "\n".join(report.words for report in reports if report.verdict is verdict)
    inputs = [one for report in reports for one in report.inputs]
    return (f"RIGHT: {sum(len(one.kept) for one in inputs)} differences agree with {len(inputs)} gradients in {dtype}; "
            f"largest error / bound {short(max(one.t for one in inputs))}.")


def _print(console: Console, reports: list[GradcheckReport], conclusion: Text) -> None:
    console.print(conclusion)
    console.print("sees: errors of the gradient above this part of it show in half of the differences", style="dim")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("gradient of", overflow="fold")
    for name, width in COLUMNS.items():
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    for report in reports:
        if len(reports) > 1:
            table.add_row(Text(report.title, style="bold"))
        for one in report.inputs:
            style = "" if one.verdict is Verdict.RIGHT else STYLES[one.verdict]
            table.add_row(Text(f"  {one.name}"), *_cells(one), style=style)
    console.print(table)
    for report in reports:
        for warning in report.warnings:
            console.print(Text(f"{report.title}: {warning}", style="yellow"))


def _cells(one: InputReport) -> tuple[str, ...]:
    worst = one.worst
    numbers = ("-", "-") if worst is None else (f"{worst.error:.1e}", f"{worst.bound:.1e}")
    return (str(len(one.kept)), str(one.left_out), f"{one.eps:.1e}", *numbers, f"{one.resolution:.0e}",
            one.verdict.label)


def _series(reports: list[GradcheckReport], verdict: Verdict, words: str) -> Series:
    """For the reports: an answer and a row of numbers for each gradient."""
    named = [(f"{report.title}: {one.name}", one) for report in reports for one in report.inputs]
    answers = [Answer(name, OUTCOMES[one.verdict], one.words) for name, one in named]
    return Series("gradients", "Central differences against the gradients", OUTCOMES[verdict], words, answers,
                  ("gradient of", *COLUMNS), [[name, *_cells(one)] for name, one in named])


def _found(settings: Settings, reports: list[GradcheckReport], verdict: Verdict) -> dict[str, Any]:
    """What the JSON says; its verdicts are words of their own."""
    return {"verdict": verdict.label, "dtype": settings.dtype, "device": settings.device, "seed": settings.seed,
            "reports": [report.to_dict() for report in reports]}


if __name__ == "__main__":
    sys.exit(main())
