# SPDX-License-Identifier: MIT
"""The runs that `bridge.validate` is made of: export a fixture, run ``cnn_step`` on it, judge the result."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

from bridge.common.cli import Output
from bridge.common.progress import stage
from bridge.engine.library.programs import export_fixture, run_cnn_step
from bridge.judge.judge import Judgement, judge_pair
from bridge.judge.measure.file_pair import FilePair, open_pair, other_result
from bridge.judge.measure.findings import NotJudged
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.validate.cross_check import differences
from bridge.validate.options import Files, Options


def export(files: Files, options: Options) -> str:
    """Write the fixture, and return what the program printed."""
    return export_fixture(files.fixture, *options.for_export())


@contextmanager
def run_and_judge(
    files: Files, options: Options, errors: Output, what: str = ""
) -> Iterator[tuple[FilePair, Judgement]]:
    """Run ``cnn_step`` on the fixture and judge its result; the files are open for what follows.

    Parameters
    ----------
    files : the fixture, and where the result goes
    options : of the run
    errors : where progress is shown
    what : which of several runs it is
    """
    with stage(errors, f"{what}cnn_step, {options.device}, {options.precision}"):
        run_cnn_step(files.fixture, files.result, options.device, options.precision)
    with open_pair(files.fixture, files.result) as pair:
        yield pair, _judged(pair, options, errors, what)


def judged_in_float32(pair: FilePair, files: Files, options: Options, errors: Output) -> Judgement:
    """Return the same fixture in float32, run and judged."""
    what = "float32 too: "
    with stage(errors, f"{what}cnn_step, {options.device}, float32"):
        run_cnn_step(files.fixture, files.in_float32, options.device, "float32")
    with other_result(pair, files.in_float32) as single:
        return _judged(single, options, errors, what)


def _judged(pair: FilePair, options: Options, errors: Output, what: str) -> Judgement:
    with stage(errors, f"{what}compare with the float64 oracle") as progress:
        return judge_pair(pair, progress, **asdict(options.judging))


def repeated(pair: FilePair, device: str, errors: Output) -> tuple[int, list[NotJudged]]:
    """Repeat the steps through the extension; return the number of tensors, and those that differ in a bit."""
    with stage(errors, "the same steps through the Python extension") as progress:
        return differences(pair, device, progress)


def disagreement(differing: list[NotJudged], verdict: Verdict) -> Verdict:
    """Return the verdict where program and extension differ."""
    first = differing[0]
    words = (f"BUG: cnn_step and the Python extension disagree in {len(differing)} tensors, first in {first.name} of "
             f"step {first.step}: two runs of the same code must agree to the bit.")
    return replace(verdict, outcome=Outcome.BUG, words=words, hints=[verdict.words])


def print_end(console: Output, start: float) -> float:
    """Say how long all of it took, in seconds."""
    seconds = time.monotonic() - start
    console.print(f"  {seconds:.1f} s in all.", style="dim", highlight=False)
    return seconds
