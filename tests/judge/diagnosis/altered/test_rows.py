# SPDX-License-Identifier: MIT
"""Mistakes of embeddings, which choose rows of a table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bridge.operations.stored import Embedding
from tests.helpers.judged.single_operations import explained, formula

Array = np.ndarray
RNG = np.random.default_rng(0)
#: No number is 2, and one is 3 twice as often as any other
AT = RNG.permutation(np.repeat([0, 1, 3, 3, 4, 5], 4)).reshape(3, 8)
W, DY = (RNG.standard_normal(shape).astype(np.float32) for shape in ((6, 4), (3, 8, 4)))


def added(at: Array = AT, dy: Array = DY) -> Array:
    """The sums of rows that go to these."""
    found = np.zeros_like(W)
    np.add.at(found, at, dy)
    return found


@pytest.mark.parametrize(("found", "words"), [
    (W[(AT - 1).clip(0)], "the row before that is taken: numbers count from 1"),
    (W[AT - 1], "the weight of the previous row"),
    (W[(AT + 1).clip(0, 5)], "the row behind that is taken"),
    (W.T.reshape(6, 4)[AT], "the weight with its axes exchanged in memory"),
])
def test_wrong_rows_are_named(found: Array, words: str) -> None:
    right = formula(Embedding("it", 6, 4), AT, {"weight": W})
    assert explained(right, found)[0].detail == words


@pytest.mark.parametrize(("found", "words"), [
    # What w[at] += dy does in numpy
    (lambda: np.stack([DY[i == AT][-1] if i != 2 else 0 * W[0] for i in range(6)]),
     "of the gradients of one number the last is stored, and none is added"),
    (lambda: added() / np.array([4, 4, 1, 8, 4, 4])[:, None], "it is divided by how many there are of each row"),
    (lambda: added((AT - 1).clip(0)), "each goes to the row before its own"),
    (lambda: added((AT + 1).clip(0, 5)), "each goes to the row behind its own"),
    (lambda: added() * (np.arange(6) != 0)[:, None], "padding_idx is 0 in place of -1"),
])
def test_wrong_sums_are_named(found: Callable[[], Array], words: str) -> None:
    right = formula(Embedding("it", 6, 4), AT, {"weight": W}, DY, "weight")
    assert explained(right, found())[0].detail == words


def test_a_row_that_is_learned_all_the_same_is_named() -> None:
    right = formula(Embedding("it", 6, 4, 3), AT, {"weight": W}, DY, "weight")
    assert explained(right, added())[0].detail == "padding_idx is -1 in place of 3"
