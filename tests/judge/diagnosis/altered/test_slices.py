# SPDX-License-Identifier: MIT
"""Parts of tensors that are others, and what is made of all of them in the place of one; numpy makes it."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.judge.diagnosis.altered.others import MOST_PARTS, other_parts
from bridge.judge.diagnosis.faults.graph_faults import sum_faults
from bridge.judge.diagnosis.predictions.formulas import Joined
from bridge.judge.oracle.error_model import Arithmetic
from bridge.operations.normalization import BatchNorm2d
from bridge.operations.operation import Operation
from bridge.operations.rearrangement import Reshape, Slice, Transpose
from tests.helpers.judged.single_operations import X, explained, formula

Array = np.ndarray
RNG = np.random.default_rng(3)
ROWS, PART, ONE = (RNG.normal(size=shape).astype(np.float32) for shape in ((3, 5, 24), (3, 5, 8), (3, 1, 24)))
KEYS, FIRST = Slice("it", 2, 8, 16), Slice("it", 1, 0, 1)


def back(part: Array, at: tuple[slice, ...]) -> Array:
    """A gradient where a part came from."""
    whole = np.zeros_like(ROWS)
    whole[at] = part
    return whole


@pytest.mark.parametrize(("node", "found", "said"), [
    (KEYS, ROWS[..., :8], "features 0 to 7 of 24 in place of features 8 to 15 of 24"),
    (KEYS, ROWS[..., 16:], "features 16 to 23 of 24 in place of features 8 to 15 of 24"),
    (Slice("it", -1, -8), ROWS[..., 8:16], "features 8 to 15 of 24 in place of features 16 to 23 of 24"),
    (FIRST, ROWS[:, -1:], "the last row (4 of 5) in place of the first row (0 of 5)"),
    (FIRST, ROWS.mean(1, keepdims=True), "the mean of all rows in place of the first row (0 of 5)"),
    (FIRST, ROWS.max(1, keepdims=True), "the largest of all rows in place of the first row (0 of 5)"),
    (Slice("it", 1, 0, 5, 2), ROWS[:, [0, 1, 2]], "rows 0 to 2 of 5 in place of every 2nd row (0, 2 and 4)"),
    (Slice("it", 2, 0, 12), ROWS[..., ::2], "every 2nd feature (0, 2, 4, 6, 8, 10, ...) in place of features 0"),
    (Slice("it", 2, 0, 24, 2), ROWS[..., 1::2], "start is 1 in place of 0"),
])
def test_another_part_is_named(node: Slice, found: Array, said: str) -> None:
    assert any(said in one.detail for one in explained(formula(node, ROWS), found))


def test_a_gradient_that_comes_back_to_another_part_is_named() -> None:
    right = formula(KEYS, ROWS, {}, PART, 0)
    assert explained(right, back(PART, np.s_[..., :8]))[0].detail == (
        "features 0 to 7 of 24 in place of features 8 to 15 of 24")
    right = formula(FIRST, ROWS, {}, ONE, 0)
    assert explained(right, np.broadcast_to(ONE / 5, ROWS.shape))[0].detail == (
        "the mean of all rows in place of the first row (0 of 5)")


def test_parts_whose_gradients_are_exchanged_are_named() -> None:
    queries, other = Slice("queries", 2, 0, 8), RNG.normal(size=PART.shape).astype(np.float32)
    right = Joined(ROWS.shape, (formula(queries, ROWS, {}, PART, 0), formula(KEYS, ROWS, {}, other, 0)), ("q", "k"))
    (found,) = (one for one in sum_faults(right, lambda part: iter(())) if "exchanged" in one.detail)
    assert found.detail == "the gradients of q and k are exchanged"
    wrong = found.operation.full(Arithmetic(2.0**-24)).value
    np.testing.assert_allclose(wrong, back(other, np.s_[..., :8]) + back(PART, np.s_[..., 8:16]))


@pytest.mark.parametrize("node", [Reshape("it", (5, 3, 8)), Slice("it", 2, 8, 16), Transpose("it", 1, 2)])
def test_an_axis_that_is_taken_in_other_blocks_is_named(node: Operation) -> None:
    """Queries, keys and values of each head lie together."""
    by_heads = ROWS.reshape(3, 5, 2, 3, 4).swapaxes(2, 3).reshape(ROWS.shape)
    wrong = {"reshape": by_heads.reshape(3, 5, 3, 8), "slice": by_heads[..., 8:16],
             "transpose": by_heads.swapaxes(1, 2)}[node.kind]
    said = "the 24 features are taken as 2 by 3 by 4, not as 3 by 2 by 4"
    assert [one.detail for one in explained(formula(node, ROWS), wrong)] == [said]
    dy = RNG.normal(size=wrong.shape).astype(np.float32)
    right = formula(node, ROWS, {}, dy, 0)
    back = right._values.reshape(3, 5, 3, 2, 4).swapaxes(2, 3).reshape(ROWS.shape)
    assert [one.detail for one in explained(right, back)] == [said]


def test_of_very_many_parts_some_are_tried() -> None:
    said = [words for _, words, _ in other_parts(Slice("it", 1, 500, 501), (2, 4000, 3))]
    assert len(said) < 2 * MOST_PARTS + 8 and len(set(said)) == len(said)
    assert {"the first row (0 of 4000) in place of row 500 of 4000",
            "the last row (3999 of 4000) in place of row 500 of 4000",
            "row 501 of 4000 in place of row 500 of 4000"} <= set(said)


def test_axes_without_a_name_have_words() -> None:
    (said,) = (words for _, words, _ in other_parts(Slice("it", 3, 0, 1), (2, 2, 2, 2, 2, 2, 2)) if "last" in words)
    assert said == "the last element of axis 3 (1 of 2) in place of the first element of axis 3 (0 of 2)"
    assert not list(other_parts(BatchNorm2d("it", 4), X.shape))


@pytest.mark.parametrize("node", [KEYS, FIRST, Reshape("it", (5, 3, 8))])
def test_noise_in_a_part_is_not_named(node: Operation) -> None:
    right = formula(node, ROWS)
    for noise in (RNG.normal(size=right.shape), 0.01 * right._values * RNG.normal(size=right.shape)):
        assert explained(right, right._values + noise) == []
    assert explained(right, RNG.permutation(right._values.reshape(-1))) == []
