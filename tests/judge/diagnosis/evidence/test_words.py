# SPDX-License-Identifier: MIT
"""What is said of a description, of one that only fits, and of a search that was stopped."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.diagnose import BUDGET, SHARE
from bridge.judge.diagnosis.evidence.describe import _through, describe
from bridge.judge.diagnosis.evidence.slices import moved
from bridge.judge.diagnosis.evidence.values import functions
from bridge.judge.diagnosis.evidence.view import AXES, Seen, View
from bridge.judge.diagnosis.pattern import pattern
from bridge.judge.diagnosis.predictions.step_graph import StepGraph
from bridge.judge.diagnosis.records import Explanation, Finding
from bridge.judge.diagnosis.search import TRYING, TWO_FAULTS, Search
from bridge.report.facts import finding_lines
from tests.helpers.judged.diagnosed import Lab
from tests.helpers.judged.evidence import DB, DW, Array, Z, at


def test_places_are_no_pattern_of_findings_that_are_described() -> None:
    """"Single elements corrupted" does not stand above what is seen to rounding."""
    place = Explanation((kind("corrupted"),), "20 single elements", 0.0, by_place=True)
    for exact, said in ((None, True), (Seen("it is 0", "", 0.0), False)):
        findings = [Finding(f"grads/{name}/weight", 0, f"the filter gradient of {name}", 9.0, (place,), seen=exact)
                    for name in ("one", "two")]
        assert bool(pattern(findings)) is said, (exact, pattern(findings))


def test_what_leaves_more_than_rounding_is_reported_as_unknown() -> None:
    """A rough description never stands first, as if it were the cause."""
    for rest, unknown in ((0.005, True), (0.0, False)):
        lines = finding_lines(1, Finding(Z, 0, "conv two", 9.0, seen=Seen("a description", "the code", rest)))
        assert ("Unknown structure" in lines[0], "a description" in lines[0].lower()) == (unknown, not unknown), lines


def view_of(found: Array, right: Array, name: str) -> View:
    return View(found, right, np.full(right.shape, 1e-9), AXES[name])


def test_a_place_is_true_of_every_element_in_it() -> None:
    """Eight of nine taps of a channel are right."""
    right = np.random.default_rng(3).normal(size=(1, 16, 3, 3))
    tail = at(right.ravel(), np.s_[80:], 0.0).reshape(right.shape)
    said = [one.said for one in _through("the step", view_of(tail, right, "kcrs"), lambda: False)]
    assert said == ["right but for the step: in the last 64 elements in memory it is 0"]
    some = right * np.where(np.arange(16) < 8, 1.0, 0.0)[None, :, None, None]
    some[0, 9, 1, :2], some[0, 12, 0] = right[0, 9, 1, :2], right[0, 12, 0]
    some[0, 15, 1:] = right[0, 15, 1:]
    said = [one.said for one in _through("the step", view_of(some, right, "kcrs"), lambda: False)]
    assert said == ["right but for the step: in 61 of 144 elements, in input channels 8 to 15 of 16, it is 0"]


def test_channels_are_before_or_after_by_their_numbers() -> None:
    right = np.random.default_rng(4).normal(size=16)
    found = [at(right, np.s_[8:], right[:8]), np.roll(right, 3)]
    said = [next(iter(moved(view_of(one, right, "k")))).said for one in found]
    assert said == ["each channel holds what belongs to the channel 8 before it",
                    "each channel holds what belongs to the channel 3 before it, around the end"]


def test_a_power_is_told_of_numbers_that_differ() -> None:
    """Of numbers around 1 every smooth function is a power."""
    rng = np.random.default_rng(5)
    for spread, known in ((0.01, False), (2.0, True)):
        right = np.exp(spread * rng.normal(size=(1, 64, 3, 3)))
        seen_so = [one.said for one in functions(view_of(0.5 * right**1.8, right, "kcrs"))]
        assert any("to the power 1.8" in one for one in seen_so) is known


def test_what_is_only_a_fit_is_no_cause() -> None:
    """The square of small numbers leaves little of an error that is their loss; where they are wrong is certain."""
    lines = finding_lines(1, Finding(Z, 0, "conv two", 9.0, where="3 of 9 elements: row 2 of 3",
                                     seen=Seen("it is the square", "the code", 0.06)))
    assert "square" not in " ".join(lines) and lines[-1] == "Wrong: 3 of 9 elements: row 2 of 3."


def test_a_search_that_was_stopped_says_so() -> None:
    """It has not tried all that it knows."""
    for given in ({}, {"seen": Seen("a description", "the code", 0.0)}):
        whole, stopped = (" ".join(finding_lines(1, Finding(Z, 0, "conv two", 9.0, cut=cut, **given)))
                          for cut in (False, True))
        assert "no known fault" in whole.lower() and "--diagnosis-time" not in whole
        assert "none of the known faults that were tried" in stopped.lower() and "--diagnosis-time" in stopped


def test_an_unknown_bias_gradient_refers_to_its_filter_gradient() -> None:
    """It has too few numbers to say what the filter gradient of the same dz says."""
    known = Finding(DW, 0, "the filter gradient of two", 9.0, seen=Seen("a description", "the code", 0.0))
    for name, refers in ((DB, True), ("grads/one/bias", False)):
        lines = " ".join(finding_lines(2, Finding(name, 0, "the bias gradient", 9.0), [known]))
        assert (f"the same gradient as {DW}" in lines) == refers, lines


def test_a_search_of_pairs_that_ends_by_itself_was_not_stopped(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own limit is none that somebody gave."""
    monkeypatch.setattr("bridge.judge.diagnosis.search.TWO_FAULTS", 0.0)
    noise = np.random.default_rng(0).normal(size=lab.right(DW).shape)
    for seconds, cut in ((600.0, False), (0.0, True)):
        search = Search(lab.case(DW, lab.right(DW) + noise), now() + seconds)
        assert not search.run(search.place)[0] and search.cut is cut


def test_the_usual_time_does_not_stop_a_search_of_pairs() -> None:
    """Else the report says that time was up of a search that more time would not help."""
    assert SHARE * BUDGET * TRYING >= 1.2 * TWO_FAULTS


def test_losses_of_other_times_are_recognised(lab: Lab) -> None:
    """Each agrees at the first wrong step, and at the next one, too."""
    steps = range(1, lab.pair.steps)
    rights = [float(lab.right("loss", step)[0]) for step in range(lab.pair.steps)]
    after = []
    for step in steps:
        weights = lab.graph(step + 1).weights
        again = StepGraph(lab.pair, step, weights, ignored=frozenset(lab.pair.shapes))
        after.append(float(again.operation("loss").values()[0]))
    for said, values in (
        ("the mean of the losses so far", [np.mean(rights[: step + 1]) for step in steps]),
        ("the loss of this batch after the update", after),
        ("-10*log10 of the mean square (decibels)", [-10 * np.log10(rights[step]) for step in steps]),
    ):
        cases = [lab.case("loss", np.array([value]), step) for step, value in zip(steps, values, strict=True)]
        found = describe(cases[0], cases[0].right.full(lab.arithmetic), lambda: False, cases[1:])
        assert found is not None and found.said == f"it is {said}"
