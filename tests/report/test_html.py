# SPDX-License-Identifier: MIT
"""The HTML report: complete, balanced, safe, and drawn from what the comparison found."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.records import Adequacy, Diagnosis, Finding, Sight
from bridge.judge.judge import Judgement, judge
from bridge.judge.measure.findings import NO_STEP, Judged
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.report.adequacy import adequacy_tables
from bridge.report.drawing.colours import NOT_FINITE
from bridge.report.drawing.error_map import error_map, worth_a_map
from bridge.report.drawing.pictures import pictures
from bridge.report.html_page import page
from bridge.report.html_parts import tensor_table
from bridge.report.rows import MOST_ROWS
from tests.helpers.candidates import plant
from tests.helpers.judged.judgements import (
    ADEQUACY,
    DIAGNOSIS,
    EXPLAINED,
    FLIPPED,
    UNKNOWN,
    assert_in_order,
    of,
    printed,
    stat,
)
from tests.helpers.judged.opened import with_pair
from tests.helpers.judged.report_reader import Balanced, decoded

Array = np.ndarray


@pytest.fixture(scope="module")
def wrong_result(small_result: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filter gradient that is flipped."""
    path = tmp_path_factory.mktemp("report") / "wrong.h5"
    return plant(small_result, path, {"steps/1/grads/conv2/weight": lambda g: g[:, :, ::-1, ::-1]})


@pytest.fixture(scope="module")
def right(small_fixture: Path, small_result: Path) -> Judgement:
    return judge(small_fixture, small_result)


@pytest.fixture(scope="module")
def wrong(small_fixture: Path, wrong_result: Path) -> Judgement:
    comparison, verdict = judge(small_fixture, wrong_result)
    return Judgement(comparison, replace(verdict, diagnosis=DIAGNOSIS, adequacy=ADEQUACY))


def test_the_page_of_a_bug(wrong: Judgement, small_fixture: Path, wrong_result: Path) -> None:
    judgement = Judgement(replace(wrong[0], divergences=[1e-7, 2e-6, 3e-3]), wrong[1])
    document = with_pair(small_fixture, wrong_result, lambda pair: page(judgement, pair))
    found = Balanced.read(document)
    text = " ".join(" ".join(found.text).split())
    assert_in_order(text, [
        "BUG: kernel flipped in conv2, wrong.h5", "\u2717 Bug: kernel flipped in conv2",
        "fixture.h5", "wrong.h5", "BUG: grads/conv2/weight of step 1", "at (k=",
        "T of every tensor", "grads/conv2/weight, step 1: T = ", "What is wrong",
        "1. Kernel flipped, in the filter gradient", "Look at: ", "Where the errors are", "grads/conv2/weight, step 0",
        "right", "found", "found \u2212 right", "error / E", "grads/conv1/weight, step 1", "Tensors",
        "Over the steps", "Loss", "Divergence", "What these data can show", "order in memory and of channels", "1 of 2",
        "channels <swapped>: 1.5 in loss", "channels <swapped>", "nowhere", "How to read this", "Environment",
        "torch_version"])
    assert re.search(r"wrong\.h5 , \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text)
    assert len(found.images) == 2 * 8 and document.count("<svg") == 1 + 2 + 2
    assert "prefers-color-scheme: dark" in document and 'name="viewport"' in document and len(document) < 300_000


def test_the_page_of_a_right_result(right: Judgement, small_fixture: Path, small_result: Path) -> None:
    found = Balanced.read(with_pair(small_fixture, small_result, lambda pair: page(right, pair)))
    text = " ".join(found.text)
    assert "\u2713 Right: rounding" in text and "What is wrong" not in text and "What these data can show" in text
    assert "All 90 rows" in text


def test_what_the_data_can_show_is_said_by_families() -> None:
    """A fault is seen where any tensor shows it; the variant that is hardest to see stands for its family."""
    sights = [Sight(FLIPPED, detail, tensor, ratio) for detail, row in {"in h": (5e3, 40.0), "in w": (2.5, 0.5)}.items()
              for tensor, ratio in zip(("forward/conv1", "loss"), row, strict=True)]
    sights.append(Sight(kind("momentum"), "", "update/conv1/weight", 7.0))
    families, every = adequacy_tables(Adequacy(sights)).split("<details>")
    assert re.findall(r'<td class="(\w+)">([^<]*)</td><td>([^<]*)', families) == [
        ("blind", "1 of 2", "kernel flipped (in w): 2.5 in forward/conv1"),
        ("seen", "1 of 1", "momentum: 7 in update/conv1/weight")]
    assert re.findall(r'<td class="(\w+)">([^<]*)</td><td>([^<]*)', every) == [
        ("seen", "2 of 2", "5.0e+03 in forward/conv1"), ("blind", "nowhere", "2.5 in forward/conv1"),
        ("seen", "1 of 1", "7 in update/conv1/weight")]
    assert "All 3 faults" in every and adequacy_tables(Adequacy()) == ""


def test_equal_faults_are_said_once(right: Judgement) -> None:
    """One entry lists the tensors; what is unknown stays by itself."""
    others = [replace(EXPLAINED, name=f"grads/conv{i}/weight", step=i) for i in (1, 3)]
    diagnosis = Diagnosis([EXPLAINED, UNKNOWN, *others, replace(UNKNOWN, step=2)])
    document = page(Judgement(right[0], Verdict(Outcome.BUG, "BUG", diagnosis=diagnosis)))
    (faults,) = re.findall(r'<ol class="faults">(.*?)</ol>', document, re.DOTALL)
    assert re.findall(r"<h3>(\d\. \w+)", faults) == ["1. Kernel", "2. Unknown", "3. Unknown"]
    assert faults.count("Explains the error to") == 1
    again = re.findall(r"\((grads\S+, step \d), [^)]*explained", faults)
    assert again == ["grads/conv1/weight, step 1", "grads/conv3/weight, step 3"]


@pytest.mark.parametrize(("finding", "words"), [
    (EXPLAINED, "kernel flipped in conv2"), (UNKNOWN, "grads/conv1/weight of step 1")])
def test_the_title_tells(finding: Finding, words: str, right: Judgement) -> None:
    document = page(Judgement(right[0], Verdict(Outcome.BUG, "BUG", diagnosis=Diagnosis([finding]))))
    assert f"<title>BUG: {words}</title>" in document and f"<h1>\u2717 Bug: {words}</h1>" in document
    assert "<title>RIGHT</title>" in page(right)


def test_many_tensors_unfold(right: Judgement) -> None:
    """The figure at the top has those that matter, the long one is folded."""
    judged = [Judged(f"forward/x{i}", 0, stat(0.5 + i / 1000)) for i in range(100)]
    document = page(Judgement(replace(right[0], judged=judged), right[1]))
    first, whole = re.findall(r'<svg class="dots".*?</svg>', document, re.DOTALL)
    assert first.count("<circle") == MOST_ROWS + 1 and whole.count("<circle") == 101
    assert "<summary>All 100 tensors</summary>" in document


def test_hostile_numbers_do_not_fail(right: Judgement) -> None:
    """NaN, infinity, and nothing: every section is there."""
    for value in (math.nan, math.inf, 0.0, 1e308, 5e-324):
        judged = [replace(one, statistic=replace(one.statistic, t=value, error=value, found=value, expected=-value,
                                                 bound=value)) for one in right[0].judged]
        verdict = replace(right[1], missing=[])
        document = page(Judgement(replace(right[0], judged=judged, divergences=[value, value, math.nan]), verdict))
        assert not verdict.missing and 'class="dots"' in document
    empty = replace(right[1], missing=[])
    page(Judgement(replace(right[0], judged=[]), empty))
    assert not empty.missing


def test_remarks_are_in_the_page_only(right: Judgement) -> None:
    adequacy = Adequacy([Sight(FLIPPED, "", "loss", 5.0)], [f"remark {i}" for i in range(5)])
    text = "\n".join(printed((right[0], replace(right[1], adequacy=adequacy)), 120))
    assert "These data show 1 fault of 1 that were tried" in text
    assert "Remark" not in text
    document = page(Judgement(right[0], replace(right[1], adequacy=adequacy)))
    assert "Remark 4." in document and "more remarks" not in document


def test_text_from_files_stays_text(right: Judgement) -> None:
    """Neither a name nor a verdict can break out of the page."""
    comparison = replace(right[0], not_judged=[])
    evil = "<script>alert(1)</script><b>&\ud800"
    comparison.skip(evil, NO_STEP, evil, unknown=True)
    verdict = Verdict(Outcome.CANNOT_TELL, evil, [evil])
    found = Balanced.read(page(Judgement(comparison, verdict)))
    assert "".join(found.text).count("<script>alert(1)</script>") == 4
    named = replace(comparison, judged=[replace(comparison.judged[0], name=evil, step=1)])
    assert "<script>alert(1)" not in tensor_table(named, named.judged)
    assert page(Judgement(comparison, verdict)).encode("utf-8", "replace")


def test_an_error_map_has_what_the_comparison_found(
    wrong: Judgement, right: Judgement, small_fixture: Path, small_result: Path, wrong_result: Path
) -> None:
    """The largest ratio, where it was, of every kind of tensor, at a later step, too."""
    tensors = [(wrong_result, one) for one in wrong[0].judged if one.step == 1 and "conv2" in one.name]
    tensors += [(small_result, one) for one in right[0].judged if (one.name, one.step) == ("grads/relu1/output", 0)]
    for result, one in tensors:
        if one.name.startswith(("forward/", "grads/")):
            found = with_pair(small_fixture, result, partial(error_map, judged=one))
            assert found is not None
            ratio, at = found.ratio, one.statistic.at
            here = at if found.image is None else at[1:]
            assert ratio[here] == pytest.approx(one.t, rel=1e-9) == ratio.max()
            assert found.image == (None if one.name.endswith(("weight", "bias")) else at[0])


def test_which_tensors_are_drawn(right: Judgement, wrong: Judgement) -> None:
    """Those of the first findings; without any the first that fails; else the worst image."""
    assert worth_a_map(wrong[0]) == wrong[0].failures[:1]
    found = worth_a_map(wrong[0], [replace(UNKNOWN, name="update/conv1/bias"), UNKNOWN, EXPLAINED, *[EXPLAINED] * 9])
    assert [(one.name, one.step) for one in found[:2]] == [(UNKNOWN.name, 1), (EXPLAINED.name, 0)] and len(found) == 3
    (worst,) = worth_a_map(right[0])
    assert len(worst.statistic.at) == 4 and not worst.name.endswith("weight")
    assert worth_a_map(of(Judged("update/conv1/bias", 0, stat(0.1)))) == []


def test_nan_is_drawn(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    def spoil(values: Array) -> Array:
        values = np.array(values)
        values[1, 2, 3, 4] = np.nan
        return values

    result = plant(small_result, tmp_path / "nan.h5", {"steps/0/forward/conv2": spoil})
    comparison, _ = judge(small_fixture, result)
    (worst,) = worth_a_map(comparison)
    assert worst.name == "forward/conv2"
    found = with_pair(small_fixture, result, lambda pair: error_map(pair, worst))
    assert found is not None and found.image == 1
    assert np.argwhere(np.isnan(found.ratio)).tolist() == [[2, 3, 4]]
    assert decoded(pictures(found, "nchw"), 6)[3, 4] == NOT_FINITE == decoded(pictures(found, "nchw"), 2)[3, 4]
