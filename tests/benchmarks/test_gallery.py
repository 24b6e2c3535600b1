# SPDX-License-Identifier: MIT
"""The gallery is a test: every fault of the published mistake is named, and the one of its loss at the size at which it
was published. ``python -m benchmarks.gallery`` does all of it at that size, as docs/gallery.md shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import pytest
from torch import nn

from benchmarks.validator import gallery
from benchmarks.validator.exhibits import (
    BYTES_PER_PIXEL,
    LAYERS,
    Evidence,
    Exhibit,
    published,
    saved,
    sequential_mean,
    unknown,
)
from benchmarks.validator.gallery import PUBLISHED, SAVED
from bridge.engine.library import extension
from bridge.judge.diagnosis.records import Finding
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.validate.workspace import workspace
from reference.export import export
from reference.settings import ExportSettings

# Judged many times
pytestmark = [pytest.mark.deep, pytest.mark.together]

#: Height and width: at 1024 the search takes minutes and says the same, but of the loss
SIZE = 320
#: What is named at this size
HERE = {name: faults for name, faults in PUBLISHED.items() if name != "loss"}
#: T of the next best explanation over that of the right one, at least
MARGIN = 2600


@pytest.fixture(scope="module")
def exhibit(tmp_path_factory: pytest.TempPathFactory) -> Exhibit:
    """The first."""
    return published(tmp_path_factory.mktemp("published"), SIZE, whole=False)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Exhibit:
    """The second exhibit."""
    return saved(tmp_path_factory.mktemp("gallery"))


def findings(exhibit: Exhibit) -> dict[str, Finding]:
    assert exhibit.verdict.diagnosis is not None
    return {one.name: one for one in exhibit.verdict.diagnosis.findings}


def test_the_published_mistake_is_named(exhibit: Exhibit) -> None:
    """Both faults of the gradients, as the first explanation."""
    assert exhibit.verdict.exit_code == 1
    assert exhibit.named == HERE
    for one in findings(exhibit).values():
        assert one.explanations[0].t <= 1 and one.runner_up is not None
    one = findings(exhibit)["grads/conv2/weight"]
    assert one.runner_up.t > MARGIN * one.explanations[0].t and one.runner_up.t > 10
    assert "every one of the 3 wrong filter gradients" in exhibit.verdict.diagnosis.pattern
    assert all(gradient.t > 1000 for gradient in exhibit.gradients)


def test_what_was_looked_at_would_have_been_content(exhibit: Exhibit) -> None:
    """Two naive losses, bias gradients, new weights."""
    assert [one.content for one in exhibit.evidence] == [True] * 3
    assert all(gradient.difference > 0.05 and gradient.relative > 0.25 for gradient in exhibit.gradients)
    wrong = {one.name for one in exhibit.comparison.failures}
    assert wrong == {f"{sort}/{name}/weight" for sort in ("grads", "update") for name in LAYERS}


def test_a_loss_that_is_summed_one_by_one_is_named(tmp_path: Path) -> None:
    """Of 2 x 1024 x 1024 pixels, as it was published; of one layer, since it is no matter of the network."""
    fixture, result = tmp_path / "fixture.h5", tmp_path / "result.h5"
    export(fixture, ExportSettings(model=lambda: nn.Sequential(nn.Conv2d(1, 1, 3, padding=1)), height=1024, width=1024,
                                   steps=1, oracle_steps=0))
    extension.run_file(fixture, result)
    with h5py.File(fixture) as reference, h5py.File(result, "r+") as file:
        (output,) = file["steps/0/forward"].values()
        file["steps/0/loss"][...] = sequential_mean(output[()] - reference["batches/0/target"][()])
    comparison, verdict = judge(fixture, result, adequacy=False)
    assert [one.name for one in comparison.failures] == ["loss"]
    (loss,) = (judged for judged in comparison.judged if judged.name == "loss")
    assert loss.statistic.relative_error > 1e-3 and loss.t > 1
    assert verdict.diagnosis is not None and "loss" in PUBLISHED
    (finding,) = verdict.diagnosis.findings
    assert [kind.number for kind in finding.explanations[0].kinds] == PUBLISHED["loss"]


def test_what_is_of_no_kind_is_found_where_it_is(exhibit: Exhibit) -> None:
    """At full size, in the time that it was given: a bug, in the right tensor, and no wrong name."""
    with workspace(None, BYTES_PER_PIXEL * 2 * 1024**2) as folder:
        third = unknown(folder, seconds=5)
    assert gallery.found(third) and third.verdict.missing == []
    assert third.gradients[0].t > 10
    # A search that nobody could bound took minutes; one prediction that was begun is finished
    assert third.verdict.diagnosis is not None and not third.verdict.diagnosis.complete
    for other in (exhibit, replace(third, verdict=replace(third.verdict, diagnosis=None))):
        assert not gallery.found(other)


def test_gradients_that_are_added_up_pass_the_first_step(small: Exhibit) -> None:
    assert small.evidence[0].content and "RIGHT" in small.evidence[0].truth
    assert small.verdict.exit_code == 1 and small.repaired.outcome is Outcome.ROUNDING
    assert small.named == SAVED
    assert {one.step for one in findings(small).values()} == {1}
    assert all(one.passed for one in small.comparison.judged if one.step == 0)
    assert gallery.right(small, SAVED)


def test_an_exhibit_that_is_not_named_is_found(small: Exhibit) -> None:
    """Nothing named, another fault named, or a repaired program that is not right."""
    mute = replace(small.verdict, diagnosis=None)
    other = SAVED | {f"grads/{LAYERS[0]}/weight": [1]}
    assert not gallery.right(replace(small, verdict=mute), SAVED) and not gallery.right(small, other)
    assert not gallery.right(replace(small, repaired=small.verdict), SAVED)
    assert not gallery.right(replace(small, repaired=None), SAVED)
    assert not Evidence("loss", float("nan"), 1.0, "").content


def test_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At a size where the sequential sum is still rounding, the exit code says that not all is named."""
    assert gallery.main(["--size", "32", "--json", str(tmp_path / "gallery.json")]) == 1
    out = capsys.readouterr().out
    assert out.count("repaired: RIGHT") == 2
    for words in ("Exhibit 1", "weights after the step", "Kernel flipped and memory right", "Exhibit 2", "Exhibit 3"):
        assert words in out
    assert '"named"' in (tmp_path / "gallery.json").read_text(encoding="utf-8")
