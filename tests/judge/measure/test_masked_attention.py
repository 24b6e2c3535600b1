# SPDX-License-Identifier: MIT
"""Scores that a mask takes out of an attention have errors that have no part in the others'."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest
import torch
from torch import nn
from torch.nn import functional

from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.validate.self_test.graph_candidate import layer, train_graph
from reference.export import export
from reference.settings import ExportSettings

LENGTH = 5


class Attention(nn.Module):
    """To what is before, by a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Linear(4, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.attention(x).chunk(3, -1)
        return functional.scaled_dot_product_attention(q, k, v, torch.full((LENGTH, LENGTH), -torch.inf).triu(1))


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("attention") / "fixture.h5", ExportSettings(
        model=Attention, shape=(LENGTH, 4), batch=2, steps=2, lr=0.1, threads=1)).path


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_right_programs_are_right(fixture: Path, dtype: str, tmp_path: Path) -> None:
    result = train_graph(fixture, tmp_path / "result.h5", dtype=dtype, written="float32")
    assert judge(fixture, result, diagnosing=False)[1].outcome is Outcome.ROUNDING


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_the_mask_may_be_the_programs_own(fixture: Path, factor: float, tmp_path: Path) -> None:
    """It adds what it likes, and keeps the constant and the masked scores to itself: later steps are judged all the
    same."""
    mask = torch.full((LENGTH, LENGTH), -torch.inf).triu(1)
    wrong = layer("scaled_dot_product_attention.weights", lambda self, node, inputs, p: (
        factor * (self.known["scaled_dot_product_attention.scaled"] + mask).softmax(-1)))
    result = train_graph(fixture, tmp_path / "result.h5", wrong)
    with h5py.File(result, "r+") as file:
        for step in file["steps"].values():
            for group in step.values():
                for name in [name for name in (group if isinstance(group, h5py.Group) else ())
                             if name.endswith((".constant", ".masked"))]:
                    del group[name]
    comparison, verdict = judge(fixture, result, diagnosing=False)
    assert verdict.outcome is (Outcome.ROUNDING if factor == 1 else Outcome.BUG), verdict.words
    assert {one.step for one in comparison.judged} == {0, 1}


def test_an_error_of_the_fourth_digit_shows_in_every_row(fixture: Path, tmp_path: Path) -> None:
    """Of the last row alone nothing is taken out."""
    for row in range(LENGTH):
        factor = torch.ones(LENGTH, 1)
        factor[row] += 1e-3
        wrong = layer("scaled_dot_product_attention.weights", lambda self, node, inputs, p, factor=factor: (
            inputs[0].softmax(-1) * factor))
        comparison, verdict = judge(fixture, train_graph(fixture, tmp_path / "result.h5", wrong), diagnosing=False)
        assert verdict.outcome is Outcome.BUG, (row, verdict.words)
        assert comparison.failures[0].name == "forward/scaled_dot_product_attention.weights"
