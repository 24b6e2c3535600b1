# SPDX-License-Identifier: MIT
"""All ranks hold the same bits, or the training ends."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from bridge.train.ranks.communicator import Communicator, RankError

#: Bytes of a hash
HASH = 16


def check_same(ranks: Communicator, what: str, tensors: Mapping[str, np.ndarray], text: str = "") -> None:
    """Refuse to go on where a rank has other tensors, or another text, than rank 0.

    Parameters
    ----------
    what : begins the message
    tensors, text : compared to the bit, by a hash

    Raises
    ------
    RankError
        On all ranks. Names the first that differs, and the first tensor in which it does.

    Examples
    --------
    >>> from bridge.train.ranks.communicator import Alone
    >>> check_same(Alone(), "step 3", {"w": np.ones(2)})
    """
    if ranks.size == 1:
        return
    mine = [_hash(name.encode() + np.ascontiguousarray(one).tobytes()) for name, one in tensors.items()]
    whole = _hash(b"".join(mine) + text.encode())
    found = ranks.gather(np.frombuffer(whole, np.uint8))
    differing = np.flatnonzero((found != found[0]).any(axis=1))
    if differing.size == 0:
        return
    ranks.settle()
    rank = int(differing[0])
    raise RankError(f"{what}: rank {rank} differs from rank 0, expected the same {_first(ranks, rank, mine, tensors)} "
                    "to the bit on all ranks")


def _first(ranks: Communicator, rank: int, mine: list[bytes], tensors: Mapping[str, np.ndarray]) -> str:
    """What differs."""
    numbers = ranks.gather(np.array([len(mine)], np.uint64).view(np.uint8))
    if (numbers != numbers[0]).any():
        return "network"
    hashes = ranks.gather(np.frombuffer(b"".join(mine), np.uint8)).reshape(ranks.size, len(mine), HASH)
    other = np.flatnonzero((hashes[rank] != hashes[0]).any(axis=1))
    return list(tensors)[int(other[0])] if other.size else "data, settings and step"


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=HASH).digest()
