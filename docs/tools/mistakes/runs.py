# SPDX-License-Identifier: MIT
"""A mistake compiled, run and judged, and the same program repaired."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from bridge.common.cli import Output
from bridge.judge.judge import Judgement, judge, judge_pair
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.outcome import Outcome
from bridge.report import print_report
from bridge.report.drawing.error_map import ErrorMap, error_map
from bridge.report.headline import headline
from bridge.report.html_page import page
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.fixed_tolerances import close
from bridge.validate.self_test.graph_candidate import GraphOperations, train_graph
from docs.tools.mistakes.catalogue import FIXTURES, Mistake
from docs.tools.mistakes.sources import compiled
from reference.export import export

#: Seconds for the search, so that a busy machine finds the same
PATIENCE = 600.0


class UnexpectedError(Exception):
    """A verdict that is not what the page says."""


@dataclass(frozen=True)
class Found:
    """What was found of a mistake.

    Attributes
    ----------
    mistake : which
    judgement, said, report : of the wrong program, what the tool prints, and its HTML document
    map : the tensor that is drawn, element by element
    losses : |loss / PyTorch's - 1| of the first step and of the last
    alarms : tensors of the first step of which `torch.testing.assert_close` says that they differ, of the wrong program
        and of the repaired one; and how many there are
    repaired : the verdict on the repaired program, in words
    """

    mistake: Mistake
    judgement: Judgement
    said: str
    report: str
    map: ErrorMap
    losses: tuple[float, float]
    alarms: tuple[int, int, int]
    repaired: str


def fixture(network: str, folder: Path) -> Path:
    """Return PyTorch's steps of a network, written where they are not there yet."""
    path = folder / f"{network}.h5"
    if not path.exists():
        export(path, FIXTURES[network])
    return path


def ran(mistake: Mistake, wrong: bool, folder: Path) -> Path:
    """Compile a program, with its mistake or without, and train with it; return the result file."""
    kind = mistake.candidate(compiled(mistake.name, wrong, folder))
    result = folder / f"{mistake.name}-{'wrong' if wrong else 'right'}.h5"
    given = fixture(mistake.network, folder)
    return train_graph(given, result, kind) if issubclass(kind, GraphOperations) else train(given, result, kind)


def found(mistake: Mistake, folder: Path) -> Found:
    """Compile, run and judge a mistake, and the same program repaired.

    Raises
    ------
    UnexpectedError
        If the mistake is not named as the page says, or the repaired program is not right.
    """
    given = fixture(mistake.network, folder)
    wrong, right = (ran(mistake, flag, folder) for flag in (True, False))
    _, repaired = judge(given, right, diagnosing=False)
    with open_pair(given, wrong) as pair:
        judgement = judge_pair(pair, seconds=PATIENCE)
        verdict = judgement.verdict
        if not mistake.is_named(verdict) or repaired.outcome is not Outcome.ROUNDING:
            raise UnexpectedError(f"{mistake.name}: {verdict.words} {headline(verdict)}; repaired: {repaired.words}")
        place = mistake.tensor, mistake.step
        (judged,) = (one for one in judgement.comparison.judged if (one.name, one.step) == place)
        shown = error_map(pair, judged)
        assert shown is not None
        report = page(judgement, pair)
    printed = io.StringIO()
    print_report(Output(file=printed), *judgement, every_step=False)
    alarms = [_alarms(given, one) for one in (wrong, right)]
    return Found(mistake, judgement, printed.getvalue(), report, shown, _losses(given, wrong),
                 (alarms[0][0], *alarms[1]), repaired.words)


def _losses(given: Path, result: Path) -> tuple[float, float]:
    with h5py.File(given) as reference, h5py.File(result) as candidate:
        ratios = [float(candidate[f"steps/{k}/loss"][()].ravel()[0] / reference[f"steps/{k}/loss"][()].ravel()[0])
                  for k in range(len(reference["batches"]))]
    return abs(ratios[0] - 1), abs(ratios[-1] - 1)


def _alarms(given: Path, result: Path) -> tuple[int, int]:
    """Tensors of the first step that differ by torch's tolerance, and all that there are."""
    with h5py.File(given) as reference, h5py.File(result) as candidate:
        names: list[str] = []
        group = candidate["steps/0"]
        group.visititems(lambda name, node: names.append(name) if hasattr(node, "shape") else None)
        names = [name for name in names if name.startswith(("forward", "grads", "loss"))]
        pairs = [(np.atleast_1d(group[name][()]), np.atleast_1d(reference[f"steps/0/{name}"][()])) for name in names]
    return sum(not close(a, b.reshape(a.shape)) for a, b in pairs), len(names)
