# SPDX-License-Identifier: MIT
"""The self-test: every kind of fault is caught and named, right programs pass, and the self-test itself can fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
import torch

from bridge.judge.diagnosis import KINDS, Diagnosis
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.validate import __main__ as validate
from bridge.validate.self_test import fixed_tolerances, run, run_case, selection
from bridge.validate.self_test import fixtures as making
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.fixtures import FixtureData, Fixtures
from bridge.validate.self_test.plants import CATALOGUE, UNKNOWN, Plant, Scene, layouts
from bridge.validate.self_test.run_case import Healthily, Told
from bridge.validate.self_test.selection import Trial, quick
from bridge.validate.self_test.summary import OURS, Summary
from reference import cli
from tests.helpers.tiers import few

QUICK = quick()
FAULTS = [case for case in QUICK if not case.right]
RIGHT = [case for case in QUICK if case.right]
FLIP = "1 filter gradient flipped"


def exported(path: Path, *options: str) -> None:
    """In this process, as `bridge.engine.library.programs.export_fixture` in another one."""
    with redirect_stdout(StringIO()):
        assert cli.main([str(path), *options]) == 0


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Fixtures:
    return Fixtures(tmp_path_factory.mktemp("self-test"), exported)


def asked(fixtures: Fixtures, case: Trial) -> Told | Healthily:
    right = fixtures.right(case.data, case.setting)
    path = fixtures.folder / "case.h5"
    return run.ask((case, Scene(fixtures.get(case.data, case.setting), right, path, case.setting)))


def test_every_kind_is_planted() -> None:
    every = {kind.number for kind in KINDS}
    assert {plant.kind for plant in CATALOGUE} == {case.plant.kind for case in FAULTS} == every
    assert len(CATALOGUE) > 4 * len(KINDS)


@pytest.mark.parametrize("case", few(FAULTS, 5), ids=lambda case: case.name)
def test_a_fault_of_each_kind_is_caught_and_named(fixtures: Fixtures, case: Trial) -> None:
    told = asked(fixtures, case)
    assert isinstance(told, Told)
    assert told.caught and told.named and told.in_class, f"exit code {told.code}: {told.said}"
    assert set(told.naive) == (set() if case.plant.runs else {name for name, *_ in fixed_tolerances.RULES})


#: Learning rate, sign, weight decay, momentum, what is not updated
RULES = [case for case in selection.planted([one for one in CATALOGUE if one.kind in range(33, 38)], selection.SMALL)
         if case.setting not in making.GRAPHS and case not in FAULTS]


@pytest.mark.deep
@pytest.mark.parametrize("case", RULES, ids=lambda case: case.name)
def test_every_wrong_rule_of_an_update_is_named(fixtures: Fixtures, case: Trial) -> None:
    told = asked(fixtures, case)
    assert isinstance(told, Told) and told.caught and told.named, told.said


#: Of each network one, and those that nothing else in this tier plants
SOONER = ("skip twice", "another mask", "schedule", "frozen", "variance constant backwards", "beside a skip")


@pytest.mark.parametrize("plant", few(
    [plant for plant in CATALOGUE if plant.setting in making.GRAPHS],
    lambda plant: any(word in plant.name for word in SOONER)), ids=lambda plant: f"{plant.kind} {plant.name}")
def test_a_fault_of_a_graph_is_caught_and_named(fixtures: Fixtures, plant: Plant) -> None:
    told = asked(fixtures, Trial(f"{plant.kind} {plant.name}", selection.SMALL, plant.setting))
    assert isinstance(told, Told) and told.code == 1 and told.caught and told.named, told.said


def test_every_network_has_faults_and_right_programs() -> None:
    cases = selection.full()
    for setting in making.GRAPHS:
        assert {case.right for case in cases if case.setting == setting} == {True, False}
    assert {case.name for case in cases if not case.right} == set(selection._PLANTS)


@pytest.mark.parametrize("case", few(RIGHT, 3), ids=lambda case: case.name)
def test_right_programs_pass(fixtures: Fixtures, case: Trial) -> None:
    found = asked(fixtures, case)
    assert not found.alarm, found.said
    assert found.t > 0 and (found.t < 1) is (found.code == 0)


@pytest.mark.deep
@pytest.mark.parametrize("data", selection.OTHERS[:3], ids=str)
def test_other_data(fixtures: Fixtures, data: FixtureData) -> None:
    """Loss scales and smooth images: a fault is named there too, and a right program passes."""
    told = asked(fixtures, Trial(FLIP, data, "plain"))
    assert isinstance(told, Told) and told.caught and told.named, told.said
    assert asked(fixtures, Trial("torch, channels_last", data, "momentum", True)).code == 0


@pytest.mark.deep
@pytest.mark.parametrize("plant", [UNKNOWN[0], *UNKNOWN[3:]], ids=lambda plant: plant.name)
def test_what_is_of_no_kind_is_a_bug_in_the_right_tensor(
    fixtures: Fixtures, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a size where the search takes few channels for all, and comes to pairs of faults."""
    monkeypatch.setattr("bridge.judge.diagnosis.search.TWO_FAULTS", 1.0)
    told = asked(fixtures, Trial(f"{plant.kind} {plant.name}", selection.COSTLY, "plain"))
    assert isinstance(told, Told) and told.caught and told.named and told.code == 1, told.said


def test_a_search_that_fails_is_missed(fixtures: Fixtures, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict stands without it; the self-test does not."""
    def fail(*given: object, **more: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr("bridge.judge.diagnosis.search.Search.run", fail)
    told = asked(fixtures, Trial(FLIP, selection.SMALL, "plain"))
    assert isinstance(told, Told) and told.code == 1 and not told.caught and "planted" in told.said


@pytest.mark.parametrize("scale", [2.0**-12, 2.0**15])
def test_a_scaled_loss_scales_every_gradient_and_no_weight(fixtures: Fixtures, scale: float) -> None:
    small = FixtureData("20x24", 3)
    with (
        h5py.File(fixtures.get(small, "momentum")) as base,
        h5py.File(fixtures.get(replace(small, scale=scale), "momentum")) as scaled,
    ):
        for k in range(3):
            names: list[str] = []
            base[f"steps/{k}/grads"].visititems(lambda name, node, names=names: names.append(name))
            for name in (name for name in names if isinstance(base[f"steps/{k}/grads/{name}"], h5py.Dataset)):
                one, other = (file[f"steps/{k}/grads/{name}"][()] for file in (base, scaled))
                assert np.linalg.norm(other / scale - one) <= 2e-2 * np.linalg.norm(one), name
        moved = base["steps/3/weights/conv2/weight"][()] - base["steps/0/weights/conv2/weight"][()]
        apart = scaled["steps/3/weights/conv2/weight"][()] - base["steps/3/weights/conv2/weight"][()]
        assert np.linalg.norm(apart) < 1e-2 * np.linalg.norm(moved)
        assert "oracle/steps/0/loss" in scaled


def test_smooth_images_are_smooth_and_not_symmetric() -> None:
    (image,) = making.low_pass(np.random.default_rng(0), (1, 1, 40, 40))[0]
    assert abs(image.mean()) < 1e-5 and abs(image.std() - 1) < 1e-5
    assert np.abs(np.diff(image, axis=0)).max() < 0.5
    for other in (image[::-1], image[:, ::-1], image.T):
        assert np.abs(other - image).mean() > 0.1


# --- fixed tolerances ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [fixed_tolerances.close, fixed_tolerances.all_close, fixed_tolerances.same_direction])
def test_fixed_tolerances(rule: Callable[..., bool]) -> None:
    x = np.linspace(-1, 1, 11, dtype=np.float32)
    assert rule(x, x) and not rule(x[::-1].copy(), x) and not rule(np.full_like(x, np.nan), x)
    assert rule(np.zeros_like(x), np.zeros_like(x))


def test_what_fixed_tolerances_miss(fixtures: Fixtures) -> None:
    """With a loss of 2^-15 a flipped gradient is within every absolute tolerance."""
    told = asked(fixtures, Trial(FLIP, replace(selection.SMALL, scale=2.0**-15), "plain"))
    assert told.caught and told.named
    assert told.naive["allclose 1e-3, 1e-5"] and not told.naive["cosine > 0.99"]
    assert not asked(fixtures, Trial(FLIP, selection.SMALL, "plain")).naive["allclose 1e-3, 1e-5"]


# --- the self-test can fail ---------------------------------------------------------------------------------

FEW = [Trial(FLIP, selection.SMALL, "plain"), Trial("torch", selection.SMALL, "plain", True)]


def summary() -> Summary:
    return run.run(FEW, jobs=0, export=exported)


def test_the_self_test_passes() -> None:
    found = summary()
    assert found.passed and not found.missed and not found.unnamed and not found.alarms
    assert found.tolerances()[OURS] == {"missed": 0, "missed_at_start": 0, "false_alarms": 0}


def test_a_diagnosis_that_says_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.judge.judge.diagnose", lambda *_: Diagnosis())
    found = summary()
    assert not found.passed and found.naming == 0 and not found.missed


def test_a_comparison_that_passes_everything_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(pair: FilePair, **_: Any) -> tuple[Comparison, Verdict]:
        comparison, _ = judge_pair(pair, diagnosing=False)
        comparison.judged.clear()
        return comparison, Verdict(Outcome.ROUNDING, "all is well")

    judge_pair = run_case.judge_pair
    monkeypatch.setattr(run_case, "judge_pair", blind)
    found = summary()
    assert not found.passed and len(found.missed) == 1


def test_a_verdict_against_a_right_program_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    perturbed = layouts.filter_of("conv2", lambda g: g * (1 + 1e-3 * torch.sign(g)))
    healthy = replace(selection._HEALTHY["torch"], make=lambda fixture, result: train(fixture, result, perturbed))
    monkeypatch.setitem(selection._HEALTHY, "torch", healthy)
    found = summary()
    assert not found.passed and len(found.alarms) == 1 and found.alarms[0].code in (1, 4)


def told(*, caught: bool = True, named: bool = True, visible: bool = True) -> Told:
    return Told(1, "fault", "data", "plain", 1, caught, named, named, visible=visible)


@pytest.mark.parametrize(
    ("faults", "codes", "passed"),
    [
        ([told()] * 10, [0], True),
        ([told()] * 19 + [told(named=False)], [0], True),
        ([told()] * 9 + [told(named=False)], [0], False),
        ([told()] * 99 + [told(caught=False)], [0], False),
        ([told()] * 9 + [told(caught=False, visible=False)], [0], True),
        ([told()] * 10, [0, 4], False),
        ([told()] * 10, [], False),
        ([], [0], False),
    ],
)
def test_when_it_passes(faults: list[Told], codes: list[int], passed: bool) -> None:
    healthy = [Healthily("right", "data", "plain", code) for code in codes]
    assert Summary(faults, healthy).passed is passed


@pytest.mark.parametrize("caught", [True, False])
def test_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, caught: bool
) -> None:
    healthy = Healthily("right", "data", "plain", naive={name: True for name, *_ in fixed_tolerances.RULES})
    answers = Summary([told(caught=caught)], [healthy])
    monkeypatch.setattr(run, "run", lambda cases, **_: answers if len(cases) == len(QUICK) else None)
    files = {name: tmp_path / f"out.{name}" for name in ("json", "report", "junit")}
    code = validate.main(["--self-test", "--quick", *(f"--{name}={path}" for name, path in files.items())])
    said = " ".join(capsys.readouterr().out.split())
    assert code == (0 if caught else 1)
    assert (f"SELF-TEST PASSED: 1 of {len(KINDS)} kinds" if caught else "MISSED: 1 fault") in said
    assert json.loads(files["json"].read_text(encoding="utf-8"))["summary"]["passed"] is caught
    (cases,) = ElementTree.parse(files["junit"]).getroot()
    wrong = [case.attrib["name"] for case in cases if case.find("failure") is not None]
    assert len(cases) == 4 and wrong == ([] if caught else ["verdict", KINDS[0].title, "names"])
    report = files["report"].read_text(encoding="utf-8")
    assert ("1 of 1 caught" if caught else "0 of 1 caught") in report and "0 false alarms in 1" in report


def test_a_t_that_is_infinite_can_be_written() -> None:
    """Where a right number has no error at all, any other is infinitely far off; JSON has no such number."""
    document = run.document(Summary([replace(told(), t=np.inf)]), 1.0)
    assert json.loads(json.dumps(document, allow_nan=False))["faults"][0]["t"] is None


@pytest.mark.deep
def test_in_processes() -> None:
    """As it runs at large: what goes to another process and comes back."""
    found = run.run(FEW[:1], jobs=1, export=exported)
    assert len(found.told) == 1 and found.told[0].named
