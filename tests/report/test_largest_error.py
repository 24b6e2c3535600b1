# SPDX-License-Identifier: MIT
"""T of a tensor is one number, and reads the same wherever it is printed."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from bridge.common.number_format import short
from bridge.judge.judge import Judgement, judge
from bridge.report.html_page import page
from bridge.report.junit import suite
from bridge.testing import message
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.operations import Operations
from tests.helpers.judged.judgements import printed
from tests.helpers.tiers import deep


class Flipped(Operations):
    """Every filter gradient is flipped."""

    def filter_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return super().filter_gradient(layer, dz, x, w).flip(2, 3)


class Low(Operations):
    """Forward convolutions take bfloat16 operands."""

    def conv(self, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return super().conv(layer, x.bfloat16().float(), w.bfloat16().float(), b)


#: How a text says the T of a tensor: in the verdict; in a finding; of a step; of a convolution as it was declared
SAID = [r"(?P<name>\S+) of step (?P<step>\d) is wrong, T = (?P<t>[\d.e+-]+):",
        r"\((?P<name>\S+), step (?P<step>\d), T = (?P<t>[\d.e+-]+)[);]",
        r"first wrong: T = (?P<t>[\d.e+-]+), (?P<name>\S+) of step (?P<step>\d) at",
        r"LOWER PRECISION than declared: (?P<name>\S+) is .*as float32: T = (?P<t>[\d.e+-]+)\)"]


@pytest.mark.parametrize(("kind", "least"), [(Flipped, 4), deep(Low, 4)])
def test_the_same_t_everywhere(kind: type[Operations], least: int, small_fixture: Path, tmp_path: Path) -> None:
    """The verdict, its findings, the outcomes of the steps, the table and the reports."""
    result = train(small_fixture, tmp_path / "r.h5", kind)
    comparison, verdict = judge(small_fixture, result, adequacy=False)
    known = {(one.name, one.step): short(one.t) for one in comparison.judged}
    lines = printed((comparison, verdict), 1000, every_step=True)
    texts = ["\n".join(lines), message(comparison, verdict), unescape(suite(comparison, verdict)),
             unescape(page(Judgement(comparison, verdict)))]
    for text in texts:
        said = [found.groupdict() for pattern in SAID for found in re.finditer(pattern, text)]
        assert len(said) >= least or text is texts[-1]
        for one in said:
            assert one["t"] == known[one["name"], int(one.get("step", 0))], one
    table = [line.split() for line in lines if re.match(r"\S+ +\d +[\d.e+-]+ +(rounding|bug|precision|cannot)", line)]
    assert len(table) > 50
    assert all(t == known[name, int(step)] for name, step, t, *_ in table)


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0"), (3349.9, "3.3e+03"), (3350.1, "3.4e+03"), (9999.0, "1.0e+04"), (10001.0, "1.0e+04"), (1.0, "1"),
    (0.9999999, "0.999"), (1.0000001, "1.001"), (0.0012345, "0.0012"), (12.0, "12"), (float("inf"), "inf"),
])
def test_a_number_in_few_characters(value: float, text: str) -> None:
    assert short(value) == text
