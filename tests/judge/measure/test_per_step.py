# SPDX-License-Identifier: MIT
"""Results of networks that are no chains: right ones are right, and wrong ones a bug in the right tensor."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bridge.common.errors import FileError
from bridge.identities.adjoint import DATA
from bridge.identities.adjoint_check import adjoint_identities
from bridge.judge.judge import judge
from bridge.judge.measure.file_pair import open_pair
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.reduced_precision import round_fraction
from bridge.judge.repeatability import Runs, compare_runs
from bridge.report.drawing.error_map import error_map, worth_a_map
from bridge.report.html_page import page
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import result_of
from tests.helpers.tiers import few
from tests.helpers.torch_graphs import Denoiser, Mlp, Resnet, Segmenter, Unet

NETWORKS: tuple[type[nn.Module], ...] = (Unet, Resnet, Mlp, Denoiser)
SETTINGS = {"height": 12, "width": 10, "batch": 3, "steps": 2, "momentum": 0.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fixtures of all networks."""
    folder = tmp_path_factory.mktemp("graphs")
    for network in NETWORKS:
        export(folder / f"{network.__name__}.h5", ExportSettings(model=network, **SETTINGS))
    return folder


def test_right_results_are_right(folder: Path) -> None:
    for network in NETWORKS:
        fixture = folder / f"{network.__name__}.h5"
        comparison, verdict = judge(fixture, result_of(fixture), adequacy=False)
        assert verdict.outcome is Outcome.ROUNDING
        assert not any(skipped.unknown for skipped in comparison.not_judged)
        assert {judged.name for judged in comparison.judged} >= {"loss", "grads/input"}


def changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        file[name][...] = change(file[name][...])

    return edit


@pytest.mark.parametrize(("network", "name", "change"), [
    (Unet, "steps/0/forward/pool", lambda a: np.roll(a, 1, 3)),
    (Unet, "steps/1/grads/leaky_relu/output", lambda a: a * np.float32(1.001)),
    (Unet, "steps/0/forward/cat", lambda a: a[:, ::-1]),
    (Resnet, "steps/1/forward/blocks.0.bn1", lambda a: a * np.float32(1 + 1 / 178)),
    (Resnet, "steps/0/grads/blocks.1.bn2/weight", lambda a: a * np.float32(1.01)),
    (Resnet, "steps/0/grads/add/output", lambda a: a / 2),
    (Mlp, "steps/0/grads/3/weight", lambda a: a[::-1]),
    (Mlp, "steps/1/grads/3/output", lambda a: a * np.float32(1.0001)),
    (Denoiser, "steps/0/grads/input", lambda a: a * 0),
])
def test_a_wrong_tensor_is_a_bug(
    folder: Path, network: type[nn.Module], name: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    fixture = folder / f"{network.__name__}.h5"
    comparison, verdict = judge(fixture, result_of(fixture, changed(name, change)), diagnosing=False)
    assert verdict.outcome is Outcome.BUG
    _, step, *rest = name.split("/")
    first = comparison.failures[0]
    assert (first.name, first.step) == ("/".join(rest), int(step)), [one.name for one in comparison.failures]
    assert first.t > 10


def test_a_wrong_update_is_a_bug(folder: Path) -> None:
    fixture = folder / "Resnet.h5"
    edit = changed("steps/2/weights/last/weight", lambda a: a * np.float32(1.01))
    comparison, verdict = judge(fixture, result_of(fixture, edit), diagnosing=False)
    assert verdict.outcome is Outcome.BUG
    assert {one.name for one in comparison.failures} == {"optimizer/last/weight", "update/last/weight"}


def test_a_step_is_judged_by_what_its_gradient_follows_from(folder: Path) -> None:
    """Behind normalisations too, and without the gradient itself: by the inputs of the operation that makes it."""
    fixture, trained = folder / "Resnet.h5", "blocks.0.conv1/weight"

    def without_gradients(file: h5py.File) -> None:
        for k in range(2):
            for one in file[f"steps/{k}/grads"].values():
                for name in ("weight", "bias") if isinstance(one, h5py.Group) else ():
                    one.pop(name, None)

    comparison, verdict = judge(fixture, result_of(fixture), adequacy=False)
    assert not comparison.not_judged
    comparison, verdict = judge(fixture, result_of(fixture, without_gradients), adequacy=False)
    assert verdict.outcome is Outcome.ROUNDING
    assert {one.name for one in comparison.judged} >= {f"update/{trained}", "update/last/bias"}

    def wrong(file: h5py.File) -> None:
        without_gradients(file)
        before, after = (file[f"steps/{k}/weights/{trained}"] for k in (0, 1))
        after[...] = before[...] + np.float32(1.001) * (after[...] - before[...])

    comparison, verdict = judge(fixture, result_of(fixture, wrong), diagnosing=False)
    assert verdict.outcome is Outcome.BUG
    assert comparison.failures[0].name == f"update/{trained}"


def test_the_operation_is_named_in_words(folder: Path) -> None:
    fixture = folder / "Unet.h5"
    for name, words in (
        ("steps/0/forward/up", "Look at the convolution up (forward)."),
        ("steps/0/grads/leaky_relu/output", "Look at the backward pass of pool (max_pool2d) and cat (concat)."),
        ("steps/0/grads/up/weight", "Look at the filter gradient of up."),
    ):
        _, verdict = judge(fixture, result_of(fixture, changed(name, lambda a: 2 * a)), adequacy=False)
        assert any(words in hint for hint in verdict.hints), verdict.hints


def test_what_only_a_wide_bound_covers_proves_nothing(folder: Path) -> None:
    """Behind many operations worst cases add up to all of a tensor; without the operation's own inputs nobody knows."""
    fixture = folder / "Resnet.h5"

    def edit(file: h5py.File) -> None:
        weights = file["steps/1/weights/first/weight"][...]
        for k in range(2):
            del file[f"steps/{k}/forward"], file[f"steps/{k}/state"], file[f"steps/{k}/grads"]
        file["steps/1/weights/first/weight"][...] = weights * np.float32(1.5)

    comparison, verdict = judge(fixture, result_of(fixture, edit), adequacy=False)
    assert verdict.outcome is Outcome.CANNOT_TELL
    hidden = {one.name for one in comparison.not_judged if one.hidden}
    assert {"update/first/weight", "update/last/weight"} <= hidden


def test_nan_is_a_failure(folder: Path) -> None:
    fixture = folder / "Mlp.h5"
    nan = changed("steps/0/forward/2", lambda a: np.full_like(a, np.nan))
    _, verdict = judge(fixture, result_of(fixture, nan), diagnosing=False)
    assert verdict.outcome is Outcome.BUG


def test_a_part_may_be_missing(folder: Path) -> None:
    fixture = folder / "Denoiser.h5"

    def edit(file: h5py.File) -> None:
        del file["steps/0/forward/relu"], file["steps/1/grads"]

    comparison, verdict = judge(fixture, result_of(fixture, edit), adequacy=False)
    assert verdict.outcome is Outcome.ROUNDING
    assert ("forward/relu", 0) in {(one.name, one.step) for one in comparison.not_judged}


def test_the_adjoint_identity_of_convolutions_in_graphs(folder: Path) -> None:
    """Where a tensor has two takers, what the others send back is taken off its gradient."""
    for network in (Unet, Resnet, Denoiser):
        fixture = folder / f"{network.__name__}.h5"
        found = adjoint_identities(fixture, result_of(fixture))
        assert all(one.outcome is Outcome.ROUNDING for one in found)
        assert all(DATA in one.sides for one in found)
    flipped = changed("steps/1/grads/up/weight", lambda a: a[..., ::-1, ::-1])
    found = adjoint_identities(folder / "Unet.h5", result_of(folder / "Unet.h5", flipped))
    (bad,) = (one for one in found if one.implicated)
    assert (bad.step, bad.implicated) == (1, "the filter gradient of up: the other two agree")


def test_two_runs_of_a_graph(folder: Path) -> None:
    """Behind a normalisation they are compared by the inputs that both have, and not by the whole step."""
    fixture = folder / "Resnet.h5"
    first = result_of(fixture).rename(folder / "first.h5")

    def against(change: Callable[[np.ndarray], np.ndarray]) -> Runs:
        second = result_of(fixture, changed("steps/0/grads/blocks.0.conv1/weight", change))
        with open_pair(fixture, first) as pair:
            return compare_runs(pair, second)

    assert not against(lambda a: a).changed
    by_rounding = against(lambda a: np.nextafter(a, np.float32(1)))
    assert by_rounding.outcome is Outcome.ROUNDING and len(by_rounding.changed) == 1
    assert against(lambda a: a * np.float32(1.001)).outcome is Outcome.BUG


def test_the_errors_of_a_graph_are_drawn(folder: Path) -> None:
    """An image by the candidate's own inputs; all rows of what is no image."""
    for network, name, shape in ((Resnet, "grads/add/output", (6, 6, 5)), (Resnet, "forward/last", (3, 5)),
                                 (Unet, "grads/up/weight", (4, 8, 3, 3)), (Mlp, "forward/3", (3, 8))):
        fixture = folder / f"{network.__name__}.h5"
        result = result_of(fixture, changed(f"steps/1/{name}", lambda a: a * np.float32(1.001)))
        judgement = judge(fixture, result, diagnosing=False)
        (worst,) = worth_a_map(judgement.comparison)
        assert (worst.name, worst.step) == (name, 1)
        with open_pair(fixture, result) as pair:
            drawn = error_map(pair, worst)
            assert "Where the errors are" in page(judgement, pair)
        assert drawn is not None and drawn.ratio.shape == shape
        assert np.nanmax(drawn.ratio) == pytest.approx(worst.t)


def deep_net() -> nn.Module:
    return nn.Sequential(*(layer for i in range(8) for layer in (nn.Conv2d(4 if i else 1, 4, 3, padding=1, bias=False),
                                                                nn.BatchNorm2d(4), nn.LeakyReLU(0.5))))


def test_bounds_that_overflow_prove_nothing(tmp_path: Path) -> None:
    """Each normalisation divides by a variance that all errors before it may have made 0."""
    fixture = export(tmp_path / "f.h5", ExportSettings(model=deep_net, **SETTINGS | {"steps": 1})).path
    verdict = judge(fixture, result_of(fixture), adequacy=False).verdict
    assert verdict.outcome is Outcome.ROUNDING and verdict.words.startswith("RIGHT"), verdict.words
    wrong = changed("steps/0/forward/22", lambda a: a * np.float32(1.001))
    assert judge(fixture, result_of(fixture, wrong), diagnosing=False).verdict.outcome is Outcome.BUG


def pooled_border() -> nn.Module:
    """Behind the padding all numbers of the border are equal, and so are their probabilities, but for rounding."""
    return nn.Sequential(nn.Conv2d(1, 4, 1, padding=1), nn.Softmax(1), nn.MaxPool2d(2))


def test_the_float64_twin_may_choose_another_of_equal_numbers(tmp_path: Path) -> None:
    """Which of them is the largest is decided by float64's rounding; another that is not equal it may not choose."""
    fixture = export(tmp_path / "f.h5", ExportSettings(model=pooled_border, **SETTINGS | {"steps": 1})).path
    result, twin = result_of(fixture), "oracle/steps/0/grads/1/output"

    def exchanged(first: tuple[int, int], second: tuple[int, int]) -> Path:
        """The gradients of two pixels of all images and channels."""
        other = Path(shutil.copy(fixture, tmp_path / "other.h5"))
        (a, b), (c, d) = first, second
        with h5py.File(other, "r+") as file:
            gradient = file[twin][()]
            assert (gradient[:, :, a, b] != gradient[:, :, c, d]).any()
            gradient[:, :, [a, c], [b, d]] = gradient[:, :, [c, a], [d, b]]
            file[twin][...] = gradient
        return other

    assert judge(exchanged((0, 2), (0, 3)), result, adequacy=False).verdict.outcome is Outcome.ROUNDING
    with pytest.raises(FileError, match="float64 twin steps/0/grads/1/output disagrees"):
        judge(exchanged((0, 2), (2, 2)), result, adequacy=False)


class Tf32(torch.autograd.Function):
    """A convolution whose operands have ten bits, in each direction."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, *geometry: Any) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.geometry = geometry
        return CONV2D(low(x), low(w), b, *geometry)

    @staticmethod
    def backward(ctx: Any, *dys: Tensor) -> Any:
        (x, w), (dy,) = ctx.saved_tensors, dys
        dx = torch.nn.grad.conv2d_input(x.shape, low(w), low(dy), *ctx.geometry)
        dw = torch.nn.grad.conv2d_weight(low(x), w.shape, low(dy), *ctx.geometry)
        return dx, dw, dy.sum((0, 2, 3)), None, None, None, None


CONV2D = torch.nn.functional.conv2d


def low(x: Tensor) -> Tensor:
    return torch.from_numpy(round_fraction(x.detach().numpy(), 10)).to(x.dtype)


@pytest.mark.deep
def test_tf32_is_a_lower_precision_and_a_bug_beside_it_is_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn.functional, "conv2d", Tf32.apply)
    export(tmp_path / "Unet.h5", ExportSettings(model=Unet, **SETTINGS))
    result = result_of(tmp_path / "Unet.h5")
    verdict = judge(folder / "Unet.h5", result, adequacy=False).verdict
    assert verdict.outcome is Outcome.PRECISION, verdict.words
    assert "forward/down is exactly what TF32 operands give" in verdict.words
    with h5py.File(result, "r+") as file:
        cat = file["steps/0/grads/leaky_relu/output"]
        cat[...] = cat[...][:, ::-1]
    assert judge(folder / "Unet.h5", result, adequacy=False).verdict.outcome is Outcome.BUG


@pytest.mark.parametrize("loss", few(["l1", "cross_entropy"], "l1".__eq__))
def test_other_losses(loss: str, tmp_path: Path) -> None:
    """Of a chain, too: then it is judged as a graph."""
    for network, reduction in ((Resnet, "mean"), (Segmenter, "sum"), (chain, "mean")):
        settings = SETTINGS | {"model": network, "loss": loss, "reduction": reduction}
        fixture = export(tmp_path / f"{network.__name__}.h5", ExportSettings(**settings)).path
        assert judge(fixture, result_of(fixture), adequacy=False).verdict.outcome is Outcome.ROUNDING
        name = "steps/1/loss"
        wrong = judge(fixture, result_of(fixture, changed(name, lambda a: a * np.float32(1.001))), adequacy=False)
        assert wrong.verdict.outcome is Outcome.BUG and wrong.comparison.failures[0].name == "loss"
        assert wrong.verdict.diagnosis is not None and wrong.verdict.diagnosis.findings[0].name == "loss"
        last = "2" if network is chain else "last" if network is Resnet else "cat"
        twice = changed(f"steps/0/grads/{last}/output", lambda a: 2 * a)
        found = judge(fixture, result_of(fixture, twice), adequacy=False).verdict
        assert found.diagnosis is not None
        assert found.diagnosis.findings[0].explanations[0].detail.startswith("times 2"), found.diagnosis.findings


def chain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 1))


def test_classes_are_all_met(tmp_path: Path) -> None:
    fixture = export(tmp_path / "f.h5", ExportSettings(model=chain, loss="cross_entropy", **SETTINGS)).path
    with h5py.File(fixture) as file:
        target = file["batches/0/target"][()]
    assert ((target == 0) | (target == 1)).all() and (target.sum(1) == 1).all()
    assert (target.mean((0, 2, 3)) > 0.1).all()


@pytest.mark.parametrize(("name", "value"), [("type", "hinge"), ("reduction", "none")])
def test_an_unknown_loss_is_one_error(folder: Path, tmp_path: Path, name: str, value: str) -> None:
    fixture = Path(shutil.copy(folder / "Mlp.h5", tmp_path / "f.h5"))
    with h5py.File(fixture, "r+") as file:
        file["model/loss"].attrs[name] = value
    with pytest.raises(FileError, match="mse, smooth_l1 with mean or sum"):
        judge(fixture, folder / "Mlp.h5", adequacy=False)
