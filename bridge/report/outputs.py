# SPDX-License-Identifier: MIT
"""What the judging commands share: the options for their outputs, and the writing of them."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from bridge.common.atomic_file import write_json, write_text
from bridge.common.cli import BAD_INPUT, Output, complain
from bridge.common.command_files import Named, check_files
from bridge.common.errors import ArgumentError
from bridge.common.progress import stage
from bridge.common.stages import reason
from bridge.judge.diagnosis import BUDGET
from bridge.judge.judge import Judgement
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.oracle.algorithms import FAMILIES, families
from bridge.report.environment import environment
from bridge.report.html_page import page
from bridge.report.json_report import to_dict
from bridge.report.junit import suite
from bridge.report.series import Series, series_page, series_suite


@dataclass(frozen=True)
class OutputFiles:
    """Names of the files that a command with a conclusion writes; None where one is not wanted."""

    json: str | None = None
    report: str | None = None
    junit: str | None = None

    @classmethod
    def of(cls, a: argparse.Namespace) -> OutputFiles:
        """Return what a parser with `add_file_arguments` read."""
        return cls(a.json, a.report, a.junit)

    def named(self) -> list[tuple[str, str | None]]:
        """Options and names, as `bridge.common.command_files.check_files` takes them."""
        return [(f"--{one.name}", getattr(self, one.name)) for one in fields(self)]


@dataclass(frozen=True)
class Judging:
    """How a result is judged: keywords of `bridge.judge.judge.judge_pair`.

    Attributes
    ----------
    diagnosing : search for the fault, and compute which faults the data can show
    seconds : for the search
    allow : families of algorithms of convolutions whose errors are rounding
    allow_unknown : data under unknown names leave a result right
    """

    diagnosing: bool = True
    seconds: float = BUDGET
    allow: tuple[str, ...] = ()
    allow_unknown: bool = False

    @classmethod
    def of(cls, a: argparse.Namespace) -> Judging:
        """Return what a parser with `add_output_arguments` read."""
        return cls(not a.no_diagnosis, a.diagnosis_time, tuple(a.allow), a.allow_unknown)


def add_output_arguments(p: argparse.ArgumentParser) -> None:
    """Add the options that `compare` and `validate` share."""
    p.add_argument("--all", action="store_true", help="print every tensor of every step (default: those that fail "
                   "or come nearest to their bounds)")
    p.add_argument("--no-diagnosis", action="store_true", help="faster: only the verdict; no search for the fault, and "
                   "no list of the faults that these data could show")
    p.add_argument("--diagnosis-time", type=_seconds, default=BUDGET, metavar="S",
                   help="seconds that the search for the fault may take (default %(default)g; inf: no limit)")
    p.add_argument("--allow", type=_allowed, default=(), metavar="NAMES",
                   help="algorithms of convolutions whose larger errors count as rounding, separated by commas: "
                   f"{', '.join(FAMILIES)} (default: those that the result declares as conv_algorithm); one that is "
                   "recognised and neither allowed nor declared is named, with exit code 3")
    p.add_argument("--allow-unknown", action="store_true", help="data under /steps whose names the model does not have "
                   "leave a result right (default: exit code 4, since a misspelt tensor would never be judged)")
    add_file_arguments(p, "verdict, T of every tensor, pictures of the wrong ones, and which faults the data can show",
                       "tensor of each step")


def add_file_arguments(p: argparse.ArgumentParser, shown: str, case: str) -> None:
    """Add the options for the files that a command with a conclusion writes.

    Parameters
    ----------
    shown : what stands in the HTML file
    case : for what there is a test case
    """
    p.add_argument("--json", metavar="FILE", help="write the verdict and every number as JSON too (docs/json.md)")
    p.add_argument("--report", metavar="FILE", help=f"write one HTML page: {shown}")
    p.add_argument("--junit", metavar="FILE", help=f"write JUnit XML, as CI servers read it: a test case for each "
                   f"{case}")


def _allowed(text: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(families(text, "--allow")))
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--allow: ")) from None


def _seconds(text: str) -> float:
    """A time that is not negative; inf is no limit."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not found >= 0:
        raise argparse.ArgumentTypeError(f"expected seconds, found '{text}'")
    return found


def check_outputs(files: OutputFiles, reads: Named = (), writes: Named = ()) -> None:
    """Refuse a file that cannot be made, or that would replace another of this command's, before minutes of work.

    Parameters
    ----------
    files : what is to be written
    reads : what else the command reads, as `bridge.common.command_files.check_files` takes it
    writes : what else it writes

    Raises
    ------
    BridgeError
        With the option and the path as they were given.
    """
    check_files(reads, [*files.named(), *writes])


def finish(name: str, files: OutputFiles, pair: FilePair, judgement: Judgement, **extra: Any) -> int:
    """Write the files that are wanted; the exit code. A verdict against the candidate stays, whatever fails.

    Parameters
    ----------
    name : of the program, before a message
    files : what is to be written
    pair : fixture and result
    judgement : what was found
    extra : further keys of the JSON
    """
    work: dict[str, Callable[[str], None]] = {
        "--json": lambda path: write_json(path, to_dict(judgement, pair, **extra)),
        "--report": lambda path: _write_page(path, pair, judgement),
        "--junit": lambda path: write_text(path, suite(*judgement)),
    }
    return _write(name, files, work, judgement.verdict.exit_code)


def finish_series(name: str, files: OutputFiles, series: Series, found: dict[str, Any]) -> int:
    """Write the files of a command with several answers, as `finish` does.

    Parameters
    ----------
    name : of the program, before a message
    files : what is to be written
    series : the answers
    found : keys of the JSON besides the version, verdict, exit code and words
    """
    head = {"json_version": 1, "verdict": series.outcome.label, "exit_code": series.outcome.value,
            "words": series.words}
    work: dict[str, Callable[[str], None]] = {
        "--json": lambda path: write_json(path, head | found | {"environment": environment()}),
        "--report": lambda path: write_text(path, series_page(series)),
        "--junit": lambda path: write_text(path, series_suite(series)),
    }
    return _write(name, files, work, series.outcome.value)


def _write(name: str, files: OutputFiles, work: dict[str, Callable[[str], None]], code: int) -> int:
    """The exit code; a file that is missing spoils only a good one."""
    for option, path in files.named():
        if path is None:
            continue
        try:
            work[option](path)
        except Exception as error:
            why = getattr(error, "strerror", None) or reason(error)
            code = complain(name, f"{option} {path}: {why}", code or BAD_INPUT)
    return code


def _write_page(path: str, pair: FilePair, judgement: Judgement) -> None:
    """With a second look at the tensors that are drawn."""
    with stage(Output(stderr=True), "look again at what is drawn, for the report"):
        write_text(path, page(judgement, pair))
