# SPDX-License-Identifier: MIT
"""Work in parts on all cores: order, errors, and who takes the next part."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from bridge.common.parallel import BLOCK, alone, anything, in_order, shared


def test_results_keep_their_order() -> None:
    def slow_at_first(i: int) -> int:
        time.sleep(0.02 if i == 0 else 0)
        return i * i

    assert in_order(slow_at_first, range(50)) == [i * i for i in range(50)]


def test_parts_are_shared_and_not_divided_again() -> None:
    both, seen = threading.Barrier(2, timeout=20), set()

    def part(i: int) -> bool:
        if i < 2:
            both.wait()  # only two threads at once get past this
        seen.add(threading.get_ident())
        return shared() and in_order(lambda _: threading.get_ident(), [0, 1]) == [threading.get_ident()] * 2

    if (os.cpu_count() or 1) < 2:
        pytest.skip("skipped, because there is one core")
    assert all(in_order(part, range(8))) and len(seen) >= 2
    assert not shared()


def test_the_first_failure_in_order_is_raised_and_nothing_more_begins() -> None:
    begun = []

    def part(i: int) -> None:
        begun.append(i)
        time.sleep(0.01)
        if i >= 3:
            raise ValueError(str(i))

    with pytest.raises(ValueError, match=r"^3$"):
        in_order(part, range(1000))
    assert len(begun) < 100
    assert in_order(abs, [-1, 2]) == [1, 2] and not shared()


def test_numpy_s_error_state_comes_along() -> None:
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        in_order(lambda x: np.float64(1) / np.float64(x), [1.0, 2.0, 0.0, 3.0])
    with np.errstate(divide="ignore"):
        assert in_order(lambda x: np.float64(1) / np.float64(x), [0.0] * 64) == [np.inf] * 64


def test_alone_ends() -> None:
    assert alone(lambda _: shared())(0) and not shared()


def test_anything_is_found_wherever_it_is() -> None:
    x = np.zeros((3, 2 * BLOCK))
    assert not anything(x)
    for place in (0, BLOCK, x.size - 1):
        for what in (5e-324, -1.0, np.nan, np.inf):
            x.reshape(-1)[place] = what
            assert anything(x)
        x.reshape(-1)[place] = 0.0
