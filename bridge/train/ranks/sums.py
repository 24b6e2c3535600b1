# SPDX-License-Identifier: MIT
"""Sums over ranks whose bits are the same on all of them, and do not depend on who carries the messages.

A library's allreduce may add in any order, and need not give all ranks the same bits. Here each rank adds up one
segment of the tensors, in the order of ranks, in float64, and the segments are gathered: two messages, together as many
bytes as those of the best allreduce, 2 (size - 1) / size of the tensors for each rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bridge.train.ranks.communicator import Communicator

Tensors = Mapping[str, np.ndarray]
#: Elements that are added up while they are in a core's cache
BLOCK = 1 << 14


@dataclass(frozen=True)
class RankParts:
    """What each rank brings to a sum, of which all ranks know everything but the numbers.

    Attributes
    ----------
    counts : for each rank, how many sets of tensors it brings
    weights : for each rank, by what those are multiplied
    divisor : by what the sum is divided

    Examples
    --------
    >>> RankParts((1, 1), (2.0, 1.0), 3.0)  # the means of two images and of one, for the mean of three
    RankParts(counts=(1, 1), weights=(2.0, 1.0), divisor=3.0)
    """

    counts: tuple[int, ...]
    weights: tuple[float, ...]
    divisor: float


def add_up(ranks: Communicator, mine: Sequence[Tensors], parts: RankParts, said: np.ndarray
           ) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Add up tensors over all ranks: ``sum(weight * tensor) / divisor``, rounded once from float64.

    Parameters
    ----------
    mine : sets of tensors of one element type, ``parts.counts[rank]`` of them, all of the same names and shapes
    parts : of all ranks
    said : float64, shape (n,), the same n on all ranks
        What else this rank tells the others.

    Returns
    -------
    sums : the tensors, the same bits on all ranks
    said : float64, shape (size, n): what each rank tells

    Examples
    --------
    >>> from bridge.train.ranks.communicator import Alone
    >>> sums, said = add_up(Alone(), [{"w": np.ones(2)}], RankParts((1,), (2.0,), 4.0), np.array([7.0]))
    >>> sums["w"].tolist(), said.tolist()
    ([0.5, 0.5], [[7.0]])
    """
    dtype = next(iter(mine[0].values())).dtype
    elements = sum(one.size for one in mine[0].values())
    segment = -(-elements // ranks.size)
    received = ranks.exchange(_packed(mine, (ranks.size, max(parts.counts), segment), dtype).view(np.uint8))
    message = np.empty(segment * dtype.itemsize + said.nbytes, np.uint8)
    split = segment * dtype.itemsize
    _total(received.reshape(-1).view(dtype).reshape(ranks.size, -1, segment), parts, message[:split].view(dtype))
    message[split:] = said.view(np.uint8)
    gathered = ranks.gather(message)
    whole = np.ascontiguousarray(gathered[:, :split]).reshape(-1).view(dtype)[:elements]
    return _named(whole, mine[0]), np.ascontiguousarray(gathered[:, split:]).view(np.float64)


def _packed(mine: Sequence[Tensors], shape: tuple[int, int, int], dtype: np.dtype[Any]) -> np.ndarray:
    """The segments for each rank, one row each, of all sets."""
    ranks, _, segment = shape
    packed, elements = np.zeros(shape, dtype), sum(one.size for one in mine[0].values())
    # A single set lies there as it is
    single = shape[1] == 1
    flat = packed.reshape(-1) if single else np.zeros(ranks * segment, dtype)
    for k, tensors in enumerate(mine):
        np.concatenate([one.reshape(-1) for one in tensors.values()], out=flat[:elements])
        if not single:
            packed[:, k] = flat.reshape(ranks, segment)
    return packed.reshape(ranks, -1)


def _total(received: np.ndarray, parts: RankParts, out: np.ndarray) -> None:
    """The weighted sum of the segments (rank, set, element), one after the other in float64, divided and rounded."""
    for begin in range(0, out.size, BLOCK):
        block = slice(begin, min(begin + BLOCK, out.size))
        total = np.zeros(block.stop - begin)
        with np.errstate(over="ignore", invalid="ignore"):
            for rank, (count, weight) in enumerate(zip(parts.counts, parts.weights, strict=True)):
                for k in range(count):
                    total += np.multiply(received[rank, k, block], weight, dtype=np.float64)
            total /= parts.divisor
            out[block] = total


def _named(flat: np.ndarray, like: Tensors) -> dict[str, np.ndarray]:
    named, begin = dict[str, np.ndarray](), 0
    for name, one in like.items():
        named[name] = flat[begin:begin + one.size].reshape(one.shape)
        begin += one.size
    return named


def gather_numbers(ranks: Communicator, mine: np.ndarray) -> np.ndarray:
    """Return the float64 numbers of all ranks, shape (size, n)."""
    return ranks.gather(mine.view(np.uint8)).reshape(-1).view(np.float64).reshape(ranks.size, -1)
