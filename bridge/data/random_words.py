# SPDX-License-Identifier: MIT
"""Random numbers as a function of what they are for, not of what was drawn before (Philox4x64-10, counter-based).

Source: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011). numpy promises that the words
of a bit generator never change (NEP 19), on any machine, but not what its `Generator` makes of them: so only words are
taken from numpy, and all else is arithmetic of integers here.
"""

from __future__ import annotations

import numpy as np

#: What numbers are for, the highest word of the counter: samples of a step, the order of an epoch, what is held out
SAMPLES, ORDER, SPLIT = 0, 1, 2


def words(seed: int, number: int, purpose: int, count: int) -> np.ndarray:
    """Return `count` words: Philox with the key (seed, number) and the counter (0, 0, 0, purpose).

    Parameters
    ----------
    seed, number : 0 to 2**64 - 1; number is a step's or an epoch's
    purpose : `SAMPLES`, `ORDER` or `SPLIT`

    Returns
    -------
    words : uint64, shape (count,), each value equally likely

    Examples
    --------
    >>> [int(word) for word in words(0, 0, SAMPLES, 2)]
    [213000021201967259, 4455796210202625458]
    """
    key, counter = (np.array(one, np.uint64) for one in ((seed, number), (0, 0, 0, purpose)))
    return np.random.Philox(key=key, counter=counter).random_raw(count)


def below(word: int, limit: int) -> int:
    """Return the word's part of 0 .. limit - 1: each as likely as the others, but for 1 in 2**64 / limit.

    >>> below(2**63, 10), below(2**64 - 1, 10)
    (5, 9)
    """
    return (int(word) * limit) >> 64
