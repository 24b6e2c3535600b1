# SPDX-License-Identifier: MIT
"""A transformer as deep as GPT-2: a small mistake in one head of its last layer is found, whatever is before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.validator.programs.judged import leave_layers
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.validate.self_test.graph_candidate import GraphOperations, layer, train_graph
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.networks.sequences import Gpt

LAYERS, HEADS, WIDTH, WORDS, LENGTH = 12, 12, 48, 61, 16
LAST = f"blocks.{LAYERS - 1}.scaled_dot_product_attention_{LAYERS - 1}"


def gpt() -> torch.nn.Module:
    """As deep, with as many heads, and narrower."""
    return Gpt(WIDTH, LAYERS, HEADS, WORDS)


def scaled(self: GraphOperations, node: Any, inputs: list[torch.Tensor], p: dict[str, torch.Tensor]) -> torch.Tensor:
    """The scores of one head are 1 % too large."""
    factors = torch.ones(HEADS, 1, 1)
    factors[7] = 1.01
    return GraphOperations.forward(self, node, [inputs[0] * factors, *inputs[1:]], p)


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One batch of random words, and those that follow."""
    words = np.random.default_rng(0).integers(0, WORDS, (1, 2, LENGTH + 1))
    return export(tmp_path_factory.mktemp("gpt") / "fixture.h5", ExportSettings(
        model=gpt, input=list(words[..., :-1]), target=list(words[..., 1:]), loss="cross_entropy", batch=2,
        steps=1, threads=1)).path


def test_one_head_of_the_last_layer_is_caught(fixture: Path, tmp_path: Path) -> None:
    """The right program is right, and its wrong twin is wrong from there on, by far. Where they write what layers with
    parameters give, and not what is between them, the wrong one is outside its bounds, too.
    """
    result = tmp_path / "result.h5"
    for kind, is_right in ((GraphOperations, True), (layer(LAST, scaled), False)):
        comparison, verdict = judge(fixture, train_graph(fixture, result, kind), diagnosing=False)
        assert verdict.outcome is (Outcome.ROUNDING if is_right else Outcome.BUG)
        leave_layers(fixture, result)
        few = judge(fixture, result, diagnosing=False)
        assert (few.verdict.outcome is Outcome.ROUNDING) is is_right and bool(few.comparison.failures) is not is_right
    first = comparison.failures[0]
    assert first.name == f"forward/{LAST}" and first.t > 100
