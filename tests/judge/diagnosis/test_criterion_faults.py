# SPDX-License-Identifier: MIT
"""Losses that are no mean squared error, with other targets, or with some that do not count: whole runs in torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bridge.gradcheck.cases import LOSS_CASES
from bridge.judge.diagnosis.wrong_operations.losses import wrong_losses
from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.operations.losses import loss_from
from bridge.validate.self_test.edits import plant
from bridge.validate.self_test.graph_candidate import replaced, train_graph
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.tiers import few_rows

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
    ("cross_entropy", lambda y, t: functional.cross_entropy(y, t, label_smoothing=0.15),
     "label_smoothing is 0.15 in place of 0", ""),
])
def test_the_loss_and_its_gradient_say_the_same(
    fixtures: dict[str, Path], tmp_path: Path, loss: str, wrong: Loss, of_loss: str, of_gradient: str
) -> None:
    result = train_graph(fixtures[loss], tmp_path / "result.h5", replaced(loss=lambda self, y, t: wrong(y, t)))
    verdict = judge(fixtures[loss], result, adequacy=False).verdict
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    first, second = verdict.diagnosis.findings[:2]
    assert (first.name, second.name) == ("loss", "grads/2/output")
    for finding, said in ((first, of_loss), (second, of_gradient or of_loss)):
        words = [one.detail for one in finding.explanations] or [finding.seen.said if finding.seen else ""]
        assert any(said in one for one in words), finding


def test_other_tensors_tell_printed_numbers_from_scaled_ones(fixtures: dict[str, Path], tmp_path: Path) -> None:
    """The gradient of L1 has one size: to print it with few digits is to scale it."""
    right = train_graph(fixtures["l1"], tmp_path / "result.h5")
    wrong = plant(right, tmp_path / "wrong.h5", {
        f"steps/{k}/grads/{name}": lambda g: g.round(5) for k in (0, 1)
        for name in ("2/output", "1/output", "0/output", "input")})
    verdict = judge(fixtures["l1"], wrong, adequacy=False).verdict
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    first = verdict.diagnosis.findings[0]
    assert first.name == "grads/2/output"
    assert [one.detail for one in first.explanations] == ["printed as %.5f"]
    assert not any("is the right one times" in hint for hint in verdict.hints)


def probabilities() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Sigmoid())


def sharp(t: Tensor, y: Tensor, beta: float) -> Tensor:
    """The smooth L1 loss with beta where 1/beta should be."""
    d = (y - t).abs()
    return torch.where(d < beta, 0.5 * d * d * beta, d - 0.5 * beta).mean()


def indices(t: Tensor) -> Tensor:
    return t.argmax(1)


def unweighted(y: Tensor, t: Tensor) -> Tensor:
    """The part of all classes does not count by their weights."""
    weighted = functional.one_hot(t.argmax(1), 3).movedim(-1, 1) * torch.tensor((1.0, 2.0, 4.0))[:, None, None]
    return -((0.85 * weighted + 0.05) * y.log_softmax(1)).sum() / weighted.sum()


BETA, DELTA, LOGITS = "smooth_l1 beta=0.25", "huber delta=0.3", "bce_with_logits pos_weight=3"
CLASSES = "cross_entropy class_indices=1"
WEIGHTS = torch.tensor([1.0, 2.0, 4.0])
#: The right loss, the wrong one, and how it is named
WRONG: list[tuple[str, Loss, str]] = [
    (BETA, lambda y, t: functional.smooth_l1_loss(y, t), "beta is 1 in place of 0.25"),
    (BETA, lambda y, t: functional.huber_loss(y, t, delta=0.25),
     "huber with delta = beta in place of smooth_l1"),
    (BETA, lambda y, t: sharp(t, y, 0.25), "is multiplied by beta, not divided"),
    (BETA, lambda y, t: functional.l1_loss(y, t), "l1 in place of smooth_l1"),
    (DELTA, lambda y, t: functional.huber_loss(y, t), "delta is 1 in place of 0.3"),
    (DELTA, lambda y, t: functional.smooth_l1_loss(y, t, beta=0.3),
     "smooth_l1 with beta = delta in place of huber"),
    (DELTA, lambda y, t: functional.mse_loss(y, t), "mse in place of huber"),
    ("bce", lambda y, t: functional.binary_cross_entropy_with_logits(y, t),
     "bce_with_logits in place of bce"),
    ("bce", lambda y, t: -(t * (y + 1e-4).log() + (1 - t) * (1 - y + 1e-4).log()).mean(),
     "added to"),
    ("bce", lambda y, t: -(t * y.log()).mean(), " alone, without "),
    (LOGITS, lambda y, t: functional.binary_cross_entropy_with_logits(y, t), "pos_weight is 1 in place of 3"),
    (LOGITS, lambda y, t: 3 * functional.binary_cross_entropy_with_logits(y, t), "pos_weight is of the target 0, too"),
    (LOGITS, lambda y, t: functional.binary_cross_entropy_with_logits(y.sigmoid(), t, pos_weight=torch.tensor(3.0)),
     "the loss of sigmoid of the outputs"),
    (f"{CLASSES} weight=1,2,4", lambda y, t: functional.cross_entropy(y, indices(t)),
     "weight is () in place of (1.0, 2.0, 4.0)"),
    (f"{CLASSES} weight=1,2,4", lambda y, t: functional.cross_entropy(y, t, weight=WEIGHTS),
     "a mean over all pixels, not over the weights of those that count"),
    (f"{CLASSES} ignore_index=1", lambda y, t: functional.cross_entropy(y, indices(t)),
     "ignore_index is -100 in place of 1"),
    (f"{CLASSES} ignore_index=1", lambda y, t: functional.cross_entropy(
        y, indices(t), ignore_index=1, reduction="sum") / (y.numel() / 3),
     "a mean over all pixels, not over the weights of those that count"),
    ("cross_entropy label_smoothing=0.1", lambda y, t: functional.cross_entropy(y, t),
     "label_smoothing is 0 in place of 0.1"),
    ("cross_entropy label_smoothing=0.1", lambda y, t: functional.cross_entropy(y.softmax(1), t, label_smoothing=0.1),
     "the loss of softmax of the outputs"),
    (f"{CLASSES} weight=1,2,4 label_smoothing=0.15", lambda y, t: unweighted(y, t), "is added behind "),
    (f"{CLASSES} weight=1,2,4", lambda y, t: functional.cross_entropy(
        y, indices(t), weight=WEIGHTS, reduction="sum") / indices(t).numel(),
     "a mean over the pixels that count, not over their weights"),
]


@pytest.fixture(scope="module")
def with_settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("settings")
    return {loss: export(folder / f"{number}.h5", ExportSettings(
        model=probabilities if loss == "bce" else network, loss=loss, batch=3, height=10, width=12, steps=2, lr=0.01,
        threads=1)).path for number, loss in enumerate(dict.fromkeys(loss for loss, *_ in WRONG))}


def test_right_losses_are_right(with_settings: dict[str, Path], tmp_path: Path) -> None:
    for loss, fixture in with_settings.items():
        right = train_graph(fixture, tmp_path / "right.h5")
        assert judge(fixture, right, diagnosing=False).verdict.outcome is Outcome.ROUNDING, loss
        right.unlink()


@pytest.mark.parametrize(("loss", "wrong", "said"), few_rows(WRONG, len(WRONG) // 3))
def test_a_wrong_loss_is_named(with_settings: dict[str, Path], tmp_path: Path, loss: str, wrong: Loss, said: str
                               ) -> None:
    """The number, and the gradient."""
    result = train_graph(with_settings[loss], tmp_path / "result.h5", replaced(loss=lambda self, y, t: wrong(y, t)))
    verdict = judge(with_settings[loss], result, adequacy=False).verdict
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    findings = {one.name: one for one in verdict.diagnosis.findings}
    for name in ("loss", f"grads/{'1' if loss == 'bce' else '2'}/output"):
        assert any(said in one.detail for one in findings[name].explanations), (name, findings[name])


def of_bias(bias: float) -> Callable[[], nn.Module]:
    """Probabilities that are all small: exp(bias) and thereabouts."""
    def made() -> nn.Module:
        module = probabilities()
        nn.init.constant_(module[0].bias, bias)
        return module
    return made


def sloped(value: Loss, slope: Loss) -> Loss:
    """A mean with a derivative of its own."""
    def both(y: Tensor, t: Tensor) -> Tensor:
        along = (slope(y, t).detach() * y).mean()
        return value(y, t).detach() + along - along.detach()
    return both


def of_logits(y: Tensor, t: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(y, t, pos_weight=torch.tensor(3.0))


def of_probabilities(y: Tensor, t: Tensor) -> Tensor:
    """The derivative of the binary cross entropy."""
    return (y - t) / (y * (1 - y))


LIMIT = "(1 - the output) * the output > 0 in place of (1 - the output) * the output > 1e-12"
#: The right loss, the network and its precision, the wrong loss, how loss and gradient are named, if they are wrong.
#: A probability below exp(-100) is one of float64; one below 1e-12 is of float32, too
ONE_PLACE: list[tuple[str, Callable[[], nn.Module], str, Loss, str, str]] = [
    (BETA, network, "float32", lambda y, t: torch.where((y - t).abs() < 0.25, 2 * (y - t) ** 2, (y - t).abs()).mean(),
     "0.125 is not subtracted from the size of the difference", ""),
    ("bce", of_bias(-150.0), "float64", lambda y, t: -(t * y.log() + (1 - t) * (1 - y).log()).mean(),
     "the log of the output is not limited to -100", LIMIT),
    ("bce", of_bias(-30.0), "float32", sloped(functional.binary_cross_entropy, of_probabilities), "", LIMIT),
    ("bce", probabilities, "float32", sloped(functional.binary_cross_entropy, torch.sub),
     "", "the derivative y - t, which is that of logits"),
    (LOGITS, probabilities, "float32", functional.binary_cross_entropy, *["bce in place of bce_with_logits"] * 2),
    (LOGITS, network, "float32", sloped(of_logits, lambda y, t: of_probabilities(y.sigmoid(), t)),
     "", "the derivative is that of probabilities"),
]


@pytest.mark.parametrize(("loss", "model", "precision", "wrong", "of_loss", "of_gradient"), ONE_PLACE,
                         ids=[of_loss or of_gradient for *_, of_loss, of_gradient in ONE_PLACE])
def test_a_loss_that_is_wrong_in_one_place_is_named(
    tmp_path: Path, loss: str, model: Callable[[], nn.Module], precision: str, wrong: Loss, of_loss: str,
    of_gradient: str,
) -> None:
    """A formula that is right elsewhere, or a derivative of another loss."""
    fixture = export(tmp_path / "fixture.h5", ExportSettings(
        model=model, loss=loss, batch=3, height=10, width=12, steps=1, lr=0.01, precision=precision, threads=1)).path
    right = train_graph(fixture, tmp_path / "right.h5", dtype=precision)
    assert judge(fixture, right, adequacy=False).verdict.outcome is Outcome.ROUNDING
    result = train_graph(fixture, tmp_path / "result.h5", replaced(loss=lambda self, y, t: wrong(y, t)),
                         dtype=precision)
    verdict = judge(fixture, result, adequacy=False).verdict
    assert verdict.outcome is Outcome.BUG and verdict.diagnosis is not None
    last = "2" if model is network else "1"
    expected = {name: said for name, said in (("loss", of_loss), (f"grads/{last}/output", of_gradient)) if said}
    found = {one.name: [why.detail for why in one.explanations] for one in verdict.diagnosis.findings}
    assert found.keys() == expected.keys()
    assert all(said in found[name] for name, said in expected.items()), found


def test_every_hypothesis_of_a_loss_is_planted() -> None:
    planted = {said for *_, said in WRONG} | {said for *_, of_loss, of_gradient in ONE_PLACE
                                              for said in (of_loss, of_gradient)}
    assert {said for texts in LOSS_CASES.values() for text in texts for said, _ in wrong_losses(loss_from(text))
            } <= planted
