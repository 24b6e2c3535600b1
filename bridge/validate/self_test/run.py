# SPDX-License-Identifier: MIT
"""``python -m bridge.validate --self-test``: plant every fault, run right programs, and count what was said.

Exit code 0 when no visible fault is missed, at least 95 % are named by the first explanation, and no right
program raises an alarm; else 1.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bridge.common.cli import Output
from bridge.common.number_format import number
from bridge.common.progress import stage
from bridge.common.threads import child_environment
from bridge.report.outputs import OutputFiles, check_outputs, finish_series
from bridge.validate.self_test.fixtures import Fixtures, export_of
from bridge.validate.self_test.plants import Scene
from bridge.validate.self_test.run_case import Healthily, Told, check, tell
from bridge.validate.self_test.selection import Trial, full, quick
from bridge.validate.self_test.summary import Summary
from bridge.validate.self_test.table import series, show

#: Libraries' threads in the processes that judge: there is one process for each core
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Answer = Told | Healthily


def main(*, short: bool = False, files: OutputFiles | None = None, jobs: int | None = None) -> int:
    """Run the self-test and print what it found.

    Parameters
    ----------
    short : one small fixture, a fault of each kind
    files : where all answers go, too
    jobs : processes; as many as cores where None, none but this one where 0

    Returns
    -------
    code : 0 or 1, as above
    """
    files = files or OutputFiles()
    check_outputs(files)
    console, start = Output(), time.monotonic()
    summary = run(quick() if short else full(), jobs=jobs, errors=Output(stderr=True))
    show(console, summary)
    seconds = time.monotonic() - start
    console.print(f"  {seconds:.0f} s in all.", style="dim", highlight=False)
    return finish_series("bridge.validate", files, series(summary), document(summary, seconds))


def run(
    cases: list[Trial],
    *,
    jobs: int | None = None,
    errors: Output | None = None,
    export: Callable[..., object] | None = None,
) -> Summary:
    """Ask about all cases.

    Parameters
    ----------
    jobs : as of `main`
    errors : where progress is shown; nowhere where None
    export : writes fixtures, as `bridge.engine.library.programs.export_fixture`
    """
    errors = errors or Output(quiet=True)
    jobs = os.cpu_count() or 1 if jobs is None else jobs
    with tempfile.TemporaryDirectory(prefix="self-test-") as folder:
        fixtures = Fixtures(Path(folder), export) if export else Fixtures(Path(folder))
        with stage(errors, "fixtures and right results") as report:
            scenes = _prepare(cases, fixtures, report, jobs)
        answers = []
        with stage(errors, f"{len(cases)} programs, judged and diagnosed") as report:
            work = zip(cases, scenes, strict=True)
            for answer in _in_turn(work) if jobs == 0 else _in_processes(work, jobs):
                answers.append(answer)
                report(len(answers), len(cases))
    return Summary(
        [one for one in answers if isinstance(one, Told)], [one for one in answers if isinstance(one, Healthily)]
    )


def _prepare(cases: list[Trial], fixtures: Fixtures, report: Callable[[int, int], None], jobs: int) -> list[Scene]:
    """Exports are processes of their own, of which several run at once; the rest is made of them one by one."""
    scenes, exports = [], dict.fromkeys(export_of(case.data, case.setting) for case in cases)
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        list(pool.map(lambda one: fixtures.exported(*one), exports))
    for i, case in enumerate(cases):
        fixture, right = (make(case.data, case.setting) for make in (fixtures.get, fixtures.right))
        scenes.append(Scene(fixture, right, fixtures.folder / f"case-{i}.h5", case.setting))
        report(i + 1, len(cases))
    return scenes


def _in_turn(work: Iterable[tuple[Trial, Scene]]) -> Iterator[Answer]:
    return map(ask, work)


def _in_processes(work: Iterable[tuple[Trial, Scene]], jobs: int) -> Iterator[Answer]:
    """New processes, not copies of this one: copies of a process with threads may hang."""
    with (
        _environment(child_environment() | dict.fromkeys(ONE_THREAD, "1")),
        ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool,
    ):
        yield from pool.map(ask, work)


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """Of the processes that are started meanwhile."""
    before = dict(os.environ)
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def ask(work: tuple[Trial, Scene]) -> Answer:
    """Return what is said of one case."""
    case, scene = work
    return check(case.healthy, str(case.data), scene) if case.healthy else tell(case.plant, str(case.data), scene)


def document(summary: Summary, seconds: float) -> dict[str, Any]:
    """Return all answers and the numbers made of them, for a file."""
    return {
        "verdict": "passed" if summary.passed else "failed",
        "exit_code": 0 if summary.passed else 1,
        "summary": summary.numbers(),
        "seconds": round(seconds),
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
        },
        # T is infinite where a right number has no error at all
        "faults": [asdict(one) | {"t": number(one.t)} for one in summary.told],
        "healthy": [asdict(one) | {"t": number(one.t)} for one in summary.healthy],
    }
