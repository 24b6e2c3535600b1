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

#: What is run: "deep", "not deep" or all. Of lists nothing else is made: to collect a case costs as much as some tests
wanted = ""


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
    among = {i * (len(given) - 1) // max(fast - 1, 1) for i in range(fast)} if isinstance(fast, int) else {
        i for i, value in enumerate(given) if fast(value)}
    every = [value if i in among else deep(value) for i, value in enumerate(given)]
    # Of no values at all pytest makes a case that is skipped
    return [one for i, one in enumerate(every) if not wanted or (i in among) == (wanted == "not deep")] or every


def few_rows(rows: Iterable[tuple[Any, ...]], fast: int | Callable[[Any], bool],
             name: Callable[[Any], str] | None = None) -> list[Any]:
    """As `few`, of rows with the values of several parameters.

    Parameters
    ----------
    rows, fast : as of `few`
    name : of a row in the name of its test; else pytest chooses one
    """
    def case(one: Any) -> Any:
        row = one.values[0] if hasattr(one, "marks") else one
        if name is None and not hasattr(one, "marks"):
            return row
        return pytest.param(*row, marks=getattr(one, "marks", ()), id=name and name(row))

    return [case(one) for one in few(rows, fast)]


def drawn_by(item: pytest.Item) -> str:
    """The name by which a test is drawn: its address, or of a file that is marked ``together`` the file's.

    What takes minutes to build for all tests of a file would be built for nearly every sample, if each of them were
    drawn by itself.
    """
    file, _, test = item.nodeid.partition("::")
    return file if item.get_closest_marker("together") else f"{file}::{test}"


def is_drawn(name: str, share: float, seed: str) -> bool:
    """Return whether a test is in a random sample: of each seed another one, of one seed the same in every process.

    Parameters
    ----------
    name : that of the test, see `drawn_by`
    share : of all tests, 0 to 1
    seed : any text

    Examples
    --------
    >>> is_drawn("tests/test_a.py::test_b", 1.0, "a commit"), is_drawn("tests/test_a.py::test_b", 0.0, "a commit")
    (True, False)
    """
    return zlib.crc32(f"{seed} {name}".encode()) < share * 2**32
