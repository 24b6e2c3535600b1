# SPDX-License-Identifier: MIT
"""Candidates of which single operands are rounded: each is named, and none excuses a bug."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch

from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from bridge.validate.self_test.operations import only, replace
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.candidates import Operations, plant, train

Tensor = torch.Tensor
Kind = type[Operations]
SUM = {"height": 14, "width": 19, "batch": 2, "steps": 2, "reduction": "sum", "lr": 2.0**-12, "oracle_steps": 1,
       "threads": 1}  # fmt: skip


def bf16(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def fp16(x: Tensor) -> Tensor:
    return x.half().float()


def bf16_truncated(x: Tensor) -> Tensor:
    """The upper half of each number, as programs without a conversion take it."""
    return (x.contiguous().view(torch.int32) & -65536).view(torch.float32)


class Weights(Operations):
    """Filters are kept in fp16 beside the float32 ones that are updated; inputs and gradients are float32."""

    def conv(self, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return super().conv(layer, x, fp16(w), b)

    def data_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return super().data_gradient(layer, dz, x, fp16(w))


def kept(base: Kind = Operations) -> Kind:
    """Activations are kept in bf16 for the backward pass, which only a filter gradient takes as numbers."""
    class Kept(base):  # type: ignore[misc, valid-type]
        def filter_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
            return super().filter_gradient(layer, dz, bf16(x), w)

    return Kept


def backward(low: Callable[[Tensor], Tensor]) -> Kind:
    """Every product of the backward pass takes dz in 16 bits, which the float32 tensors in the file are not."""
    return replace(
        data_gradient=lambda self, layer, dz, x, w: Operations.data_gradient(self, layer, low(dz), x, w),
        filter_gradient=lambda self, layer, dz, x, w: Operations.filter_gradient(self, layer, low(dz), x, w))


def both(low: Callable[[Tensor], Tensor]) -> Kind:
    """Every product of the backward pass takes both of its operands in 16 bits."""
    return replace(
        data_gradient=lambda self, layer, dz, x, w: Operations.data_gradient(self, layer, low(dz), x, low(w)),
        filter_gradient=lambda self, layer, dz, x, w: Operations.filter_gradient(self, layer, low(dz), low(x), w))


def stored(low: Callable[[Tensor], Tensor]) -> Kind:
    """Gradients of images are stored in 16 bits."""
    return replace(
        loss_gradient=lambda self, y, target: low(Operations.loss_gradient(self, y, target)),
        data_gradient=lambda self, layer, dz, x, w: low(Operations.data_gradient(self, layer, dz, x, w)))


def flipped(right: Tensor, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
    return right.flip(2, 3)


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("operands") / "fixture.h5", ExportSettings(**SUM)).path  # type: ignore[arg-type]


def is_said(place: str, words: str) -> bool:
    """Whether it is said of an operation, perhaps with others that do the same."""
    found = re.fullmatch("(.*) (take|keep)s (.*) in (.*)", place)
    assert found is not None
    of_several = rf"{found[2]} {found[3].replace('its result', 'their results')} in {found[4]}"
    return any(place in one or (found[1] in one and of_several in one) for one in words.split("; "))


@pytest.mark.parametrize(("kind", "name", "places"), [
    (Weights, "fp16", ["the convolution conv1 (forward) takes w in fp16",
                       "the data gradient of conv3 takes w in fp16"]),
    (kept(), "bf16", [f"the filter gradient of conv{i} takes x in bf16" for i in (1, 2, 3)]),
    (backward(fp16), "fp16", ["the data gradient of conv2 takes dz in fp16"]),
    (backward(bf16), "bf16", ["the filter gradient of conv2 takes dz in bf16"]),
    (both(fp16), "fp16", ["the filter gradient of conv2 takes x and dz in fp16",
                          "the data gradient of conv2 takes dz and w in fp16"]),
    (both(bf16), "bf16", ["the filter gradient of conv1 takes x and dz in bf16",
                          "the data gradient of conv3 takes dz and w in bf16"]),
    (both(bf16_truncated), "bf16 truncated", ["the filter gradient of conv1 takes x and dz in bf16 truncated"]),
    (stored(bf16), "bf16", ["the data gradient of conv2 keeps its result in bf16",
                            "the gradient of the loss with respect to the output keeps its result in bf16"]),
    (stored(fp16), "fp16", ["the data gradient of conv1 keeps its result in fp16"]),
], ids=["weights", "activations", "dz-fp16", "dz-bf16", "both-fp16", "both-bf16", "both-truncated", "stored-bf16",
        "stored-fp16"])
def test_operands_are_named(kind: Kind, name: str, places: list[str], fixture: Path, tmp_path: Path) -> None:
    comparison, verdict = judge(fixture, train(fixture, tmp_path / "r.h5", kind), diagnosing=False)
    assert verdict.outcome is Outcome.PRECISION, verdict.words
    (found,) = verdict.precisions
    assert found.name == name
    for place in places:
        assert is_said(place, verdict.words)
    assert all(one.outcome in (Outcome.ROUNDING, Outcome.PRECISION) for one in comparison.judged)


def test_what_a_relu_hands_on_need_not_be_in_the_file(fixture: Path, tmp_path: Path) -> None:
    """It follows from what the ReLU takes, to the bit."""
    path = train(fixture, tmp_path / "r.h5", kept())
    with h5py.File(path, "r+") as file:
        for k in range(SUM["steps"]):
            del file[f"steps/{k}/forward/relu1"], file[f"steps/{k}/forward/relu2"]
    verdict = judge(fixture, path, diagnosing=False).verdict
    assert verdict.outcome is Outcome.PRECISION, verdict.words
    assert is_said("the filter gradient of conv2 takes x in bf16", verdict.words)


class BesideBoth(both(bf16)):  # type: ignore[misc]
    """Both operands in bf16, and a kernel's gradient that is flipped."""

    def filter_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        found = super().filter_gradient(layer, dz, x, w)
        return found.flip(2, 3) if layer.name == "conv2" else found


class Beside(kept()):  # type: ignore[misc]
    """Activations in bf16, and a kernel's gradient that is flipped."""

    def filter_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        found = super().filter_gradient(layer, dz, x, w)
        return found.flip(2, 3) if layer.name == "conv2" else found


@pytest.mark.parametrize(("kind", "diagnosing"), [
    (Beside, False),
    (BesideBoth, False),
    (only("conv2", "data_gradient", lambda right, *_: bf16(right)), True),
    (only("conv2", "conv", lambda right, *_: bf16(right)), False),
    (only("conv3", "filter_gradient", lambda right, *_: bf16(right)), True),
    (only("conv2", "filter_gradient", flipped), False),
], ids=["flipped-beside", "flipped-beside-both", "damaged-data", "damaged-forward", "damaged-filter", "flipped"])
def test_a_bug_stays_a_bug(kind: Kind, diagnosing: bool, fixture: Path, tmp_path: Path) -> None:
    """One result that is rounded is a tensor that was damaged when it was stored, which a gradient's diagnosis says."""
    _, verdict = judge(fixture, train(fixture, tmp_path / "r.h5", kind), diagnosing=diagnosing,
                       adequacy=False)
    assert verdict.outcome is Outcome.BUG, verdict.words


def test_weights_that_were_damaged_in_the_file_stay_a_bug(fixture: Path, tmp_path: Path) -> None:
    """Those of step 1 are fp16, and everything after them was computed with the float32 ones."""
    right, path = train(fixture, tmp_path / "r.h5"), tmp_path / "damaged.h5"
    plant(right, path, {"steps/1/weights/conv3/weight": lambda w: w.astype("float16").astype("float32")})
    verdict = judge(fixture, path, diagnosing=False).verdict
    assert verdict.outcome is Outcome.BUG and not verdict.missing, verdict.words


@pytest.mark.deep
def test_gradients_that_fp16_loses_whole(tmp_path: Path) -> None:
    """Half of the gradients of a mean over many pixels are below the smallest fp16 number: both operands say it all."""
    class Products(both(fp16)):  # type: ignore[misc]
        def conv(self, layer: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            return super().conv(layer, fp16(x), fp16(w), b)

    fixture = tmp_path / "fixture.h5"
    export(fixture, ExportSettings(**{**SUM, "reduction": "mean", "height": 60, "width": 70, "lr": 2.0**-4}))
    verdict = judge(fixture, train(fixture, tmp_path / "result.h5", Products), diagnosing=False).verdict
    assert verdict.outcome is Outcome.PRECISION, verdict.words
    assert "take x and w in fp16" in verdict.words and "take x and dz in fp16" in verdict.words, verdict.words


def test_a_right_program_stays_right(fixture: Path, tmp_path: Path) -> None:
    assert judge(fixture, train(fixture, tmp_path / "r.h5"), diagnosing=False).verdict.outcome is Outcome.ROUNDING


def coded(x: Tensor) -> Tensor:
    """Whole multiples of a part of the largest number, as 8-bit codes hold them."""
    unit = x.abs().max() / 255
    return (x / unit).round() * unit


class Codes(Operations):
    """Activations are kept in 8-bit codes for the backward pass."""

    def filter_gradient(self, layer: Any, dz: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return super().filter_gradient(layer, dz, x if layer.name == "conv1" else coded(x), w)


@pytest.mark.parametrize("without_inputs", [False, True])
def test_no_precision_is_named_that_recomputation_excludes(without_inputs: bool, fixture: Path, tmp_path: Path) -> None:
    """The errors are inside the bounds of bf16. Where the inputs are missing, nothing tells."""
    result = train(fixture, tmp_path / "result.h5", Codes)
    if without_inputs:
        with h5py.File(result, "r+") as file:
            for step in file["steps"].values():
                step.pop("forward", None)
    verdict = judge(fixture, result, diagnosing=False).verdict
    assert verdict.outcome is Outcome.CANNOT_TELL, verdict.words
    assert ("consistent with" in verdict.words) is bool(verdict.precisions) is without_inputs
    advice = "turn" if without_inputs else "look at the filter gradient of conv3"
    assert advice in verdict.hints[0], verdict.hints
