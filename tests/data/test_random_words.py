# SPDX-License-Identifier: MIT
"""The random words are Philox4x64-10, as its authors publish it: written down here from their paper."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bridge.data.random_words import below, words

WORD = 2**64
MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds."""
    for _ in range(10):
        (high0, low0), (high1, low1) = (divmod(m * counter[2 * i], WORD) for i, m in enumerate(MULTIPLIERS))
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(k + w) % WORD for k, w in zip(key, WEYL, strict=True)]
    return counter


def test_published_values() -> None:
    """The first of kat_vectors in Random123."""
    assert philox([0] * 4, [0] * 2) == [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]


@given(seed=st.integers(0, WORD - 1), number=st.integers(0, WORD - 1), purpose=st.integers(0, 1),
       count=st.integers(0, 11))
def test_words_are_philox(seed: int, number: int, purpose: int, count: int) -> None:
    """Of counters from 1 on: numpy counts before it computes."""
    expected = [word for block in range(1, 4) for word in philox([block, 0, 0, purpose], [seed, number])]
    found = words(seed, number, purpose, count)
    assert found.dtype == np.uint64 and found.tolist() == expected[:count]


@given(word=st.integers(0, WORD - 1), limit=st.integers(1, 2**40))
def test_below_divides_the_words_evenly(word: int, limit: int) -> None:
    """Equal parts of all words, in order."""
    found = below(np.uint64(word), limit)
    assert isinstance(found, int) and found == word * limit // WORD and 0 <= found < limit
