# SPDX-License-Identifier: MIT
"""Where nobody can tell, the tensors that would decide are named."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from bridge.engine.library import extension
from bridge.exchange.model import Model
from bridge.judge.diagnosis.records import Diagnosis, Finding, Seen
from bridge.judge.judge import judge
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict, named
from bridge.operations.pointwise import Relu
from bridge.report.json_report import to_dict
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import keep


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Steps so small that the weights hide their gradients, and a right result."""
    fixture = export(tmp_path_factory.mktemp("deciding") / "f.h5", ExportSettings(
        height=9, width=12, batch=2, steps=2, lr=2.0**-24, threads=1)).path
    extension.run_file(fixture, fixture.with_name("r.h5"))
    return fixture, fixture.with_name("r.h5")


def test_what_a_hidden_update_follows_from_would_decide(pair: tuple[Path, Path], tmp_path: Path) -> None:
    part = keep(pair[1], tmp_path / "part.h5", lambda name: name.endswith("loss") or "/weights/" in name)
    judgement = judge(pair[0], part, diagnosing=False)
    verdict = judgement.verdict
    assert verdict.outcome is Outcome.CANNOT_TELL
    with open_pair(pair[0], part) as files:
        said = to_dict(judgement, files)["would_decide"]
    names = [(one["name"], one["step"]) for one in said]
    assert names == verdict.would_decide
    assert set(names) >= {("grads/conv2/weight", 0), ("forward/relu1", 0), ("grads/conv2/output", 1)}
    assert all(not name.startswith("weights/") for name, _ in names)
    first = ", ".join(f"{name} (step {step})" for name, step in names[:3])
    assert verdict.hints[-1].startswith(f"The result lacks what would decide: {first}"), verdict.hints
    # With these it is told
    assert judge(*pair, diagnosing=False).verdict.outcome is Outcome.ROUNDING


def test_weights_that_are_missing_would_decide(pair: tuple[Path, Path], tmp_path: Path) -> None:
    part = keep(pair[1], tmp_path / "part.h5", lambda name: not name.startswith("steps/1/weights/conv1"))
    verdict = judge(pair[0], part, diagnosing=False).verdict
    assert verdict.outcome is Outcome.CANNOT_TELL
    assert set(verdict.would_decide) == {("weights/conv1/weight", 1), ("weights/conv1/bias", 1)}


def test_nothing_is_asked_for_where_it_is_told(pair: tuple[Path, Path], tmp_path: Path) -> None:
    part = keep(pair[1], tmp_path / "part.h5", lambda name: not name.startswith("steps/0/forward/conv2"))
    assert not judge(pair[0], part, diagnosing=False).verdict.would_decide
    with h5py.File(part, "r+") as file:
        file["steps/0/forward/conv3"][...] *= 2
    verdict = judge(pair[0], part, diagnosing=False).verdict
    assert verdict.outcome is Outcome.BUG and not verdict.would_decide


@pytest.mark.parametrize(("t", "rest", "said", "outcome"), [
    (100.0, 1e-6, "it is the sum in which the first row of dz does not count", Outcome.BUG),
    (100.0, 1e-2, "it is the sum in which the first row of dz does not count", Outcome.CANNOT_TELL),
    (5.0, 1e-6, "it is the sum in which the first row of dz does not count", Outcome.CANNOT_TELL),
    (100.0, 1e-6, "it is rounded to multiples of 0.25", Outcome.CANNOT_TELL),
])
def test_a_sum_of_other_terms_is_no_arithmetic(t: float, rest: float, said: str, outcome: Outcome) -> None:
    finding = Finding("grads/conv3/weight", 0, "the filter gradient", t, (), share=1.0, seen=Seen(said, "", rest))
    comparison = Comparison(Model((Relu("a"),)), "float32", 1, (1, 1, 4, 4))
    verdict = named(Verdict(Outcome.CANNOT_TELL, ""), comparison, Diagnosis([finding]))
    assert verdict.outcome is outcome
