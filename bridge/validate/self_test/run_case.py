# SPDX-License-Identifier: MIT
"""One case of the self-test: a candidate is made, judged and diagnosed, and what was said is kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from bridge.common.errors import FileError
from bridge.common.number_format import short
from bridge.judge.diagnosis import Diagnosis
from bridge.judge.diagnosis.background import adequacy_of
from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.records import VISIBLE
from bridge.judge.judge import judge, judge_pair
from bridge.judge.measure.file_pair import FilePair, open_pair
from bridge.judge.measure.outcome import Outcome
from bridge.judge.repeatability import compare_runs
from bridge.validate.self_test import fixed_tolerances as naive
from bridge.validate.self_test.healthy import Healthy
from bridge.validate.self_test.plants import Plant, Scene
from bridge.validate.self_test.plants.unknown import TENSOR, UNKNOWN_KIND

#: The same fault in every layer: said by the diagnosis as a whole, not by one finding
EVERYWHERE = kind("library_constant").number


@dataclass
class Told:
    """What was said of a planted fault.

    Attributes
    ----------
    kind, name, data, setting : the fault, and the fixture
    code : the exit code
    caught : it is one of those that were expected
    named : its number is among the kinds of the first explanation of the first finding; what is of no kind was found in
        the right tensor
    in_class : it is among those of any explanation of any finding
    said : the first finding, in words
    t : largest T
    at_start : something is wrong in step 0 already
    naive : what fixed tolerances say, see `bridge.validate.self_test.fixed_tolerances`
    visible : the data can show it
    """

    kind: int
    name: str
    data: str
    setting: str
    code: int = 0
    caught: bool = False
    named: bool = False
    in_class: bool = False
    said: str = ""
    t: float = 0.0
    at_start: bool = False
    naive: dict[str, bool] = field(default_factory=dict)
    visible: bool = True
    seconds: float = 0.0


@dataclass
class Healthily:
    """What was said of a right program; as `Told`, and `codes`, the exit codes that are right for it."""

    name: str
    data: str
    setting: str
    code: int = 0
    codes: tuple[int, ...] = (0,)
    said: str = ""
    t: float = 0.0
    naive: dict[str, bool] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def alarm(self) -> bool:
        """Return whether the verdict is a false alarm."""
        return self.code not in self.codes


def check(healthy: Healthy, data: str, scene: Scene) -> Healthily:
    """Run a right program and ask."""
    start = time.monotonic()
    try:
        healthy.make(scene.fixture, scene.path)
        comparison, verdict = judge(scene.fixture, scene.path, diagnosing=False)
        t = max((one.t for one in comparison.judged), default=0.0)
        found = Healthily(healthy.name, data, scene.setting, verdict.exit_code, healthy.codes, verdict.words, t)
        found.naive = naive.verdicts(scene.fixture, scene.path)
    finally:
        scene.path.unlink(missing_ok=True)
    found.seconds = round(time.monotonic() - start, 2)
    return found


def tell(plant: Plant, data: str, scene: Scene) -> Told:
    """Plant a fault and ask, as `bridge.compare` does; what the data can show is computed only where it matters."""
    told = Told(plant.kind, plant.name, data, scene.setting)
    start = time.monotonic()
    try:
        plant.make(scene)
        if plant.runs:
            _two_runs(told, scene)
        else:
            _one_run(told, plant, scene)
        if not plant.runs:
            told.naive = naive.verdicts(scene.fixture, scene.path)
    finally:
        scene.path.unlink(missing_ok=True)
    if not told.caught:
        told.visible = _visible(plant, scene)
    told.seconds = round(time.monotonic() - start, 2)
    return told


def _visible(plant: Plant, scene: Scene) -> bool:
    """The data can show faults of this kind; one of which nothing is computed is always visible."""
    with open_pair(scene.fixture, scene.right) as pair:
        sights = [one for one in adequacy_of(pair).sights if one.kind.number == plant.kind]
    return not sights or any(one.ratio >= VISIBLE for one in sights)


def _two_runs(told: Told, scene: Scene) -> None:
    with open_pair(scene.fixture, scene.right) as pair:
        runs = compare_runs(pair, scene.path)
    told.code, told.said = runs.outcome.value, runs.words
    told.caught = told.named = told.in_class = told.at_start = runs.outcome is Outcome.BUG
    told.t = max((one.statistic.t for one in runs.changed), default=0.0)


def _one_run(told: Told, plant: Plant, scene: Scene) -> None:
    try:
        with open_pair(scene.fixture, scene.path) as pair:
            _judged(told, plant, pair)
    except FileError as error:
        told.code, told.said = Outcome.BAD_INPUT.value, str(error).replace(f"{scene.path.parent}/", "")
        told.caught = told.named = told.in_class = told.code in plant.codes


def _judged(told: Told, plant: Plant, pair: FilePair) -> None:
    comparison, verdict = judge_pair(pair, adequacy=False)
    told.t = max((one.t for one in comparison.judged), default=0.0)
    told.at_start = any(one.step == 0 for one in comparison.failures)
    if plant.precision and verdict.precisions:
        # TF32 and fp16 have as many digits: which of them it is, only numbers out of fp16's range show
        told.said = f"{verdict.precisions[0].said} in {verdict.precisions[0].layer}"
        told.named = told.in_class = True
    elif verdict.diagnosis is not None:
        _diagnosed(told, plant, verdict.diagnosis)
    told.code = verdict.exit_code
    told.caught = told.code in plant.codes
    if verdict.missing:
        # A question that fails is a fault of ours, though no verdict goes with it
        told.caught, told.said = False, verdict.missing[0]


def _diagnosed(told: Told, plant: Plant, diagnosis: Diagnosis) -> None:
    first = diagnosis.findings[0] if diagnosis.findings else None
    if first is None:
        told.said = "no finding"
        return
    numbers = [[kind.number for kind in one.kinds] for one in first.explanations]
    told.said = f"{first.name} step {first.step}: {_words(numbers, first)}"
    if diagnosis.pattern:
        told.said += f" ({diagnosis.pattern})"
    if plant.kind == UNKNOWN_KIND:
        told.named = told.in_class = first.name == TENSOR
        return
    if plant.kind == EVERYWHERE:
        told.named = told.in_class = bool(diagnosis.pattern)
        return
    told.named = bool(numbers) and plant.kind in numbers[0]
    told.in_class = any(
        kind.number == plant.kind
        for finding in diagnosis.findings
        for one in finding.explanations
        for kind in one.kinds
    )


def _words(numbers: list[list[int]], first: object) -> str:
    explanations = first.explanations  # type: ignore[attr-defined]
    if not explanations:
        next_ = first.runner_up  # type: ignore[attr-defined]
        return "unknown" + (f", next {next_.detail} T={short(next_.t)}" if next_ else "")
    return "; or ".join(f"{number} {one.detail}" for number, one in zip(numbers[:4], explanations, strict=False))
