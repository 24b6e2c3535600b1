# SPDX-License-Identifier: MIT
"""The two tiers of the tests: what `make test` runs, and the rest, marked ``deep``, which `make test-deep` runs.

A whole file is deep by ``pytestmark = pytest.mark.deep``; of a list of cases some stay in the fast tier as
representatives. Whatever is marked, no case is left out: the two tiers together are every test once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def deep(*values: Any) -> Any:
    """The values of a case that is for the deep tier."""
    return pytest.param(*values, marks=pytest.mark.deep)


def few(values: Iterable[Any], fast: int | Callable[[Any], bool]) -> list[Any]:
    """Values of one parameter, of which some are for the fast tier and all others deep.

    Parameters
    ----------
    values : of a single parameter of a test
    fast : so many of them, the first, the last and what lies evenly between; or whether a value is one of them

    Examples
    --------
    >>> [one if isinstance(one, int) else one.values for one in few(range(5), 3)]
    [0, (1,), 2, (3,), 4]
    """
    given = list(values)
    if isinstance(fast, int):
        among = {i * (len(given) - 1) // max(fast - 1, 1) for i in range(fast)}
        return [value if i in among else deep(value) for i, value in enumerate(given)]
    return [value if fast(value) else deep(value) for value in given]


def few_rows(rows: Iterable[tuple[Any, ...]], fast: int | Callable[[Any], bool]) -> list[Any]:
    """As `few`, of rows with the values of several parameters."""
    return [deep(*one.values[0]) if hasattr(one, "marks") else one for one in few(rows, fast)]


def is_drawn(name: str, share: float, seed: str) -> bool:
    """Return whether a test is in a random sample: of each seed another one, of one seed the same in every process.

    Parameters
    ----------
    name : address of the test
    share : of all tests, 0 to 1
    seed : any text

    Examples
    --------
    >>> is_drawn("tests/test_a.py::test_b", 1.0, "a commit"), is_drawn("tests/test_a.py::test_b", 0.0, "a commit")
    (True, False)
    """
    return zlib.crc32(f"{seed} {name}".encode()) < share * 2**32
