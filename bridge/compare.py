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
  0  right: every difference is rounding
  1  a bug
  2  bad input or usage
  3  lower precision than declared (TF32, bf16, ...)
  4  cannot tell"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = new_parser(
        "bridge.compare",
        description="Decide whether RESULT, written by any program in the format of docs/exchange-file.md, is a right\n"
        "computation of what FIXTURE (written by python -m reference.export) asks for. RESULT may hold\n"
        "only some of the tensors; the rest is listed as not judged.",
        epilog=EXIT_CODES,
    )
    p.add_argument("fixture", metavar="FIXTURE", help="exchange file of the reference")
    p.add_argument("result", metavar="RESULT", help="exchange file of the candidate")
    p.add_argument("--again", metavar="RESULT2", help="result of a second run of the same program: do the two agree?")
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
