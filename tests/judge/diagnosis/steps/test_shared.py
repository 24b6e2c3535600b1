# SPDX-License-Identifier: MIT
"""A tensor of which only the place is known takes the cause that others share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.other_steps import shared
from bridge.judge.diagnosis.records import Explanation, Finding

CLIPPED = Explanation((kind("clipped"),), "updated with the gradient clipped to 0.001", 0.3)
#: Clipped in one element: which number the limit is follows from no other
ONE = Finding("optimizer/bn/bias", 0, "the optimiser", 1e6,
              (Explanation((kind("corrupted"),), "one element", 0.0, by_place=True),),
              Explanation((kind("clipped"),), "clipped below -6.25e-05", 0.0))
OTHERS = [Finding(f"optimizer/{name}", 0, "the optimiser", 1e5, (CLIPPED,)) for name in ("a/weight", "a/bias")]


def test_a_shared_cause_is_taken() -> None:
    found = shared(ONE, [ONE, *OTHERS])
    assert [one.detail for one in found.explanations] == [CLIPPED.detail] and found.runner_up is None


@pytest.mark.parametrize(("finding", "others"), [
    (ONE, OTHERS[:1]),
    (ONE, [replace(one, name=one.name.replace("optimizer", "grads")) for one in OTHERS]),
    (replace(ONE, runner_up=None), OTHERS),
    (replace(ONE, runner_up=Explanation((kind("clipped"),), "clipped", 9.0, rest=0.5)), OTHERS),
    (replace(ONE, runner_up=Explanation((kind("clipped"),), "clipped", 9.0)), OTHERS),
    (replace(ONE, runner_up=Explanation((kind("scale"),), "times 2", 0.0)), OTHERS),
    (replace(ONE, explanations=(Explanation((kind("scale"),), "times 2", 0.0),)), OTHERS),
], ids=["of one", "of another sort", "nothing near", "it leaves much", "not to rounding", "another kind", "predicted"])
def test_no_other_is(finding: Finding, others: list[Finding]) -> None:
    assert shared(finding, [finding, *others]) is finding
