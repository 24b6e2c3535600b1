# SPDX-License-Identifier: MIT
"""What is said can be read: each thing once, axes and settings by words, names that end where they can."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge.judge.diagnosis.altered.calls import LONG, SHORT, shortened
from bridge.judge.diagnosis.altered.formulas import Evaluated
from bridge.judge.diagnosis.altered.others import along_other_axes
from bridge.judge.diagnosis.faults.output_faults import scaled
from bridge.judge.diagnosis.predictions.elementwise import LossGradient, SquaredError
from bridge.judge.diagnosis.predictions.formulas import Criterion, Formula
from bridge.judge.diagnosis.predictions.hypothesis import Hypothesis
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.operations.losses import CrossEntropy
from bridge.operations.normalization import LayerNorm
from bridge.operations.pointwise import Tanh
from bridge.operations.softmax import Attention
from bridge.operations.volumes.pooling import MaxPool3d
from tests.helpers.judged.single_operations import explained, formula

RNG = np.random.default_rng(5)


def test_two_calls_that_do_the_same_instead_are_said_once() -> None:
    """A gradient that goes to all of equal numbers, of planes and along the depth."""
    x = RNG.integers(0, 3, (2, 2, 4, 4, 6)).astype(np.float32)
    y = functional.max_pool3d(torch.from_numpy(x), 2)
    dy = RNG.normal(size=y.shape).astype(np.float32)
    largest, found = (functional.interpolate(one, scale_factor=2).numpy() for one in (y, torch.from_numpy(dy)))
    right = formula(MaxPool3d("it", (2, 2, 2), (2, 2, 2)), x, {}, dy, 0)
    first, *_ = explained(right.replaced(decided=True), np.where(x == largest, found, 0))
    assert first.detail == "the gradient goes to all that are equal to the largest"


def test_axes_without_a_name_can_be_several() -> None:
    said = [words for words, _ in along_other_axes(Tanh("it"), (2, 3, 4, 5, 6))]
    assert said[-1] == ("along exchanged axes: elements of axis 3 for elements of axis 4, and elements of axis 4 for "
                        "elements of axis 3")


def test_counts_are_said_by_what_is_counted() -> None:
    """Of sequences, too."""
    x = RNG.normal(size=(3, 4, 8)).astype(np.float32)
    scale = np.sqrt(x.var(-1, keepdims=True, dtype=float) * 8 / 11 + 1e-5)
    right = formula(LayerNorm("it", (8,), elementwise_affine=False), x)
    first, *_ = explained(right, (x - x.mean(-1, keepdims=True, dtype=float)) / scale)
    assert first.detail.endswith("is divided by samples * rows - 1 = 11 in place of 8")


def test_where_only_one_row_counts_the_mistake_that_needs_no_other_is_said() -> None:
    """A gradient of means that are constants, of which only the first row is not 0."""
    x, dy = RNG.normal(size=(2, 3, 5, 8)).astype(np.float32)
    dy[:, 1:] = 0
    right = formula(LayerNorm("it", (8,), elementwise_affine=False), x, {}, dy, 0)
    (one,) = explained(right, dy / np.sqrt(x.var(-1, keepdims=True, dtype=float) + 1e-5))
    assert one.detail.startswith("the mean of dy is not subtracted from dy and")


@pytest.mark.parametrize(("scale", "said"), [(0.0, "scale is 0.25 in place of 1/sqrt(d) = 0.5"),
                                             (0.125, "scale is 0.25 in place of 0.125")])
def test_a_scale_is_what_it_stands_for(scale: float, said: str) -> None:
    q, k, v = (RNG.normal(size=(2, 2, 5, 4)).astype(np.float32) for _ in range(3))
    node = Attention("it", inputs=("q", "k", "v"), scale=scale)
    given = tuple(Predicted(one.astype(float)) for one in (q, k, v))
    found = functional.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), scale=0.25)
    (one,) = explained(Formula(v.shape, node, given, {}), found)
    assert one.detail == said
    if not scale:
        assert "scale is 1/sqrt(d) = 0.5 in place of 0.125" in dict(
            Evaluated(Formula(v.shape, replace(node, scale=0.125), given, {})).others())


def test_a_mean_over_the_images_alone_is_said_by_its_divisor() -> None:
    y, target = RNG.normal(size=(2, 3, 4, 5, 1, 6))[:, :, :, :, 0], np.zeros((2, 3, 4, 5, 6))
    for made in (SquaredError, LossGradient):
        for of, divisor, words in ((720, 2, "divided by n = 2 in place of n c d h w = 720"),
                                   (720, 6, "divided by w = 6 in place of n c d h w = 720"),
                                   (720, 40, "divided by n d h = 40 in place of n c d h w = 720"),
                                   (1, 1 / 2, "times 2 (2)")):
            right = made((1,) if made is SquaredError else y.shape, Predicted(y), target, 1 / of)
            value = right.values().reshape(-1)
            found = scaled(Hypothesis((), "", right), value, value * (of / divisor), {"N": 720, "B": 2})
            assert found is not None and found.detail == words


def test_names_that_are_too_long_end_at_a_sign() -> None:
    loss, y = CrossEntropy(), RNG.normal(size=(3, 4))
    right = Criterion((1,), loss, Predicted(y), np.eye(4)[[0, 1, 2]])
    labels = [call.label for call in Evaluated(right).calls()]
    assert any("..." in one for one in labels)
    for one in labels:
        assert one.count("(") == one.count(")") and len(one) <= LONG + SHORT
        assert all(part == "" or part[-1] in "( " for part in one.split("...")[:-1])
    assert shortened("a" * (SHORT + 1)) == "..."
