# SPDX-License-Identifier: MIT
"""The runs that `bridge.validate` is made of: export a fixture, run ``cnn_step`` on it, judge the result."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridge.common.cli import Output
from bridge.common.progress import stage
from bridge.engine.library.programs import export_fixture, run_cnn_step
from bridge.judge.judge import judge
from bridge.judge.measure.findings import Comparison, NotJudged
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.validate.cross_check import differences

#: Options that are handed on to ``reference.export`` as they are
EXPORT_OPTIONS = ("size", "batch", "steps", "seed", "lr", "momentum", "dampening", "weight_decay", "reduction",
                  "image", "model")
#: Where they are not asked for
DEFAULTS = {"size": "1024", "batch": 2, "steps": 3, "seed": 0}


@dataclass(frozen=True)
class Files:
    """Fixture and result of one run, in a folder."""

    fixture: Path
    result: Path

    @classmethod
    def of(cls, folder: Path, name: str = "") -> Files:
        """``fixture.h5`` and ``result.h5``, with a name between where a folder holds several."""
        return cls(folder / f"fixture{name}.h5", folder / f"result{name}.h5")

    @property
    def in_float32(self) -> Files:
        """The same fixture, and the result that a run in float64 has in float32 too."""
        return Files(self.fixture, self.result.with_name("result-float32.h5"))

    def remove(self) -> None:
        """The room is needed for the next run."""
        self.fixture.unlink(missing_ok=True)
        self.result.unlink(missing_ok=True)


def with_defaults(a: argparse.Namespace, **defaults: object) -> argparse.Namespace:
    """The same options with values for those that were not given."""
    given = {name: value for name, value in vars(a).items() if value is not None}
    return argparse.Namespace(**vars(a) | DEFAULTS | defaults | given)


def kept(a: argparse.Namespace) -> list[tuple[str, Path]]:
    """Files that --keep would make or replace in a folder that is there, as `check_files` takes them."""
    if a.keep is None or not Path(a.keep).is_dir():
        return []
    names = [f"-{size}" for size in a.sizes or ()] or [f"-probe{n}" for n in (1, 2, 3) if a.probe] or [""]
    runs = [Files.of(Path(a.keep), name) for name in names]
    return [("--keep", path) for one in runs for path in (one.fixture, one.result, one.in_float32.result)]


def export_options(a: argparse.Namespace) -> list[str]:
    """The options that are reference.export's."""
    options = [f"--{name}" for name in ("nesterov", "probe") if getattr(a, name)]
    if not (a.keep or a.probe):
        # Nobody else will read the fixture, and the comparison reads no more of it
        options += ["--whole-steps", "1"]
    for name in EXPORT_OPTIONS:
        value = getattr(a, name)
        if value is not None:
            options += [f"--{name.replace('_', '-')}", str(value)]
    return options


def export(files: Files, a: argparse.Namespace) -> str:
    """Write the fixture; what the program printed."""
    return export_fixture(files.fixture, *export_options(a))


def judging(a: argparse.Namespace) -> dict[str, Any]:
    """What the options say of a judgement: keywords of `bridge.judge.judge.judge`."""
    return {"diagnosing": not a.no_diagnosis, "seconds": a.diagnosis_time}


def run_and_judge(
    files: Files, device: str, precision: str, errors: Output, what: str = "", **judging: Any
) -> tuple[Comparison, Verdict]:
    """Run ``cnn_step`` on the fixture and judge its result.

    Parameters
    ----------
    errors : where progress is shown
    what : which of several runs it is
    judging : keywords of `bridge.judge.judge.judge`
    """
    with stage(errors, f"{what}cnn_step, {device}, {precision}"):
        run_cnn_step(files.fixture, files.result, device, precision)
    with stage(errors, f"{what}compare with the float64 oracle") as progress:
        return judge(files.fixture, files.result, progress, **judging)


def repeated(files: Files, device: str, errors: Output) -> tuple[int, list[NotJudged]]:
    """The same steps through the extension: number of tensors, and those that differ in a bit."""
    with stage(errors, "the same steps through the Python extension") as progress:
        return differences(files.fixture, files.result, device, progress)


def disagreement(differing: list[NotJudged], verdict: Verdict) -> Verdict:
    """The verdict where program and extension differ."""
    first = differing[0]
    words = (f"BUG: cnn_step and the Python extension disagree in {len(differing)} tensors, first in {first.name} of "
             f"step {first.step}: two runs of the same code must agree to the bit.")
    return replace(verdict, outcome=Outcome.BUG, words=words, hints=[verdict.words])


def bytes_needed(a: argparse.Namespace) -> int:
    """Room for both files, reckoned for the default model: 66 channels of outputs and of gradients."""
    try:
        sides = [int(n) for n in a.size.lower().split("x")]
    except ValueError:
        return 0  # reference.export says what is wrong with it
    pixels = sides[0] * sides[-1] * a.batch
    width = 8 + 4 if a.precision == "float64" else 4  # float64 runs float32 too
    steps = pixels * 136 * a.steps
    fixture = pixels * 4 * (136 * (a.steps if a.keep else 1) + 2 * a.steps)
    twins = pixels * 136 * 8 * (a.steps if pixels <= 2**17 else 1)
    return fixture + steps * width + twins + 2**20


def print_end(console: Output, start: float) -> float:
    """Say how long all of it took, in seconds."""
    seconds = time.monotonic() - start
    console.print(f"  {seconds:.1f} s in all.", style="dim", highlight=False)
    return seconds
