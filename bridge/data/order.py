# SPDX-License-Identifier: MIT
"""In which order an epoch visits the images: blocks of neighbours in random order, so that a disk reads on.

Samples are numbered through all epochs; sample ``k`` is of epoch ``k // samples``. An epoch's order is a permutation of
(image, number of its crop), so each image occurs `crops` times, whatever the random numbers are.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from bridge.data.random_words import ORDER, below, words

#: A batch may lie in two
EPOCHS_KEPT = 2


class Order:
    """The order of samples, a function of the seed.

    Parameters
    ----------
    images : how many there are
    crops : of each image in an epoch
    block : neighbouring images that are visited together, in random order; 1 shuffles without regard to a disk
    seed : 0 to 2**64 - 1
    """

    def __init__(self, images: int, crops: int, block: int, seed: int) -> None:
        self.samples = images * crops
        self._epoch = lru_cache(EPOCHS_KEPT)(lambda epoch: epoch_order(images, crops, block, seed, epoch))

    def images(self, samples: Iterable[int]) -> np.ndarray:
        """Return the images of samples, int64."""
        return np.array([self._epoch(k // self.samples)[k % self.samples] for k in samples], np.int64)


def epoch_order(images: int, crops: int, block: int, seed: int, epoch: int) -> np.ndarray:
    """Return the images of an epoch in order.

    Blocks begin at another image in each epoch, so that not the same images meet each time. Blocks are sorted by random
    words, and (image, crop) in each of them by others: every order of blocks, and within a block, is equally likely.

    Returns
    -------
    order : int64, shape (images * crops,)

    Examples
    --------
    >>> epoch_order(images=6, crops=2, block=3, seed=1, epoch=0).tolist()
    [3, 5, 4, 5, 4, 3, 0, 0, 1, 1, 2, 2]
    """
    image = np.repeat(np.arange(images), crops)
    most = -(-images // block) + 1
    drawn = words(seed, epoch, ORDER, 1 + most + len(image))
    block_of = (image + below(drawn[0], block)) // block
    # Sorting is stable: words that are equal, once in 2**64, make no difference between machines
    return image[np.lexsort((drawn[1 + most:], block_of, drawn[1:1 + most][block_of]))]
