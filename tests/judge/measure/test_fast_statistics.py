# SPDX-License-Identifier: MIT
"""The compiled comparison of large tensors against the one in numpy."""

from __future__ import annotations

import ctypes
from dataclasses import astuple

import numpy as np
import pytest

from bridge.common.errors import OracleError
from bridge.common.parallel import alone
from bridge.engine.library import extension
from bridge.judge.measure import error_statistics
from bridge.judge.measure.fast_statistics import LARGE, MOST, deviations
from tests.helpers.instruction_sets import LEVELS, choose

Array = np.ndarray
#: A prime number of elements: runs and vectors end in the middle
ODD = 1_048_583


def tensors(dtype: str, n: int = ODD, seed: int = 0) -> tuple[Array, Array, Array]:
    """Candidate, value and bound, a third of all three 0, as behind a ReLU."""
    rng = np.random.default_rng(seed)
    value = rng.standard_normal(n) * (rng.uniform(size=n) > 1 / 3)
    bound = np.abs(value) * rng.uniform(1e-6, 1e-4, n)
    candidate = (value + bound * rng.uniform(-0.9, 0.9, n)).astype(dtype)
    return candidate, value, bound


def same(found: error_statistics.Statistic, expected: error_statistics.Statistic, rtol: float) -> bool:
    """Equal to the bit in all but sums, whose order is another."""
    one, other = astuple(found), astuple(expected)
    return one[:8] == other[:8] and np.allclose(one[8:], other[8:], rtol=rtol, atol=0)


def both(candidates: list[Array], value: Array, bound: Array, rtol: float = 1e-12) -> None:
    """Our library takes the tensors, and finds what numpy finds."""
    assert deviations(candidates, value, bound) is not None
    for one, other in zip(error_statistics.measure_all(candidates, value, bound), by_numpy(candidates, value, bound),
                          strict=True):
        assert same(one, other, rtol)


def by_numpy(candidates: list[Array], value: Array, bound: Array) -> list[error_statistics.Statistic]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CNN_ORACLE", "numpy")
        return error_statistics.measure_all(candidates, value, bound)


@pytest.mark.parametrize("n", [LARGE, ODD, LARGE + 65536 * 3 + 511])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("level", LEVELS)
def test_it_finds_what_numpy_finds(dtype: str, n: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(level, monkeypatch)
    both([tensors(dtype, n)[0]], *tensors(dtype, n)[1:])


def test_several_tensors_and_one_bound_for_all() -> None:
    candidate, value, bound = tensors("float32")
    others = [value, (value + 0.5 * bound).astype(np.float32)]
    both([candidate, *others], value, bound)
    both([candidate, *others], value, np.full(1, 1e-2))


def test_a_value_of_single_precision() -> None:
    """As where a ReLU copies the candidate's own numbers; numpy squares these in single precision."""
    candidate, value, bound = tensors("float32")
    single = value.astype(np.float32)
    both([(single + 0.5 * bound).astype(np.float32)], single, bound, rtol=1e-4)
    both([candidate], candidate.copy(), np.zeros(1), rtol=1e-4)


@pytest.mark.parametrize("place", [0, 65535, 65536, ODD // 2, ODD - 1])
def test_the_worst_element_is_found_wherever_it_is(place: int) -> None:
    candidate, value, bound = tensors("float64")
    value[place], bound[place] = 1.0, 0.25
    candidate[place] = 1.0 + 0.25 * 0.99
    both([candidate], value, bound)
    assert error_statistics.measure(candidate, value, bound).at == (place,)


def test_of_equal_ones_it_is_the_first() -> None:
    value, bound = np.zeros(ODD), np.ones(ODD)
    candidate = np.zeros(ODD, np.float32)
    candidate[[700_001, 700_000, ODD - 1]] = 0.5
    both([candidate], value, bound)
    assert error_statistics.measure(candidate, value, bound).at == (700_000,)


def test_all_equal_is_zero_at_the_first_place() -> None:
    value = np.zeros(ODD)
    both([value.astype(np.float32)], value, np.zeros(ODD))
    assert error_statistics.measure(value, value, np.zeros(1)).at == (0,)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("whose", ["candidate", "value", "bound"])
def test_what_is_not_finite_or_outside_is_left_to_numpy(wrong: float, whose: str) -> None:
    given = dict(zip(("candidate", "value", "bound"), tensors("float64"), strict=True))
    given[whose][ODD - 2] = wrong
    candidate, value, bound = given.values()
    if whose == "bound" and wrong == 1e300:
        # Finite, and no candidate is outside it
        return both([candidate], value, bound)
    assert deviations([candidate], value, bound) is None
    found = error_statistics.measure(candidate, value, bound)
    assert found.t == np.inf or found.t > 1
    if wrong != 1e300:
        assert found.at == (ODD - 2,)
    return None


@pytest.mark.parametrize("bound_there", [0.0, -1.0, 1e-300])
def test_a_bound_that_is_zero_negative_or_tiny_is_left_to_numpy(bound_there: float) -> None:
    candidate, value, bound = tensors("float64")
    candidate[77], value[77], bound[77] = 1.0 + 2e-16, 1.0, bound_there
    assert deviations([candidate], value, bound) is None
    assert not error_statistics.measure(candidate, value, bound).t <= 1


def test_small_tensors_shared_cores_and_other_layouts_are_left_to_numpy() -> None:
    candidate, value, bound = tensors("float32", LARGE)
    assert deviations([candidate[:-1]], value[:-1], bound[:-1]) is None
    assert alone(lambda _: deviations([candidate], value, bound))(0) is None
    assert deviations([candidate] * (MOST + 1), value, bound) is None
    square = [array.reshape(1024, 1024).T for array in (candidate, value, bound)]
    assert deviations([square[0]], *square[1:]) is None
    assert deviations([candidate.astype(">f4")], value, bound) is None
    assert deviations([candidate], value, bound.astype(np.float32)) is None


def test_the_environment_keeps_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNN_ORACLE", "numpy")
    candidate, value, bound = tensors("float32")
    assert deviations([candidate], value, bound) is None


@pytest.mark.parametrize(("figure", "factor"), [(0, 0.5), (0, 1.0 + 1e-15), (1, 0.5), (2, 0.5)])
def test_a_wrong_library_is_found_out(figure: int, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller or larger T, another place, a smaller error."""
    real = extension.call

    def wrong(name: str, *arguments: object) -> object:
        done = real(name, *arguments)
        address = arguments[-1]
        assert name == "deviations" and isinstance(address, int)
        numbers = (ctypes.c_double * 8).from_address(address)
        numbers[figure] = float(int(numbers[figure] * factor)) if figure == 1 else numbers[figure] * factor
        return done

    monkeypatch.setattr(extension, "call", wrong)
    candidate, value, bound = tensors("float32")
    with pytest.raises(OracleError, match="our own comparison is wrong"):
        deviations([candidate], value, bound)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from threadpoolctl import threadpool_limits

    candidate, value, bound = tensors("float32")
    several = deviations([candidate], value, bound)
    with threadpool_limits(1, user_api="openmp"):
        assert deviations([candidate], value, bound) == several
