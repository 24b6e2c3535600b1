# SPDX-License-Identifier: MIT
"""What the judging commands share: the options for their outputs, and the writing of them."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from typing import Any

from bridge.common.atomic_file import write_json, write_text
from bridge.common.cli import BAD_INPUT, Output, complain
from bridge.common.command_files import Named, check_files
from bridge.common.progress import stage
from bridge.common.stages import reason
from bridge.judge.diagnosis import BUDGET
from bridge.judge.measure.findings import Comparison
from bridge.judge.verdict import Verdict
from bridge.report.environment import environment
from bridge.report.html_page import page
from bridge.report.json_report import to_dict
from bridge.report.junit import suite
from bridge.report.series import Series, series_page, series_suite

#: Options that name a file
FILES = ("json", "report", "junit")

Paths = tuple[str | os.PathLike[str], str | os.PathLike[str]]


def add_output_arguments(p: argparse.ArgumentParser) -> None:
    """What `compare` and `validate` share."""
    p.add_argument("--all", action="store_true", help="print every tensor of every step (default: what matters most)")
    p.add_argument("--no-diagnosis", action="store_true", help="do not search for the fault, nor reckon what the data "
                   "can show")
    p.add_argument("--diagnosis-time", type=_seconds, default=BUDGET, metavar="S",
                   help="seconds for the search for the fault (default %(default)g)")
    add_file_arguments(p, "verdict, table, error maps, adequacy", "tensor of each step")


def add_file_arguments(p: argparse.ArgumentParser, shown: str, case: str) -> None:
    """The files that a command with a conclusion writes.

    Parameters
    ----------
    shown : what stands in the HTML file
    case : for what there is a test case
    """
    p.add_argument("--json", metavar="FILE", help="write the verdict and every number as JSON too (docs/json.md)")
    p.add_argument("--report", metavar="FILE", help=f"write one HTML file: {shown}")
    p.add_argument("--junit", metavar="FILE", help=f"write JUnit XML: a test case for each {case}")


def _seconds(text: str) -> float:
    """A time that is not negative; inf is no limit."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not found >= 0:
        raise argparse.ArgumentTypeError(f"expected seconds, found '{text}'")
    return found


def check_outputs(a: argparse.Namespace, reads: Named = (), writes: Named = ()) -> None:
    """Refuse a file that cannot be made, or that would replace another of this command's, before minutes of work.

    Parameters
    ----------
    a : with the options of `add_file_arguments`
    reads : what else the command reads, as `bridge.common.command_files.check_files` takes it
    writes : what else it writes

    Raises
    ------
    BridgeError
        With the option and the path as they were given.
    """
    check_files(reads, [*((f"--{option}", getattr(a, option)) for option in FILES), *writes])


def finish(name: str, a: argparse.Namespace, files: Paths, judged: tuple[Comparison, Verdict], **extra: Any) -> int:
    """Write the files that are wanted; the exit code. A verdict against the candidate stays, whatever fails.

    Parameters
    ----------
    name : of the program, before a message
    a : with the options of `add_output_arguments`
    files : fixture and result
    judged : what `bridge.compare.judge` gave
    extra : further keys of the JSON
    """
    comparison, verdict = judged
    work: dict[str, Callable[[str], None]] = {
        "json": lambda path: write_json(path, to_dict(comparison, verdict, files, **extra)),
        "report": lambda path: _write_page(path, files, comparison, verdict),
        "junit": lambda path: write_text(path, suite(comparison, verdict)),
    }
    return _write(name, a, work, verdict.exit_code)


def finish_series(name: str, a: argparse.Namespace, series: Series, found: dict[str, Any]) -> int:
    """The same for a command with several answers.

    Parameters
    ----------
    name : of the program, before a message
    a : with the options of `add_file_arguments`
    series : the answers
    found : keys of the JSON besides the version, verdict, exit code and words
    """
    head = {"json_version": 1, "verdict": series.outcome.label, "exit_code": series.outcome.value,
            "words": series.words}
    work: dict[str, Callable[[str], None]] = {
        "json": lambda path: write_json(path, head | found | {"environment": environment()}),
        "report": lambda path: write_text(path, series_page(series)),
        "junit": lambda path: write_text(path, series_suite(series)),
    }
    return _write(name, a, work, series.outcome.value)


def _write(name: str, a: argparse.Namespace, work: dict[str, Callable[[str], None]], code: int) -> int:
    """The exit code; a file that is missing spoils only a good one."""
    for option in FILES:
        path = getattr(a, option)
        if path is None:
            continue
        try:
            work[option](path)
        except Exception as error:
            why = getattr(error, "strerror", None) or reason(error)
            code = complain(name, f"--{option} {path}: {why}", code or BAD_INPUT)
    return code


def _write_page(path: str, files: Paths, comparison: Comparison, verdict: Verdict) -> None:
    """With a second look at the worst tensor."""
    with stage(Output(stderr=True), "look again at the worst tensor, for the report"):
        write_text(path, page(comparison, verdict, files))
