# SPDX-License-Identifier: MIT
"""``python -m bridge.gradcheck [OPERATION ...]``: are the backward passes the gradients of the forward passes?"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

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
from bridge.gradcheck.operations import CHECKS, check_fixture
from bridge.gradcheck.results import GradcheckReport, InputReport, Verdict
from bridge.gradcheck.settings import Settings
from bridge.judge.measure.outcome import Outcome
from bridge.report.junit import Answer
from bridge.report.outputs import OutputFiles, add_file_arguments, check_outputs, finish_series
from bridge.report.series import Series

ABOUT = """Check the gradients of every operation and loss: by central differences, without any reference, and beside
the float64 oracle.

A backward pass claims to compute dL/dx. The forward pass alone can check it: (L(x + v) - L(x - v)) / 2 is the
product of v and dL/dx, up to rounding and curvature. L = sum(dy * forward(x)) with a random dy, since a dy of ones
could not see a transposed gradient. v moves single elements by eps, and, with random signs, all elements at once.

Relative to the derivative, rounding grows as 1/eps and curvature as eps**2. A step of eps = cbrt(u) times the size of
the numbers keeps both small: 4e-6 in float64 leaves ten digits, 4e-3 in float32 four or fewer. The bound of an error
is what rounding may do, 9 standard deviations of what is measured on a short path, and what curvature may do, from
differences of twice the step; nothing of it is chosen. A convolution is linear in each argument: there eps is the
size of the numbers, and only rounding is left.

Where there is no derivative there is nothing to check. Numbers are drawn away from the kinks of a function (0 of a
ReLU, the ends of a clip, a loss's beta) and apart from each other where the largest is sought (max, max pooling).
Of networks, where nobody can draw so, a step that crosses the kink of a ReLU is shortened, or left out and counted.

A difference sees a gradient that is not that of its forward pass; the oracle sees both that are wrong alike. It
computes every operation and loss from the same numbers in float64, with a bound on the rounding of each element."""

EXIT_CODES = """exit codes:
  0    right: every difference agrees within its bound, and so does the oracle
  1    a gradient, or what a forward pass gives, is wrong
  2    bad input or usage, or a file cannot be written
  4    cannot tell: the precision does not resolve the gradient, or all
       differences cross kinks
  130  interrupted

examples:
  python -m bridge.gradcheck                       all operations and losses, in
                                                   float64 and float32
  python -m bridge.gradcheck conv2d huber          these alone
  python -m bridge.gradcheck softmax --dtype float64 --points 500
                                                   more closely
  python -m bridge.gradcheck --device cuda
  python -m bridge.gradcheck --fixture fixture.h5  a whole network (the file
                                                   is of reference.export)"""

#: Reports by what they are of, and the precision
Groups = dict[tuple[str, str], list[GradcheckReport]]

DTYPES = ("float64", "float32")
#: Columns of the table besides the name, and their widths
COLUMNS = {"elements": 8, "directions": 10, "left out": 8, "error/bound": 11, "oracle": 6, "sees": 5, "verdict": 11}
OUTCOMES = {Verdict.RIGHT: Outcome.ROUNDING, Verdict.WRONG: Outcome.BUG, Verdict.CANNOT_TELL: Outcome.CANNOT_TELL}
STYLES = {Verdict.RIGHT: "bold green", Verdict.WRONG: "bold red", Verdict.CANNOT_TELL: "bold yellow"}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = new_parser("bridge.gradcheck", ABOUT, EXIT_CODES + OPTIONS_HELP)
    p.add_argument("operations", metavar="OPERATION", nargs="*", help="what to check (default: all that --list names)")
    p.add_argument("--fixture", metavar="FILE", help="check the network of this exchange file on its first batch, as "
                   "a whole, in place of the operations; takes about 12 + 4*(points + directions) forward passes for "
                   "every tensor")
    p.add_argument("--dtype", choices=DTYPES, help="precision of the forward and backward passes (default: one after "
                   "the other, and float64 for --fixture)")
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
    for name, check in CHECKS.items():
        console.print(f"{name:<20} {check.about}", highlight=False, soft_wrap=True)
    return 0


def _check(a: argparse.Namespace) -> int:
    unknown = [name for name in a.operations if name not in CHECKS]
    if unknown:
        raise ArgumentError(f"OPERATION: {unknown[0]!r}, expected one of {', '.join(CHECKS)}")
    if a.fixture is not None and a.operations:
        raise ArgumentError(f"--fixture: given together with {a.operations[0]!r}, expected one of both")
    files = OutputFiles.of(a)
    check_outputs(files, [("--fixture", a.fixture)])
    extension.check_device(a.device)
    dtypes = (a.dtype,) if a.dtype else DTYPES[:1] if a.fixture is not None else DTYPES
    settings = [Settings(dtype, a.device, a.seed, a.points, a.directions) for dtype in dtypes]
    found = _of_fixture(a.fixture, settings[0]) if a.fixture is not None else _of_checks(a.operations, settings)
    reports = [report for group in found.values() for report in group]
    verdict = overall(reports)
    words = _conclusion(reports, verdict)
    _print(Output(), found, Text(words, style=STYLES[verdict]))
    document = {"verdict": verdict.label, "dtype": ", ".join(dtypes), "device": a.device, "seed": a.seed,
                "reports": [report.to_dict() for report in reports]}
    return finish_series("bridge.gradcheck", files, _series(reports, verdict, words), document)


def _of_fixture(path: str, settings: Settings) -> Groups:
    with stage(Output(stderr=True), "central differences"):
        return {(path, settings.dtype): [check_fixture(path, settings)]}


def _of_checks(wanted: Sequence[str], settings: Sequence[Settings]) -> Groups:
    """Of those that are wanted, else of all, each in every precision."""
    # Thousands of operations on a few hundred numbers: threads would only wait for each other
    with threadpool_limits(1):
        return {(name, one.dtype): CHECKS[name].run(one) for name in wanted or CHECKS for one in settings}


def overall(reports: list[GradcheckReport]) -> Verdict:
    """Wrong if one is; right if all are, and there are some."""
    found = {report.verdict for report in reports}
    if Verdict.WRONG in found:
        return Verdict.WRONG
    return Verdict.RIGHT if found == {Verdict.RIGHT} else Verdict.CANNOT_TELL


def _conclusion(reports: list[GradcheckReport], verdict: Verdict) -> str:
    if verdict is not Verdict.RIGHT:
        return "\n".join(report.words for report in reports if report.verdict is verdict)
    gradients = [one for report in reports for one in report.inputs]
    beside = _largest([report.t_oracle for report in reports])
    return (f"RIGHT: {sum(len(one.kept) for one in gradients)} differences agree with {len(gradients)} gradients in "
            f"{' and '.join(dict.fromkeys(one.dtype for one in gradients))}; largest error / bound "
            f"{_largest([one.t for one in gradients])}" + ("." if beside == "-" else f", beside the oracle {beside}."))


def _print(console: Console, groups: Groups, conclusion: Text) -> None:
    console.print(conclusion)
    console.print("oracle: error / bound beside the float64 oracle; sees: errors of the gradient above this part of it "
                  "show in half of the differences", style="dim")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("gradients of", overflow="fold")
    for name, width in COLUMNS.items():
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    alone, warnings = len({name for name, _ in groups}) == 1, []
    for (name, dtype), reports in groups.items():
        verdict = overall(reports)
        style = "" if verdict is Verdict.RIGHT else STYLES[verdict]
        inputs = [one for report in reports for one in report.inputs]
        beside = [t for report in reports for t in report.oracle.values()]
        table.add_row(Text(f"{name} {dtype}"), *_cells(inputs, beside, verdict), style=style)
        if alone or style:
            for title, cells in _rows(reports, titled=len(reports) > 1):
                table.add_row(Text(f"  {title}"), *cells, style=style)
            warnings += [f"{report.title}: {warning}" for report in reports for warning in report.warnings]
    console.print(table)
    for warning in warnings:
        console.print(Text(warning, style="yellow"))


def _rows(reports: list[GradcheckReport], titled: bool = True) -> list[tuple[str, tuple[str, ...]]]:
    """Each gradient with its cells."""
    return [(f"{report.title}: {one.name}" if titled else one.name,
             _cells([one], [t for name, t in report.oracle.items() if name == one.name], one.verdict))
            for report in reports for one in report.inputs]


def _cells(gradients: list[InputReport], beside: list[float], verdict: Verdict) -> tuple[str, ...]:
    """All of some gradients together."""
    elements, directions = (sum(one.count(direction) for one in gradients) for direction in (False, True))
    return (str(elements), str(directions), str(sum(one.left_out for one in gradients)),
            _largest([one.t for one in gradients]), _largest(beside),
            f"{max((one.resolution for one in gradients), default=math.inf):.0e}", verdict.label)


def _largest(ratios: list[float]) -> str:
    known = [t for t in ratios if not math.isnan(t)]
    return short(max(known)) if known else "-"


def _series(reports: list[GradcheckReport], verdict: Verdict, words: str) -> Series:
    """For the reports: an answer and a row of numbers for each gradient, and what the oracle answers."""
    answers = [Answer(f"{report.title}: {one.name} {one.dtype}", OUTCOMES[one.verdict], one.words)
               for report in reports for one in report.inputs]
    answers += [Answer(f"{report.title}: oracle {report.inputs[0].dtype}",
                       Outcome.BUG if report.beyond else Outcome.ROUNDING,
                       "; ".join(report.beyond) or f"error / bound {short(report.t_oracle)}")
                for report in reports if report.oracle]
    rows = [[f"{title} {report.inputs[0].dtype}", *cells] for report in reports for title, cells in _rows([report])]
    return Series("gradients", "Gradients beside central differences and the oracle", OUTCOMES[verdict], words, answers,
                  ("gradient of", *COLUMNS), rows)


if __name__ == "__main__":
    sys.exit(main())
