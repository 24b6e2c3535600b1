# SPDX-License-Identifier: MIT
"""Losses that are no mean squared error, with other targets, or with some that do not count: whole runs in torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.validate.self_test.edits import plant
from bridge.validate.self_test.graph_candidate import replaced, train_graph
from reference.export import export
from reference.settings import ExportSettings

Loss = Callable[[Tensor, Tensor], Tensor]


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("losses")
    return {loss: export(folder / f"{loss}.h5", ExportSettings(
        model=network, loss=loss, batch=3, height=10, width=12, steps=2, threads=1)).path
        for loss in ("l1", "cross_entropy")}


def down(t: Tensor) -> Tensor:
    """One row lower, the first one repeated."""
    return torch.cat([t[:, :, :1], t[:, :, :-1]], 2)


def classes(y: Tensor, t: Tensor, weight: tuple[float, ...]) -> Tensor:
    """Torch's weights of classes."""
    return functional.cross_entropy(y, t.argmax(1), weight=torch.tensor(weight, dtype=y.dtype))


@pytest.mark.parametrize(("loss", "wrong", "of_loss", "of_gradient"), [
    ("l1", lambda y, t: functional.l1_loss(y, down(t)), "the target one pixel off (+1 in h), its border repeated", ""),
    ("cross_entropy", lambda y, t: functional.cross_entropy(y, t.roll(1, 1)),
     "the next class for each, around the end: classes counted from 0 and from 1", ""),
    ("cross_entropy", lambda y, t: functional.cross_entropy(y, t.argmax(1), ignore_index=1),
     "it is the loss without the pixels of class 1 (ignore_index), and the mean is over the others",
     "it is the gradient without the pixels of class 1 (ignore_index), and the mean is over the others"),
    ("cross_entropy", lambda y, t: classes(y, t, (1.0, 2.0, 4.0)),
     "it is the loss in which the pixels count by their class, in proportion: 0 by 1, 1 by 2 and 2 by 4",
     "it is the gradient in which the pixels count by their class, in proportion: 0 by 1, 1 by 2 and 2 by 4"),
    ("cross_entropy", lambda y, t: functional.cross_entropy(y, t, label_smoothing=0.1),
     "it is the cross entropy of targets that are smoothed by 0.1",
     "it is the gradient by targets that are smoothed by 0.1"),
])
def test_the_loss_and_its_gradient_say_the_same(
    fixtures: dict[str, Path], tmp_path: Path, loss: str, wrong: Loss, of_loss: str, of_gradient: str
) -> None:
    result = train_graph(fixtures[loss], tmp_path / "result.h5", replaced(loss=lambda self, y, t: wrong(y, t)))
    verdict = judge(fixtures[loss], result).verdict
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    first, second = verdict.diagnosis.findings[:2]
    assert (first.name, second.name) == ("loss", "grads/2/output")
    for finding, said in ((first, of_loss), (second, of_gradient or of_loss)):
        if of_gradient:
            assert not finding.explanations and finding.seen is not None and said in finding.seen.said, finding
        else:
            assert said in [one.detail for one in finding.explanations], finding


def test_other_tensors_tell_printed_numbers_from_scaled_ones(fixtures: dict[str, Path], tmp_path: Path) -> None:
    """The gradient of L1 has one size: to print it with few digits is to scale it."""
    right = train_graph(fixtures["l1"], tmp_path / "result.h5")
    wrong = plant(right, tmp_path / "wrong.h5", {
        f"steps/{k}/grads/{name}": lambda g: g.round(5) for k in (0, 1)
        for name in ("2/output", "1/output", "0/output", "input")})
    verdict = judge(fixtures["l1"], wrong).verdict
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    first = verdict.diagnosis.findings[0]
    assert first.name == "grads/2/output"
    assert [one.detail for one in first.explanations] == ["printed as %.5f"]
    assert not any("is the right one times" in hint for hint in verdict.hints)
