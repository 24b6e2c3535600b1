# SPDX-License-Identifier: MIT
"""``python -m bridge.compare FIXTURE RESULT``: judge any candidate's file, complete or partial."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bridge.common.cli import Output, new_parser, run
from bridge.common.progress import stage
from bridge.common.stages import attempt
from bridge.common.threads import brief_waits, keep_freed_memory
from bridge.exchange.crash_guard import check_readable
from bridge.judge.judge import Judgement, judge_pair
from bridge.judge.measure.file_pair import FilePair, open_pair
from bridge.judge.repeatability import compare_runs, refuse_the_same, with_runs
from bridge.judge.verdict import Verdict, unanswered
from bridge.report import print_report
from bridge.report.outputs import Judging, OutputFiles, add_output_arguments, check_outputs, finish

EXIT_CODES = """exit codes:
  0    right: every difference is rounding
  1    a bug: rounding cannot do this
  2    bad input or usage, or a file cannot be written
  3    computed in a lower precision than declared (TF32, bfloat16, ...)
  4    cannot tell: more than rounding was seen to do, but less than what is a
       bug for sure, or nothing in the files shows it
  130  interrupted"""

EXAMPLES = """

examples:
  python -m reference.export fixture.h5 --size 64    (what is to be computed)
  your_program fixture.h5 result.h5                  (docs/exchange-file.md)
  python -m bridge.compare fixture.h5 result.h5
  python -m bridge.compare fixture.h5 result.h5 --report report.html
  python -m bridge.compare fixture.h5 first.h5 --again second.h5"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = new_parser(
        "bridge.compare",
        "Decide whether RESULT, written by any program in the format of docs/exchange-file.md, is a right computation "
        "of the training steps that FIXTURE (written by python -m reference.export) asks for.\n\n"
        "Every tensor is compared with a float64 computation and with E, the largest error that rounding can cause in "
        "each of its elements. T is the largest error / E of a tensor: it is right where T <= 1, and no tolerance is "
        "to be chosen. Where T is larger, the fault is searched for and named. RESULT may hold only some of the "
        "tensors; the rest is listed as not judged.",
        EXIT_CODES + EXAMPLES,
    )
    p.add_argument("fixture", metavar="FIXTURE", help="file of the reference, PyTorch")
    p.add_argument("result", metavar="RESULT", help="file of the program that is to be judged")
    p.add_argument("--again", metavar="RESULT2", help="result of a second run of the same program: is it repeatable, "
                   "to the bit or to rounding?")
    add_output_arguments(p)
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code, which is the verdict."""
    a = parser().parse_args(arguments)
    return run("bridge.compare", lambda: _compare(a))


def _compare(a: argparse.Namespace) -> int:
    files = OutputFiles.of(a)
    check_outputs(files, [("FIXTURE", a.fixture), ("RESULT", a.result), ("--again", a.again)])
    check_readable(a.fixture, a.result, *([a.again] if a.again else []))
    if a.again is not None:
        refuse_the_same(a.result, a.again)
    keep_freed_memory()
    brief_waits()
    with open_pair(a.fixture, a.result) as pair:
        with stage(Output(stderr=True), "compare with the float64 oracle") as progress:
            comparison, verdict = judge_pair(pair, progress, **asdict(Judging.of(a)))
        verdict, extra = _again(pair, a.again, verdict) if a.again is not None else (verdict, {})
        print_report(Output(), comparison, verdict, every_step=a.all)
        return finish("bridge.compare", files, pair, Judgement(comparison, verdict), **extra)


def _again(pair: FilePair, second: str, verdict: Verdict) -> tuple[Verdict, dict[str, Any]]:
    """What a second run says besides, and its keys of the JSON."""
    failed: list[str] = []
    with stage(Output(stderr=True), "compare the two runs") as progress:
        runs = attempt(failed, "the comparison of the two runs", lambda: compare_runs(pair, second, progress), None)
    if runs is None:
        return unanswered(verdict, failed), {}
    return with_runs(verdict, runs), {"again": runs.to_dict()}


if __name__ == "__main__":
    sys.exit(main())
