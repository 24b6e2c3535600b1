# SPDX-License-Identifier: MIT
"""For test suites of one's own: a training step is right, or the test fails with the verdict."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from bridge.common.atomic_file import write_text
from bridge.common.command_files import check_files
from bridge.common.errors import ArgumentError, FileError
from bridge.common.number_format import short
from bridge.common.stages import attempt
from bridge.judge.judge import judge_pair
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.operation_names import place
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.report.facts import finding_lines, missing_lines, pattern_lines
from bridge.report.html_page import page

#: Tensors that a message lists
MOST_LISTED = 6

StrPath = str | os.PathLike[str]


def assert_step_matches(
    fixture: StrPath,
    result: StrPath | None = None,
    *,
    run: Callable[[Path, Path], Any] | None = None,
    allow_lower_precision: bool = False,
    allow: Collection[str] = (),
    allow_unknown: bool = False,
    report: StrPath | None = None,
) -> Comparison:
    """Assert that a result is a right computation of what a fixture asks for.

    Parameters
    ----------
    fixture : exchange file of the reference, see docs/exchange-file.md
    result : exchange file of the program under test; or give `run`
    run : called as ``run(fixture, result)`` to make the result, in a temporary folder
    allow_lower_precision : TF32, bf16 or fp16 operands are right, too, where they explain everything
    allow : arithmetic that is right though it is no sum of products: winograd, fft, strassen, split
    allow_unknown : data under /steps whose names the model does not have leave a result right
    report : write an HTML report here, whatever the verdict

    Returns
    -------
    Comparison
        All that was found.

    Raises
    ------
    AssertionError
        With the verdict in words, what to look at, and the first tensors that are wrong. Also where nobody can tell: a
        test that proves nothing has not passed.
    ArgumentError
        If not exactly one of `result` and `run` is given.
    BridgeError
        If `report` cannot be written, or would replace one of the other files.
    FileError
        If a file is unreadable, the two do not belong together, or there is nothing to compare; if the report of a
        right result cannot be written.

    Examples
    --------
    >>> from reference.export import export                       # or any fixture.h5 that is there
    >>> from reference.settings import ExportSettings
    >>> from bridge.engine.library.extension import run_file      # or subprocess.run([your_program, ...])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fixture = export(Path(folder) / "fixture.h5", ExportSettings(height=8, width=9, steps=1)).path
    ...     found = assert_step_matches(fixture, run=run_file)
    >>> all(tensor.t <= 1 for tensor in found.judged)
    True
    """
    __tracebackhide__ = True
    if (result is None) == (run is None):
        found = "both" if run else "neither"
        raise ArgumentError(f"assert_step_matches: {found} of result and run given, expected one")
    check_files([("fixture", fixture), ("result", result)], [("report", report)])
    judging: dict[str, Any] = {"allow": tuple(sorted(allow)), "allow_unknown": allow_unknown}
    if result is not None:
        return _assert(fixture, result, allow_lower_precision, judging, report)
    assert run is not None
    with tempfile.TemporaryDirectory(prefix="bridge-") as folder:
        made = Path(folder) / "result.h5"
        run(Path(fixture), made)
        return _assert(fixture, made, allow_lower_precision, judging, report)


def _assert(
    fixture: StrPath, result: StrPath, allow_lower_precision: bool, judging: dict[str, Any], report: StrPath | None
) -> Comparison:
    __tracebackhide__ = True
    failed: list[str] = []
    with open_pair(fixture, result) as pair:
        judgement = judge_pair(pair, **judging)
        if report is not None:
            attempt(failed, f"report {os.fspath(report)}", lambda: write_text(report, page(judgement, pair)), None)
    comparison, verdict = judgement
    right = {Outcome.ROUNDING, Outcome.PRECISION} if allow_lower_precision else {Outcome.ROUNDING}
    if verdict.outcome not in right:
        verdict.missing.extend(failed)
        raise AssertionError(message(comparison, verdict))
    if failed:
        raise FileError(failed[0])
    return comparison


def message(comparison: Comparison, verdict: Verdict) -> str:
    """Return what a failing test says: verdict, faults, hints, and the first wrong tensors."""
    lines = [verdict.words]
    if verdict.diagnosis is not None:
        lines += pattern_lines(verdict.diagnosis)
        for number, finding in enumerate(verdict.diagnosis.findings, 1):
            lines += finding_lines(number, finding, verdict.diagnosis.findings[: number - 1])
    lines += verdict.hints
    lines += missing_lines(verdict)
    failures = comparison.failures
    for one in failures[:MOST_LISTED]:
        s, at = one.statistic, place(comparison.model, one.name, one.statistic.at)
        values = f"found {s.found:.9g}, right is {s.expected:.9g}, E = {short(s.bound)}"
        lines.append(f"  {one.name} [step {one.step}]: {one.outcome.words}, T = {short(one.t)} at {at}: {values}")
    more = len(failures) - MOST_LISTED
    return "\n".join(lines + [f"  and {more} more outside their bounds"] * (more > 0))
