# SPDX-License-Identifier: MIT
"""The HTML report: complete, balanced, safe, and drawn from what the comparison found."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bridge.judge.diagnosis.records import Adequacy, Sight
from bridge.judge.judge import Judgement, judge
from bridge.judge.measure.findings import NO_STEP, Judged
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict
from bridge.report.colours import NOT_FINITE
from bridge.report.error_map import error_map, worth_a_map
from bridge.report.figures import map_figure
from bridge.report.html_page import page
from bridge.report.html_parts import adequacy_tables, tensor_table
from tests.helpers.candidates import plant
from tests.helpers.judgements import ADEQUACY, DIAGNOSIS, FLIPPED, assert_in_order, of, printed, stat
from tests.helpers.opened import with_pair
from tests.helpers.report_reader import Balanced, decoded

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
        "\u2717 Bug", "BUG: grads/conv2/weight of step 1", "What is wrong", "1. Kernel flipped, in the filter gradient",
        "Look at: ", "Tensors", "grads/conv2/weight", "Where the errors are", "Divergence", "What these data can show",
        "4.2e+04", "channels <swapped>: seen nowhere", "1.5 blind", "How to read this", "Environment", "torch_version"])
    assert len(found.images) == 2 and document.count("<svg") == document.count("<title>") - 1 == 3
    assert "prefers-color-scheme: dark" in document and 'name="viewport"' in document and len(document) < 300_000


def test_the_page_of_a_right_result(right: Judgement, small_fixture: Path, small_result: Path) -> None:
    found = Balanced.read(with_pair(small_fixture, small_result, lambda pair: page(right, pair)))
    text = " ".join(found.text)
    assert "\u2713 Right: rounding" in text and "What is wrong" not in text and "What these data can show" in text
    assert "All 90 rows" in text


def test_the_matrix_shows_the_variant_that_is_hardest_to_see() -> None:
    """By kind first; every variant on demand."""
    sights = [Sight(FLIPPED, detail, tensor, ratio) for detail, row in {"in h": (5e3, 40.0), "in w": (2.5, 0.5)}.items()
              for tensor, ratio in zip(("forward/conv1", "loss"), row, strict=True)]
    document = adequacy_tables(Adequacy(sights))
    by_kind, every = document.split("<details>")
    assert "kernel flipped: 1 of 2 variants seen nowhere" in by_kind and "All 2 variants" in every
    assert re.findall(r'<td class="(\w+)">([^<]*)', by_kind) == [("blind", "2.5 blind"), ("blind", "0.5 blind")]
    assert re.findall(r'<td class="(\w+)">([^<]*)', every) == [
        ("seen", "5.0e+03"), ("seen", "40"), ("blind", "2.5 blind"), ("blind", "0.5 blind")]
    assert "kernel flipped (in w): seen nowhere" in every and adequacy_tables(Adequacy()) == ""


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


def test_which_tensor_is_drawn(right: Judgement, wrong: Judgement) -> None:
    """The first that fails; else the worst image."""
    assert worth_a_map(wrong[0]) is wrong[0].failures[0]
    worst = worth_a_map(right[0])
    assert worst is not None and len(worst.statistic.at) == 4 and not worst.name.endswith("weight")
    assert worth_a_map(of(Judged("update/conv1/bias", 0, stat(0.1)))) is None


def test_nan_is_drawn(small_fixture: Path, small_result: Path, tmp_path: Path) -> None:
    def spoil(values: Array) -> Array:
        values = np.array(values)
        values[1, 2, 3, 4] = np.nan
        return values

    result = plant(small_result, tmp_path / "nan.h5", {"steps/0/forward/conv2": spoil})
    comparison, _ = judge(small_fixture, result)
    worst = worth_a_map(comparison)
    assert worst is not None and worst.name == "forward/conv2"
    found = with_pair(small_fixture, result, lambda pair: error_map(pair, worst))
    assert found is not None and found.image == 1
    assert np.argwhere(np.isnan(found.ratio)).tolist() == [[2, 3, 4]]
    assert decoded(map_figure(found)[0])[3, 4] == NOT_FINITE
