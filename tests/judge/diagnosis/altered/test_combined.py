# SPDX-License-Identifier: MIT
"""Mistakes that change two calls of a formula, and statistics that are not the batch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bridge.judge.diagnosis.altered.calls import Argument, Call, Instead, Source
from bridge.judge.diagnosis.altered.combined import pairs
from bridge.judge.diagnosis.altered.formulas import formulas_of
from bridge.judge.diagnosis.altered.mixed_up import added_behind, exchanged
from bridge.judge.diagnosis.altered.numbers import Target
from bridge.judge.diagnosis.predictions.formulas import Criterion, Formula
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.diagnosis.wrong_operations.resizing import upsample
from bridge.judge.diagnosis.wrong_operations.spline import spline
from bridge.operations.losses import CrossEntropy
from bridge.operations.normalization import BatchNorm2d, GroupNorm, LayerNorm
from bridge.operations.products import ConvTranspose2d
from bridge.operations.resizing import UpsampleNearest2d
from bridge.operations.softmax import Softmax
from bridge.operations.spline import Spline
from tests.helpers.judged.single_operations import BIAS, DY, LAYERS, WEIGHT, X, explained, formula

Array = np.ndarray
OF_CHANNELS = {"weight": WEIGHT, "bias": BIAS}
KEPT = {"running_mean": np.linspace(-1, 1, 4), "running_var": np.linspace(1, 3, 4)}
NORM = BatchNorm2d("it", 4, eps=1e-3, track_running_stats=True)
MEAN, VARIANCE = X.mean((0, 2, 3), dtype=float), X.var((0, 2, 3), ddof=1, dtype=float)
#: After the batch
CHANGED = {"running_mean": 0.9 * KEPT["running_mean"] + 0.1 * MEAN,
           "running_var": 0.9 * KEPT["running_var"] + 0.1 * VARIANCE}


def normalised(kept: dict[str, Array]) -> tuple[Array, Array]:
    """X less a mean, over a deviation; and that."""
    mean, variance = (kept[name].reshape(-1, 1, 1) for name in ("running_mean", "running_var"))
    deviation = np.sqrt(variance + 1e-3)
    return (X - mean) / deviation, deviation


def first(right: Formula, found: Array) -> str:
    """What is said of a tensor first."""
    return explained(right, found)[0].detail


def test_two_mistakes_in_one_formula() -> None:
    """The annotated Transformer's layer norm: ``(x - mean) / (std + eps)``, std with n - 1."""
    right = formula(LayerNorm("it", (5,), eps=1e-3), X, LAYERS)
    normal = (X - X.mean(-1, keepdims=True)) / (X.std(-1, ddof=1, keepdims=True) + 1e-3)
    assert first(right, normal * LAYERS["weight"] + LAYERS["bias"]) == (
        "the sum of the distance from the mean**2 is divided by 5 - 1 = 4 in place of 5; and eps is added to the root "
        "of the variance, not before it is taken")


def test_pairs_are_of_what_comes_nearer() -> None:
    right = formula(LayerNorm("it", (5,)), X, LAYERS)
    (of_right,) = formulas_of(right, None)
    value = right.values().reshape(-1)
    every = np.arange(value.size)
    calls = of_right.calls()
    twice = [("factor", f"call {call.at}", {call.at: lambda method, *given: method(*given) * 2.0}) for call in calls]
    noise = Target(every, value + np.random.default_rng(0).normal(size=value.size), value, 0 * value + 1e-6, 2.0**-24)
    assert list(pairs(of_right, twice, noise, False)) == []
    assert list(pairs(of_right, twice, replace(noise, found=2 * value).of(every[:15]), False)) == []
    near = replace(noise, found=2 * value)
    nearer = {said.partition(";")[0] for _, said, _ in pairs(of_right, twice, near, False)}
    # The last call gives all of it; the mean and what is made of it alone do not
    assert f"call {calls[-1].at}" in nearer and not {f"call {call.at}" for call in calls[:3]} & nearer


@pytest.mark.deep
@pytest.mark.parametrize("node", [GroupNorm("it", 2, 4), LayerNorm("it", (5,))], ids=["group", "layer"])
def test_a_weight_that_is_multiplied_after_the_means(node: GroupNorm | LayerNorm) -> None:
    """The gradient of a batch normalisation, whose weight is the same for all that is averaged."""
    weights = OF_CHANNELS if isinstance(node, GroupNorm) else LAYERS
    rows = (3, 2, -1) if isinstance(node, GroupNorm) else (3, 4, 6, 5)
    x, dy = X.reshape(rows).astype(float), DY.reshape(rows).astype(float)
    deviation = np.sqrt(x.var(-1, keepdims=True) + node.eps)
    normal = (x - x.mean(-1, keepdims=True)) / deviation
    dx = (dy - dy.mean(-1, keepdims=True) - normal * (dy * normal).mean(-1, keepdims=True)) / deviation
    wide = weights["weight"].reshape((-1, 1, 1) if isinstance(node, GroupNorm) else (-1,))
    assert first(formula(node, X, weights, DY, 0), dx.reshape(X.shape) * wide) == (
        "the result is multiplied by the weight, not dy before")


def test_a_setting_that_is_added_elsewhere() -> None:
    right = formula(NORM, X, OF_CHANNELS | KEPT, state="running_var")
    said = {one.detail for one in explained(right, 0.9 * KEPT["running_var"] + 0.1 * (VARIANCE + 1e-3))}
    assert any("eps is added to" in one and "**2" in one for one in said)


@pytest.mark.parametrize(("kept", "words"), [(KEPT, "the running statistics"),
                                             (CHANGED, "the running statistics that it has just changed")])
def test_a_batch_that_is_normalised_by_what_is_kept(kept: dict[str, Array], words: str) -> None:
    normal, deviation = normalised(kept)
    wide, shift = (OF_CHANNELS[name].reshape(-1, 1, 1) for name in ("weight", "bias"))
    said = f"normalised by {words}, not by those of the batch"
    parameters = OF_CHANNELS | KEPT
    assert first(formula(NORM, X, parameters), normal * wide + shift) == said
    assert first(formula(NORM, X, parameters, DY, "weight"), (DY * normal).sum((0, 2, 3))) == said
    axes = (0, 2, 3)
    with_means = DY - DY.mean(axes, keepdims=True) - normal * (DY * normal).mean(axes, keepdims=True)
    of_input = formula(NORM, X, parameters, DY, 0)
    assert first(of_input, with_means * wide / deviation) == said
    assert first(of_input, DY * wide / deviation) == f"{said}, which are constant"


@pytest.mark.parametrize("groups", [1, 2])
def test_a_kernel_whose_channels_are_exchanged_in_memory(groups: int) -> None:
    node = ConvTranspose2d("it", 4, 6, (3, 3), groups=groups, bias=False)
    weight = np.random.default_rng(1).normal(size=(4, 6 // groups, 3, 3)).astype(np.float32)
    read = weight.reshape(groups, 6 // groups, 4 // groups, 3, 3).swapaxes(1, 2).reshape(weight.shape)
    right = formula(node, X, {"weight": weight})
    of_each = " of each group" if groups > 1 else ""
    said = f"the weight with the input and output channels{of_each} exchanged in memory"
    (one,) = [one for one in explained(right, right.with_operand("weight", lambda w: read).values())
              if one.detail == said]
    assert [kind.key for kind in one.kinds] == ["in_out_swapped"]


@pytest.mark.parametrize("images", [1, 2])
def test_statistics_of_parts_of_the_batch(images: int) -> None:
    """Of micro-batches, whose gradients are added."""
    x, dy = (np.concatenate([one, one[:1] * 0.5 - 1.0]).astype(np.float32) for one in (X, DY))
    right = formula(BatchNorm2d("it", 4), x, OF_CHANNELS)
    parts = [formula(right.node, part, OF_CHANNELS).values() for part in np.split(x, len(x) // images)]
    said = "each image by itself" if images == 1 else "each 2 images by themselves, a part of the batch"
    assert first(right, np.concatenate(parts)) == said
    weight = [formula(right.node, part, OF_CHANNELS, sent, "weight").values()
              for part, sent in zip(*(np.split(one, len(x) // images) for one in (x, dy)), strict=True)]
    assert first(formula(right.node, x, OF_CHANNELS, dy, "weight"), np.sum(weight, 0)) == said


def test_numbers_that_are_exchanged_and_terms_that_come_behind_a_product() -> None:
    """``v + momentum * g`` of Nesterov, and label smoothing that the weights of the classes leave out."""
    calls = [Call(0, "__mul__", (of("v before"), number("momentum")), "m", (3,)),
             Call(1, "__add__", (of("m"), of("g")), "v", (3,), follows=frozenset({0})),
             Call(2, "__mul__", (of("v"), number("momentum")), "mv", (3,), follows=frozenset({1})),
             Call(3, "__add__", (of("g"), of("mv")), "d", (3,), follows=frozenset({2})),
             Call(4, "__mul__", (of("d"), of("w")), "dw", (3,), follows=frozenset({3}))]
    assert ("g and v are exchanged in d", {2: Instead(0, Source(1, 1)), 3: Instead(0, Source(2, 0))}) in list(
        exchanged(calls))
    assert [said for said, _ in added_behind(calls)] == [
        "g is added behind mv, not before", "mv is added behind dw, not before"]


def of(label: str) -> Argument:
    """A tensor of three numbers."""
    return Argument(label, (3,))


def number(label: str) -> Argument:
    """A setting."""
    return Argument(label, (), 0.5)


def test_a_softmax_in_float16() -> None:
    right = formula(Softmax("it"), X)
    stored = X.astype(np.float16)
    power = np.exp(stored - stored.max(1, keepdims=True))
    found = (power / power.sum(1, keepdims=True, dtype=np.float32).astype(np.float16)).astype(np.float32)
    assert "all of it is computed in float16" in {one.detail for one in explained(right, found)}


@pytest.mark.parametrize(("rounded", "said"), [(lambda place: np.floor(place + 0.5), "halves up"),
                                               (np.rint, "halves to"), (np.ceil, "rounded up")])
def test_pixels_that_are_copied_from_a_rounded_place(rounded: Callable[[Array], Array], said: str) -> None:
    right = formula(UpsampleNearest2d("it", (2, 3)), X)
    rows, columns = (np.minimum(rounded(np.arange(n * scale) / scale), n - 1).astype(int)
                     for n, scale in ((6, 2), (5, 3)))
    found = X[:, :, rows][..., columns]
    assert any(said in one for _, one, _ in upsample(right.node))
    made = [right.replaced(node=node).values() for _, words, node in upsample(right.node) if said in words]
    assert any(np.array_equal(one, found) for one in made)


def test_knots_that_are_counted_from_the_fence_posts() -> None:
    node = Spline("it", 5, 2, grid=4, low=-1.0, high=1.0)
    said = "knots (high - low)/(grid - 1) apart, not (high - low)/grid"
    (apart,) = [one for _, words, one in spline(node) if words == said]
    assert isinstance(apart, Spline) and (apart.low, apart.step, apart.grid) == (-1.0, pytest.approx(2 / 3), 4)


def test_the_weights_of_classes_have_a_name() -> None:
    y, target = Predicted(X.astype(float)), np.eye(4)[np.arange(90).reshape(3, 6, 5) % 4].transpose(0, 3, 1, 2)
    right = Criterion(X.shape, CrossEntropy(weight=(1.0, 2.0, 3.0, 4.0), class_indices=True), y, target, True)
    (of_right,) = formulas_of(right, None)
    assert any(call.second.label == "the weights of the classes" for call in of_right.calls() if len(call.operands) > 1)


def test_means_over_too_much_are_named() -> None:
    """The backward pass of a layer norm by the means of all rows, in the place of each row's own."""
    rows, sent = (one.reshape(-1, 5) for one in (X, DY))
    right = formula(LayerNorm("it", (5,), eps=1e-3), rows, LAYERS, sent, 0)
    deviation = np.sqrt(rows.var(-1, keepdims=True) + 1e-3)
    normal, dy = (rows - rows.mean(-1, keepdims=True)) / deviation, sent * LAYERS["weight"]
    said = first(right, (dy - dy.mean() - normal * (dy * normal).mean()) / deviation)
    assert said == ("the sum of dy times the normalised input is averaged over the rows, too and the sum of dy times "
                    "the weight is averaged over the rows, too")
