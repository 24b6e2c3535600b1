# SPDX-License-Identifier: MIT
"""What is held out is nowhere else, and the same every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bridge.common.errors import ArgumentError
from bridge.data import Batches, Consecutive, Pairs, split


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """Images whose numbers are their values."""
    path = tmp_path / "stack.npy"
    np.save(path, np.broadcast_to(np.arange(100, dtype=np.float32)[:, None, None], (100, 6, 6)).copy())
    return path


@pytest.mark.parametrize(("part", "count"), [(0.1, 5), (0.5, 25), (1e-9, 1), (0.999, 49)])
def test_each_pair_is_on_one_side(stack: Path, part: float, count: int) -> None:
    pairs = Consecutive(stack)
    rest, held_out = split(pairs, part, seed=3)
    assert len(held_out) == count and rest.symmetric
    values = [[float(side.read(k, half)[0, 0, 0]) for k in range(len(side)) for half in (0, 1)]
              for side in (rest, held_out)]
    assert all(one == sorted(one) for one in values)
    assert sorted(values[0] + values[1]) == list(range(100))
    again = split(Consecutive(stack), part, seed=3)[1]
    assert [again.name(k) for k in range(count)] == [held_out.name(k) for k in range(count)]
    if part == 0.5:
        assert [pairs.name(k) for k in range(0, 50, 2)] != [held_out.name(k) for k in range(25)]
        assert [split(pairs, part, seed=4)[1].name(k) for k in range(25)] != [held_out.name(k) for k in range(25)]


def test_batches_are_of_the_subset(stack: Path) -> None:
    pairs = Pairs(stack, stack)
    _, held_out = split(pairs, 0.03)
    found = {float(Batches(held_out, batch=1, crop=(4, 4)).at(step).input[0, 0, 0, 0]) for step in range(9)}
    assert found == {float(held_out.read(k, 0)[0, 0, 0]) for k in range(3)}
    assert held_out.shape(0) == (1, 6, 6) and held_out.dtype(0, 1) == np.float32
    held_out.close()


def test_parts_that_are_none(stack: Path, tmp_path: Path) -> None:
    for part in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ArgumentError, match=r"part: .*, expected more than 0"):
            split(Consecutive(stack), part)
    np.save(tmp_path / "two.npy", np.zeros((2, 4, 4), np.uint8))
    with pytest.raises(ArgumentError, match="1 pairs, expected 2 or more"):
        split(Consecutive(tmp_path / "two.npy"), 0.5)
