# SPDX-License-Identifier: MIT
"""Mistakes in the examples' programs: what was published is what the judge says, and how well it knows a mistake."""

from __future__ import annotations

import json

import pytest

from benchmarks.harness.document import RESULTS
from benchmarks.validator.programs import __main__ as programs
from benchmarks.validator.programs.judged import Judged, judged, of_verdict
from benchmarks.validator.programs.mistakes import Mistake
from bridge.judge.diagnosis.catalogue import KINDS
from bridge.judge.diagnosis.records import Diagnosis, Explanation, Finding, Seen
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.validate.self_test.graph_candidate import GraphOperations

PUBLISHED = json.loads((RESULTS / "programs.json").read_text(encoding="utf-8"))
#: Two of each that are judged in seconds
SOME = {"gpt": (2, 7), "emulator": (0, 9), "tomogram": (2, 6), "vit": (3, 7), "heat": (0, 6)}


def test_the_page_is_made_of_the_figures() -> None:
    assert programs.DOCUMENT.read_text(encoding="utf-8") == programs.document(PUBLISHED)
    assert PUBLISHED["counts"] == programs.counts(PUBLISHED["programs"])


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_all_mistakes_are_published(name: str) -> None:
    (published,) = (one["mistakes"] for one in PUBLISHED["programs"] if one["name"] == name)
    planted = programs.program(name).mistakes
    assert [one["mistake"] for one in published] == [one.words for one in planted] and len(planted) == 10
    for one, mistake in zip(published, planted, strict=True):
        found_there = (one["tensor"], one["step"]) == (mistake.tensor, mistake.step)
        assert found_there == (one["way"] not in ("misplaced", "missed")), one


@pytest.mark.deep
@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_the_judge_says_what_was_published(name: str) -> None:
    """And the right program is right: `judged` asserts it."""
    one = programs.program(name)
    (published,) = (each["mistakes"] for each in PUBLISHED["programs"] if each["name"] == name)
    found = list(judged(one, tuple(one.mistakes[i] for i in SOME[name])))
    for answer, i in zip(found, SOME[name], strict=True):
        for key in ("mistake", "outcome", "tensor", "step", "way", "few"):
            assert answer.as_dict()[key] == published[i][key], (key, answer)


RIGHT = Explanation((KINDS[0],), "dim is 2 in place of 3", 0.1)
OTHER, PLACE = Explanation((KINDS[1],), "all zero", 0.1), Explanation((KINDS[2],), "12 elements", 0.0, by_place=True)
EXACT, ROUGH = Seen("the rows are in another order", "", 0.0), Seen("it is smaller", "", 0.1)


def finding(name: str = "forward/a", *explanations: Explanation, seen: Seen | None = None) -> Finding:
    return Finding(name, 0, "a", 1e3, explanations, seen=seen, extent="The error is 5 %.")


@pytest.mark.parametrize(("way", "findings"), [
    ("named", [finding("forward/a", OTHER, RIGHT)]),
    ("described", [finding(seen=EXACT)]),
    ("described", [finding("forward/a", PLACE)]),
    ("named later", [finding(seen=ROUGH), finding("forward/b", RIGHT)]),
    ("named later", [finding(), finding("forward/b", seen=EXACT)]),
    ("unknown", [finding(), finding("forward/b", OTHER)]),
    ("misnamed", [finding("forward/a", OTHER), finding("forward/b", RIGHT)]),
    ("misplaced", [finding("forward/b", RIGHT)]),
    ("missed", []),
])
def test_how_well_a_mistake_is_known(way: str, findings: list[Finding]) -> None:
    mistake = Mistake("It is wrong", GraphOperations, "forward/a", "dim is 2")
    outcome = Outcome.BUG if findings else Outcome.ROUNDING
    found = of_verdict(mistake, Verdict(outcome, "words", diagnosis=Diagnosis(findings)))
    assert isinstance(found, Judged) and found.way == way and found.said
