# SPDX-License-Identifier: MIT
"""Operands of the step before, where weights move so little that the error could be poor arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bridge.judge import stale_operands
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.judge import judge
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.error_statistics import Statistic
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.outcome import Outcome
from bridge.validate.self_test.candidate import train
from bridge.validate.self_test.graph_candidate import GraphOperations, _Backward, train_graph
from bridge.validate.self_test.operations import Operations, only
from reference.export import export
from reference.settings import ExportSettings

Tensor = torch.Tensor
#: A bias of the step before makes an error of 39 and of 5 bounds
RATES = (0.1 * 2.0**-6, 0.1 * 2.0**-9)


@pytest.fixture(scope="module", params=RATES, ids=["far", "near"])
def fixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stale") / "fixture.h5"
    export(path, ExportSettings(height=14, width=19, batch=2, steps=2, oracle_steps=1, threads=1, lr=request.param))
    return path


def remembering(method: str, layer_name: str, place: int) -> type[Operations]:
    """An operation of one layer takes an operand of the step before; `place` among (layer, ...)."""

    class Remembering(Operations):
        old: Tensor | None = None

    def changed(self: Any, layer: Any, *operands: Tensor) -> Tensor:
        given = list(operands)
        if layer.name == layer_name:
            old, self.old = self.old, given[place].clone()
            given[place] = given[place] if old is None else old
        return getattr(Operations, method)(self, layer, *given)

    setattr(Remembering, method, changed)
    return Remembering


@pytest.mark.parametrize(("kind", "said"), [
    (remembering("conv", "conv2", 2), "forward/conv2 of step 1 is wrong, T = "),
    (remembering("conv", "conv3", 2), "the bias of the step before gives, to the last bits"),
    (remembering("conv", "conv2", 1), "the filter of the step before gives, to the last bits"),
    (remembering("data_gradient", "conv2", 2), "the filter of the step before gives, to the last bits"),
], ids=["bias", "one-bias", "filter", "data-filter"])
def test_an_operand_of_the_step_before_is_a_bug(kind: type[Operations], said: str, fixture: Path, tmp_path: Path
                                                ) -> None:
    verdict = judge(fixture, train(fixture, tmp_path / "r.h5", kind), diagnosing=False).verdict
    assert verdict.outcome is Outcome.BUG and not verdict.precisions, verdict.words
    assert said in verdict.words


@pytest.mark.parametrize(("place", "said"), [(1, "the input"), (0, "dz")])
def test_each_operand_of_a_filter_gradient_is_told_from_the_other(place: int, said: str, fixture: Path, tmp_path: Path
                                                                  ) -> None:
    """Far off, it is a bug in any case, and nobody would have to ask."""
    result = train(fixture, tmp_path / "r.h5", remembering("filter_gradient", "conv2", place))
    with open_pair(fixture, result) as pair:
        found = stale_operands.recognise_stale(pair, compare(pair))
    assert found is not None and f"it is what {said} of the step before gives, to the last bits" in found.words


def later(change: Callable[[Tensor], Tensor]) -> type[Operations]:
    """The output of conv2 is changed, but in the first step."""
    calls: list[None] = []

    def conv(right: Tensor, *_: Any) -> Tensor:
        calls.append(None)
        return right if len(calls) == 1 else change(right)

    return only("conv2", "conv", conv)


def test_other_small_errors_are_no_bug(fixture: Path, tmp_path: Path) -> None:
    """Of a few bounds, and of all signs: rounding of some kind, and a later step fails first."""
    noise = torch.randn((2, 16, 14, 19), generator=torch.Generator().manual_seed(0))
    for size in (1e-6, 3e-6):
        path = train(fixture, tmp_path / f"{size}.h5", later(lambda z, size=size: z + size * noise))  # type: ignore[misc]
        comparison, verdict = judge(fixture, path, diagnosing=False)
        assert comparison.failures[0].step == 1
        assert verdict.outcome in (Outcome.CANNOT_TELL, Outcome.PRECISION), verdict.words


def test_what_leaves_much_of_the_error_proves_nothing(fixture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                      ) -> None:
    """An operand that moved by less than the bound is inside it by chance."""
    real, seen = stale_operands.compared, list[Statistic]()

    def leaving(share: float) -> Callable[[np.ndarray, Predicted], Statistic]:
        def compared(found: np.ndarray, right: Predicted) -> Statistic:
            seen.append(real(found, right))
            if len(seen) > 1:
                seen[-1].norm_error = share**2 * seen[0].norm_error
            return seen[-1]

        return compared

    path = train(fixture, tmp_path / "r.h5", remembering("conv", "conv3", 2))
    for share, proven in ((0.05, True), (0.2, False)):
        seen.clear()
        monkeypatch.setattr(stale_operands, "compared", leaving(share))
        said = "the step before gives, to the last bits" in judge(fixture, path, diagnosing=False).verdict.words
        assert said is proven and len(seen) > 1


class Skip(nn.Module):
    """An activation that a convolution and a sum take."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.tanh, self.last = nn.Tanh(), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return an image."""
        y = self.tanh(self.first(x))
        return self.last(self.inner(y) + y)


class OldFilter(GraphOperations):
    """The inner convolution goes back through the filter of the step before."""

    old: Tensor | None = None

    def forward(self, node: Any, inputs: list[Tensor], parameters: dict[str, Tensor]) -> Tensor:
        z = super().forward(node, [x.detach() for x in inputs], parameters)
        if node.name != "inner":
            return super().forward(node, inputs, parameters)
        w = parameters["weight"].detach().clone()
        old, self.old = w if self.old is None else self.old, w
        shape = inputs[0].shape
        found: Tensor = _Backward.apply(
            lambda dz, _: [torch.nn.grad.conv2d_input(shape, old, dz, padding=1)], z, inputs[0])
        return found


def test_a_part_of_a_sum_by_an_operand_of_the_step_before_is_a_bug(tmp_path: Path) -> None:
    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        height=14, width=19, batch=2, steps=2, oracle_steps=1, threads=1, model=Skip, lr=2.0**-8)).path
    verdict = judge(fixture, train_graph(fixture, tmp_path / "r.h5", OldFilter), diagnosing=False).verdict
    assert verdict.outcome is Outcome.BUG and not verdict.precisions, verdict.words
    assert "grads/tanh/output of step 1" in verdict.words and "the filter of inner of the step before" in verdict.words
