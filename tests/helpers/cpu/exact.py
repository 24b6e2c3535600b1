# SPDX-License-Identifier: MIT
"""Convolutions of integers, which no order of summation rounds, against the plain loops."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.helpers.cases import Array, Case, fortran_convolution
from tests.helpers.instruction_sets import GROUPS, integers

DTYPES = ("float32", "float64")
ALL_DTYPES = pytest.mark.parametrize("dtype", DTYPES)
ALL_GROUPS = pytest.mark.parametrize("group", GROUPS)


@functools.cache
def plain_loops(case: Case) -> dict[str, Array]:
    """Exact y, dx, dw, db of integers; the plain loops do not sum biases themselves."""
    t = integers(case, "float64")
    found = fortran_convolution(case, t, "naive")
    return found | ({"db": t["dy"].sum((0, 2, 3))} if case.bias else {})


def assert_exact(case: Case, dtype: str) -> None:
    """Equal to the plain loops, and <y, dy> = <x, dx> = <w, dw>, which needs no other program."""
    t, right = integers(case, dtype), plain_loops(case)
    found = fortran_convolution(case, t)
    wrong = {name: np.argwhere(found[name] != array)[:3].tolist() for name, array in right.items()
             if not np.array_equal(found[name], array)}
    assert not wrong, case
    products = [np.vdot(t[one].astype(np.float64), found[other].astype(np.float64)) for one, other in
                (("dy", "y"), ("x", "dx"), ("w", "dw"))]
    with_bias = np.vdot(t["b"], found["db"]) if case.bias else 0.0
    assert products[0] - with_bias == products[1] == products[2], case
