# SPDX-License-Identifier: MIT
"""Where an error lives, and what a place betrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bridge.judge.diagnosis.error_location import locate
from bridge.judge.diagnosis.predictions.operations import Predicted

Array = np.ndarray

SHAPE = (3, 4, 20, 24)
RIGHT = 1 + np.random.default_rng(0).random(SHAPE)
TRUTH = Predicted(RIGHT, np.full(SHAPE, 1e-6))


def wrong(*part: object, by: float = 0.01) -> Array:
    """The tensor with a part that is `by` times too large, more or less."""
    found = RIGHT.copy()
    found[part] *= 1 + by * np.random.default_rng(1).uniform(0.5, 1, found[part].shape)
    return found


ALL = slice(None)


def bordered() -> Array:
    found = wrong()
    found[..., 1:-1, 1:-1] = RIGHT[..., 1:-1, 1:-1]
    return found


PLACES: list[tuple[str, Array, str, str]] = [
    ("the border", bordered(), "the border only", ""),
    ("two of its sides", wrong(ALL, ALL, ALL, [0, 23]), "the border only (left and right)", ""),
    ("an image", wrong(1), "image 1 of 3", ""),
    ("many columns", wrong(ALL, ALL, ALL, [0, 1, 3, 4, 7, 9, 23]), "7 of the columns 0 to 23", ""),
    ("channels", wrong(ALL, [1, 3]), "channels 1, 3 of 4", ""),
    (
        "a tile",
        wrong(0, 2, slice(4, 12), slice(8, 16)),
        "rows 4 to 11 of 20, columns 8 to 15 of 24",
        "a rectangle of pixels",
    ),
    ("a row", wrong(ALL, ALL, 19), "row 19 of 20", "a rectangle of pixels"),
    ("one element", wrong(2, 3, 19, 22), "one element of 5760, (2, 3, 19, 22)", "one element, "),
    ("everything", wrong(), "spread over the whole tensor", ""),
]


@pytest.mark.parametrize(("found", "said", "betrayed"), [p[1:] for p in PLACES], ids=[p[0] for p in PLACES])
def test_places(found: Array, said: str, betrayed: str) -> None:
    place = locate(found, TRUTH)
    assert said in place.said
    assert place.wrong == np.count_nonzero(found != RIGHT)
    assert (place.explanation is not None) == bool(betrayed)
    if betrayed:
        assert place.explanation.detail.startswith(betrayed)
        assert [one.key for one in place.explanation.kinds] == ["corrupted"]


@pytest.mark.parametrize(
    ("part", "key", "detail"),
    [
        (slice(0, 100), "overwritten", "the first 100 elements in memory"),
        (slice(-100, None), "overwritten", "the last 100 elements in memory"),
        (slice(1000, 1333), "corrupted", "a run of 333 elements in memory"),
    ],
)
def test_a_run_of_memory(part: slice, key: str, detail: str) -> None:
    found = RIGHT.copy()
    found.reshape(-1)[part] = 7.0
    place = locate(found, TRUTH)
    assert "a contiguous run of memory from" in place.said
    assert ([one.key for one in place.explanation.kinds], place.explanation.detail) == ([key], detail)


def test_a_run_of_which_some_are_right_by_chance() -> None:
    found = RIGHT.copy().reshape(-1)
    found[1000:1100] = 7.0
    found[1040:1050] = RIGHT.reshape(-1)[1040:1050]
    assert "a run of 90 elements" in locate(found.reshape(SHAPE), TRUTH).explanation.detail


def test_single_elements() -> None:
    found = RIGHT.copy()
    found.flat[[5, 777, 3000]] *= 1.01
    assert locate(found, TRUTH).explanation.detail == "3 single elements"


@pytest.mark.parametrize("bit", [3, 18, 22, 25, 29, 31])
def test_a_bit_is_found(bit: int) -> None:
    right = RIGHT.astype(np.float32)
    found = right.copy()
    found.view(np.uint32).reshape(-1)[4321] ^= np.uint32(1 << bit)
    place = locate(found.astype(np.float64), Predicted(right.astype(np.float64), np.full(SHAPE, 1e-9)))
    assert place.explanation.detail == f"one element, of which bit {bit} is turned over"
    # Two bits are not one
    found.view(np.uint32).reshape(-1)[4321] ^= np.uint32(1 << 20)
    detail = locate(
        found.astype(np.float64), Predicted(right.astype(np.float64), np.full(SHAPE, 1e-9))
    ).explanation.detail
    assert "bit" not in detail


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_is_a_part_that_was_not_written(bad: float) -> None:
    found = RIGHT.copy()
    found[1, 2, 5:9] = bad
    place = locate(found, TRUTH)
    assert place.wrong == 4 * 24
    assert place.explanation.kinds[0].key == "uninitialised"
    assert place.explanation.detail == "96 of 5760 elements are NaN or infinite"
    found = RIGHT.copy()
    found[1, 2, 5, 9] = bad
    assert locate(found, TRUTH).explanation.detail == f"one element is {bad:g}"


def test_zeros_and_old_contents_were_not_written() -> None:
    before = np.random.default_rng(5).random(SHAPE)
    for old, said in ((np.zeros(SHAPE), "exactly 0"), (before, "the numbers of the step before")):
        found = RIGHT.copy()
        found[:, :, 15:, 20:] = old[:, :, 15:, 20:]
        place = locate(found, TRUTH, before)
        assert place.explanation.kinds[0].key == "uninitialised" and said in place.explanation.detail
    # A quarter and more may be any fault
    found = np.where(np.arange(20)[:, None] < 10, RIGHT, 0.0)
    assert locate(found, TRUTH).explanation is None


def test_rounding_that_is_a_little_large_betrays_nothing() -> None:
    """A tail beyond E is no memory error, however few elements it has."""
    for size in (1.02, 1.3, 2.5):
        found = RIGHT + 1e-6 * np.random.default_rng(3).uniform(-1, 1, SHAPE) ** 51 * size
        place = locate(found, TRUTH)
        assert 0 < place.wrong < 0.05 * RIGHT.size and place.explanation is None
        one = RIGHT.copy()
        one[0, 0, 0, 0] += size * 1e-6
        assert locate(one, TRUTH).explanation is None


def test_filters_biases_and_numbers() -> None:
    """Their first axis is not one of images, and a bias of one element has no place."""
    right = np.ones((5, 4, 3, 3))
    found = right.copy()
    found[2] = 3
    assert locate(found, Predicted(right, np.full(right.shape, 1e-6))).said.startswith(
        "36 of 180 elements: output channel 2 of 5"
    )
    assert locate(np.array([3.0]), Predicted(np.ones(1), np.full(1, 1e-6))).said == "the number itself"
    assert locate(np.array([1.0]), Predicted(np.ones(1))).wrong == 0
    place = locate(np.array([1.0, 1, 1, 9, 1]), Predicted(np.ones(5), np.full(5, 1e-6)))
    assert place.explanation.kinds[0].key == "corrupted"


@pytest.mark.parametrize("edit", [lambda x: x * np.nan, np.zeros_like, lambda x: x * 1e300, lambda x: -x])
def test_nothing_raises(edit: Callable[[Array], Array]) -> None:
    for shape in ((1,), (5,), (1, 1, 1, 1), (2, 3, 1, 1), (1, 1, 3, 9)):
        right = np.ones(shape)
        with np.errstate(all="ignore"):
            assert locate(edit(right), Predicted(right)).wrong == right.size
