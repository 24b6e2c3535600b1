# SPDX-License-Identifier: MIT
"""Bias gradients whose sums went elsewhere, or lack single images: too few numbers to solve for anything."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.evidence.view import Seen, View
from bridge.judge.diagnosis.evidence.words import indices, listed
from bridge.judge.diagnosis.predictions.elementwise import BiasGradient

#: Channels from which on a rule is told from chance, and how probable chance may be
ENOUGH, CHANCE = 4, 1e-3


def folded(view: View, case: Case) -> Iterator[Seen]:
    """Yield bias gradients in which several channels were added into one, and what was left is 0."""
    right = case.right
    if not isinstance(right, BiasGradient) or view.right.size < ENOUGH or view.at.size < ENOUGH:
        return
    n, channel = view.right.size, np.arange(view.right.size)
    for size in range(1, n):
        for target, said in ((channel % size, f"k holds the sum of the channels k, k + {size}, ..."),
                             (channel // size, f"k holds the sum of the channels {size}*k to {size}*k + {size - 1}")):
            used = int(target.max()) + 1
            if used == n or np.unique(target).size != used or (size == 1 and used > 1):
                continue
            predicted = np.bincount(target, view.right, n)
            rest = indices(channel[used:], n, "channel")
            yield Seen(f"each channel {said}, and {rest} {'are' if n - used > 1 else 'is'} 0",
                       "the index of the channel that is written: the offset of a group or of a block is missing",
                       view.rest(predicted[view.at]), 1)


def without_images(view: View, case: Case) -> Iterator[Seen]:
    """Yield bias gradients of which each wrong channel lacks, or has twice, the sum of one image, each of its own."""
    right = case.right
    if not isinstance(right, BiasGradient) or right.images is not None or right.dz.value.shape[0] < 2:
        return
    channels = np.flatnonzero(view.wrong)
    sums = right.dz.value.sum(tuple(range(2, right.dz.value.ndim)))[:, channels]
    error, near = (view.found - view.right)[channels], 2 * view.bound[channels]
    for times, sign in (("lacks", -1), ("has twice", 1)):
        agrees = np.abs(error - sign * sums) <= near
        size = np.abs(sums).max(0)
        # As if what was found lay anywhere between the sums
        chance = math.exp(float(np.log(np.minimum(len(sums) * near / np.maximum(size, 1e-300), 1.0)).sum()))
        if not (agrees.sum(0) == 1).all() or not chance <= CHANCE:
            continue
        image = agrees.argmax(0)
        if channels.size == view.right.size and np.unique(image).size == 1:
            # An image that counts otherwise in all channels is said as such
            continue
        pairs = [f"channel {k} {times} image {i}" for k, i in zip(channels, image, strict=True)]
        predicted = view.right.copy()
        predicted[channels] += sign * sums[image, np.arange(channels.size)]
        yield Seen(f"it is the sum in which {listed(pairs)}",
                   "additions of several images into one number at the same time: a race, without atomics",
                   view.rest(predicted[view.at]), 2)
