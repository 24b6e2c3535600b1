# SPDX-License-Identifier: MIT
"""No explanation has more bits than the data: of a file with weights alone, after Adam's first step, which is signs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.information import says_enough
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.records import Explanation
from bridge.judge.diagnosis.search import Search
from bridge.judge.judge import judge_pair
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.verdict import Verdict
from bridge.operations.reductions import Sum
from bridge.validate.self_test.graph_candidate import replaced, train_graph
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.judged.single_operations import formula


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Sigmoid(), nn.Conv2d(4, 4, 3, padding=1))


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("signs") / "f.h5", ExportSettings(
        model=net, height=8, width=9, batch=2, steps=1, threads=1, optimizer="adam", lr=2.0**-7)).path


def verdict(fixture: Path, folder: Path, gradient: Callable[[Tensor], Tensor]) -> Verdict:
    """Of a program whose gradients are changed, and whose file has weights and loss alone."""
    whole = train_graph(fixture, folder / "whole.h5", replaced(gradient=lambda self, name, g: gradient(g)))
    with h5py.File(whole) as source, h5py.File(folder / "part.h5", "w") as file:
        file.attrs.update(source.attrs)
        for name in ("steps/0/loss", "steps/0/weights", "steps/1/weights"):
            source.copy(name, file, name)
    with open_pair(fixture, folder / "part.h5") as pair:
        return judge_pair(pair, adequacy=False).verdict


@pytest.mark.deep
def test_noise_has_no_explanation(fixture: Path, tmp_path: Path) -> None:
    """A step of zero is inside a bound that is as wide as the step, and three signs of 36 follow many rules."""
    random = torch.Generator().manual_seed(1)
    found = verdict(fixture, tmp_path, lambda g: g + 0.5 * g.abs().mean() * torch.randn(g.shape, generator=random))
    assert found.exit_code == 1 and found.diagnosis is not None
    assert found.diagnosis.findings
    for one in found.diagnosis.findings:
        assert not one.explanations and one.runner_up is None and one.seen is None, one


def test_a_fault_of_many_signs_is_named(fixture: Path, tmp_path: Path) -> None:
    found = verdict(fixture, tmp_path, lambda g: g.flip(-1) if g.ndim == 4 else g)
    assert found.diagnosis is not None
    first = found.diagnosis.findings[0].explanations
    assert [one.kinds[0].key for one in first] == ["kernel_flipped"], first


def test_what_few_data_say() -> None:
    """Numbers say more than signs, and many more than few."""
    rng = np.random.default_rng(0)
    numbers, narrow = rng.normal(size=8), np.full(8, 1e-6)
    right = Predicted(numbers, narrow)
    assert says_enough(numbers / 3, right, Predicted(numbers / 3, narrow), 0.5, tried=1000, fitted=True)
    signs = np.sign(numbers)
    assert not says_enough(-signs, Predicted(signs, narrow), Predicted(-signs, narrow), 0.5, tried=1000, fitted=True)
    # Four of 36 that are wrong tell one rule among a hundred, and not which number is in it
    three = np.tile([1.0, 1.0, -1.0], 12)
    four, few = np.where(np.arange(36) < 4, -three, three), np.full(36, 1e-3)
    for fitted in (False, True):
        enough = says_enough(four, Predicted(three, few), Predicted(four, few), 0.5, tried=100, fitted=fitted)
        assert enough is not fitted
    # As wide as the tensor: 0 is as right as anything
    wide = Predicted(np.zeros(8), np.ones(8))
    assert not says_enough(-signs, Predicted(signs, narrow), wide, 0.99, tried=1)
    many = np.sign(rng.normal(size=1000))
    rolled = Predicted(np.roll(many, 1), np.full(1000, 1e-6))
    assert says_enough(rolled.value, Predicted(many, np.full(1000, 1e-6)), rolled, 0.5, tried=10**6)


def undone(x: np.ndarray, found: np.ndarray) -> Explanation | None:
    """What is said of the bytes of sums of rows."""
    graph: Any = SimpleNamespace(arithmetic=Arithmetic(2.0**-24))
    return Search(Case("forward/it", graph, formula(Sum("it", (1,)), x), found.astype(float)), now() + 60)._undone()


def test_swapped_bytes_of_small_numbers_say_nothing_of_zeros() -> None:
    """Of two bytes, as bfloat16 has, they are below 1e-40: any tensor that is 0 but for rounding is next to them."""
    a = np.random.default_rng(0).standard_normal((8, 1)).astype(np.float32)
    coarse = np.linspace(0.5, 4.0, 8).astype(np.float32)
    assert undone(np.concatenate([a, -a], 1), coarse * 2.0**-10) is None
    x = np.concatenate([a, a], 1)
    said = undone(x, x.sum(1).byteswap())
    assert said is not None and said.detail == "byte order swapped"
