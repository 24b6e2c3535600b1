# SPDX-License-Identifier: MIT
"""What is off by the last place of its own numbers is explained by nothing: another order of operations does that."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from bridge.judge.diagnosis.error_location import locate
from bridge.judge.diagnosis.evidence.memory import pitches
from bridge.judge.diagnosis.evidence.values import constants
from bridge.judge.diagnosis.evidence.view import AXES, View
from bridge.judge.diagnosis.predictions.operations import Given, Predicted
from bridge.judge.diagnosis.search import Search
from tests.helpers.judged.diagnosed import Lab, make

Array = np.ndarray
U = 2.0**-24
SHAPE = (2, 3, 5, 4)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(*make(tmp_path_factory.mktemp("last_place")))
    yield lab
    lab.close()


def drawn(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(SHAPE)


def searched(lab: Lab, right: Array, found: Array, bound: float) -> Search:
    """The search for what made `found` of known numbers, whose bound is so many u of each."""
    case = lab.case("forward/two", found)
    known = Given(right.shape, right, bound * U * np.abs(right))
    return Search(case.__class__(case.name, case.graph, known, found))


#: How right numbers are off, and whether that is more than their last place
OFF: list[tuple[Callable[[Array], Array], bool]] = [
    (lambda x: x * (1 - 1.5e-9), False),
    (lambda x: x * (1 - 2.0**-23), False),
    (lambda x: x * (1 - 1e-6), True),
    (lambda x: x * 2, True),
]


@pytest.mark.parametrize(("off", "told"), OFF)
def test_a_factor_of_the_last_place_is_none(lab: Lab, off: Callable[[Array], Array], told: bool) -> None:
    """The bound is a hundredth of a rounding, as of what is only added where it nearly cancels."""
    right = drawn(0)
    search = searched(lab, right, off(right), 0.01)
    assert search.t > 1
    found, _ = search.run(search.place)
    assert bool(found) is told, found


def test_one_large_element_makes_no_factor(lab: Lab) -> None:
    """A factor that is fitted to its rounding leaves nothing of the error, and all others inside their bounds."""
    right = drawn(1)
    right[0, 0, 0, 0] = 1e6
    found = right.copy()
    found[0, 0, 0, 0] *= 1 + 2 * U
    search = searched(lab, right, found, 1.0)
    search._one_fault()
    assert search.t > 1 and search.tried and search._accepted() == []


@pytest.mark.parametrize(("width", "otherwise", "acquitted"), [
    (30.0, 2.0, False), (0.5, 1.2, False), (1e-3, 2.0, True), (0.5, 2.0, True)])
def test_a_bound_as_wide_as_its_tensor_acquits_nothing(
        lab: Lab, width: float, otherwise: float, acquitted: bool) -> None:
    """Unless what is right by other inputs is outside of it."""
    right = drawn(4)
    search = searched(lab, right, right * (1 + width / 4), width / U)
    assert search.t <= 1 and search.follows(otherwise * right) is acquitted


def test_a_place_of_the_last_place_says_nothing() -> None:
    right = drawn(2)
    for factor, told in ((1 + 3 * U, False), (1 + 2.0**-10, True)):
        found = right.copy()
        found[1, 2, 3, 3] *= factor
        assert bool(locate(found, Predicted(right, 0.1 * U * np.abs(right))).explanation) is told


def view(right: Array, found: Array, bound: Array) -> View:
    return View(found, right, bound, AXES["nchw"])


def test_memory_without_gaps_has_none() -> None:
    """Where a row that begins where it should is wrong, and one that would be a gap, nothing is read from elsewhere."""
    right = drawn(3)
    found = right.copy()
    found[0, 0, 0, 3] *= 1 + 2 * U
    found[0, 0, 1, 1] *= 1 + 40 * U
    assert not [one for one in pitches(view(right, found, 0.1 * U * np.abs(right))) if one.exact]
    # Rows of 4 numbers that begin 8 apart, in memory of 0 between them
    found = np.pad(right, [(0, 0)] * 3 + [(0, 4)]).reshape(-1)[:right.size].reshape(SHAPE)
    assert [one for one in pitches(view(right, found, U * np.abs(right))) if one.exact]


def test_a_constant_that_is_right_but_for_its_last_place_is_none() -> None:
    right = np.full(SHAPE, 1 / 3)
    for factor, told in ((1 + 2 * U, False), (2.0, True)):
        assert bool(list(constants(view(right, right * factor, 0.1 * U * right)))) is told
