# SPDX-License-Identifier: MIT
"""What ranks tell each other: sums in a fixed order, the same bits everywhere, and who says what when all end."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bridge.common.errors import ArgumentError, BridgeError
from bridge.train.ranks.communicator import Alone, Communicator, RankError, together
from bridge.train.ranks.launcher import found, join
from bridge.train.ranks.sameness import check_same
from bridge.train.ranks.sums import BLOCK, RankParts, add_up, gather_numbers
from tests.helpers.ranks.ranks import in_threads

SIZES = pytest.mark.parametrize("size", [1, 2, 3, 4])


def tensors(rank: int, k: int, dtype: str = "float32") -> dict[str, np.ndarray]:
    """Of numbers that a sum rounds, seven of them, which no number of ranks but 1 divides."""
    rng = np.random.default_rng((rank, k))
    return {"w": rng.standard_normal((2, 3)).astype(dtype), "b": rng.standard_normal(1).astype(dtype)}


@SIZES
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_mean_of_unequal_parts(size: int, dtype: str) -> None:
    """To the last digit in float32, the same bits on all ranks; what ranks say arrives as it is."""
    counts = tuple(range(1, size + 1))
    parts = RankParts((1,) * size, tuple(map(float, counts)), float(sum(counts)))
    got = in_threads(size, lambda ranks: add_up(ranks, [tensors(ranks.rank, 0, dtype)], parts,
                                                np.array([float(ranks.rank), np.pi])))
    for sums, said in got:
        assert said.tolist() == [[float(r), np.pi] for r in range(size)]
        for name, one in sums.items():
            assert one.dtype == dtype and np.array_equal(one, got[0][0][name])
            exact = [sum(n * Fraction(float(tensors(r, 0, dtype)[name].ravel()[i])) for r, n in enumerate(counts))
                     / sum(counts) for i in range(one.size)]
            right = np.array([float(x) for x in exact]).astype(dtype).reshape(one.shape)
            assert np.array_equal(one, right) if dtype == "float32" else np.allclose(one, right, rtol=1e-15)


def test_images_are_added_in_their_order_whoever_brings_them() -> None:
    """Of six, in float64, whose sum depends on the order: on 1, 2, 3 and 4 ranks the same bits."""
    whole = [tensors(7, k, "float64") for k in range(6)]
    results = []
    for size in (1, 2, 3, 4):
        begins = [6 * r // size for r in range(size + 1)]
        counts = tuple(b - a for a, b in pairwise(begins))
        parts = RankParts(counts, (1.0,) * size, 6.0)
        results += in_threads(size, lambda ranks, begins=begins, parts=parts: add_up(
            ranks, whole[begins[ranks.rank]:begins[ranks.rank + 1]], parts, np.zeros(0))[0])
    assert len(results) == 10
    expected = sum(one["w"] for one in whole[1:]) + whole[0]["w"]
    assert not np.array_equal(results[0]["w"], expected / 6), "the order does not show here"
    for one in results:
        assert np.array_equal(one["w"], results[0]["w"]) and np.array_equal(one["b"], results[0]["b"])


def test_large_tensors_are_added_in_blocks() -> None:
    """Several blocks and a part of one in each segment, of two sets and of one."""
    size = 5 * BLOCK + 7
    for counts in ((1, 1), (2, 1)):
        mine = [[np.random.default_rng((r, k)).standard_normal(size) for k in range(n)] for r, n in enumerate(counts)]
        parts = RankParts(counts, (3.0, 0.5), 2.0)
        got = in_threads(2, lambda ranks, mine=mine, parts=parts: add_up(
            ranks, [{"w": one} for one in mine[ranks.rank]], parts, np.zeros(0))[0]["w"])
        expected = np.zeros(size)
        for weight, some in zip(parts.weights, mine, strict=True):
            for one in some:
                expected += weight * one
        assert all(np.array_equal(one, expected / 2) for one in got)


def test_what_is_not_finite_or_overflows_arrives_everywhere() -> None:
    values = (np.float32(3e38), np.float32(np.nan), np.float32(3e38))
    got = in_threads(3, lambda ranks: add_up(ranks, [{"w": np.array([values[ranks.rank], 3e38], np.float32)}],
                                             RankParts((1, 1, 1), (1.0, 1.0, 1.0), 1.0), np.zeros(1))[0]["w"])
    for one in got:
        assert np.isnan(one[0]) and one[1] == np.inf


@SIZES
def test_numbers_are_gathered_and_sent(size: int) -> None:
    got = in_threads(size, lambda ranks: gather_numbers(ranks, np.array([float(ranks.rank), 0.5])))
    for one in got:
        assert one.tolist() == [[float(r), 0.5] for r in range(size)]

    def exchanged(ranks: Communicator) -> Any:
        return ranks.exchange(np.array([[ranks.rank, r] for r in range(size)], np.uint8)).tolist()

    assert in_threads(size, exchanged) == [[[r, mine] for r in range(size)] for mine in range(size)]


def test_ranks_that_differ_are_named() -> None:
    """The rank and the first tensor; on all ranks, of which rank 0 tells it."""
    def checked(change: Callable[[dict[str, np.ndarray]], Any], text: str = "") -> Callable[[Communicator], Any]:
        def check(ranks: Communicator) -> Any:
            mine = {"a": np.ones(3), "b": np.zeros(2, np.float32)}
            if ranks.rank == 2:
                change(mine)
            try:
                check_same(ranks, "step 5", mine, text if ranks.rank == 1 else "")
            except RankError as error:
                return str(error), ranks.settled, ranks.silent
            return None

        return check

    assert in_threads(3, checked(lambda mine: None)) == [None] * 3
    cases: list[tuple[Callable[[dict[str, np.ndarray]], Any], str, str]] = [
        (lambda mine: mine["b"].__setitem__(1, np.float32(1e-40)), "", "2 differs from rank 0, expected the same b"),
        (lambda mine: mine["a"].__setitem__(0, -1.0), "", "2 differs from rank 0, expected the same a"),
        (lambda mine: mine.pop("a"), "", "2 differs from rank 0, expected the same network"),
        (lambda mine: None, "x", "1 differs from rank 0, expected the same data, settings and step")]
    for change, text, said in cases:
        found = in_threads(3, checked(change, text))
        assert all(one[0].startswith(f"step 5: rank {said}") for one in found), found
        assert [one[1:] for one in found] == [(True, False), (True, True), (True, True)]


def test_the_first_that_fails_tells_why() -> None:
    def prepared(ranks: Communicator) -> Any:
        def work() -> int:
            if ranks.rank in failing:
                raise ArgumentError(f"rank {ranks.rank} has no data")
            return ranks.rank

        try:
            return together(ranks, work)
        except BridgeError as error:
            return type(error), ranks.silent

    failing: tuple[int, ...] = ()
    assert in_threads(3, prepared) == [0, 1, 2]
    failing = (1, 2)
    assert in_threads(3, prepared) == [(RankError, True), (ArgumentError, False), (ArgumentError, True)]


def test_the_launcher_is_known_by_its_variables() -> None:
    torchrun = {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    assert found({}) == ("none", 1) and found({"WORLD_SIZE": "3"}) == ("none", 1)
    assert found({"PMI_SIZE": "2"}) == found({"OMPI_COMM_WORLD_SIZE": "2"}) == ("mpi", 2)
    assert found(torchrun) == ("torch", 3)
    with pytest.raises(ArgumentError, match="both there, expected --ranks mpi or --ranks torch"):
        found(torchrun | {"PMI_SIZE": "2"})
    with pytest.raises(ArgumentError, match="'gloo', expected one of none, mpi, torch"):
        join("gloo")


def test_a_single_rank_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has started it; several need one, and what installs it is said."""
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    assert isinstance(join(), Alone)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(BridgeError, match=r"mpi4py is not installed, and an MPI launcher .*: pip install 'mpi4py>=4'"):
        join()
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE")
    with pytest.raises(BridgeError, match="PyTorch is not installed, and torchrun has started"):
        join("torch")
