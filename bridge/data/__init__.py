# SPDX-License-Identifier: MIT
"""From image files of any size to batches for training: nothing is read whole, a batch is a function of (seed, step).

``Pairs`` (or ``EvenOdd``, ``Consecutive`` for noise2noise) are made of files, ``Batches`` of pairs; see docs/data.md.
"""

from bridge.data.batches import Batch, Batches
from bridge.data.images import BadFile, Images
from bridge.data.noise2noise import Consecutive, EvenOdd
from bridge.data.pairs import ImagePairs, Pairs
from bridge.data.sources.stack import Stack
from bridge.data.split import Subset, split

__all__ = ["BadFile", "Batch", "Batches", "Consecutive", "EvenOdd", "ImagePairs", "Images", "Pairs", "Stack",
           "Subset", "split"]
