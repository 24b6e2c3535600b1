# SPDX-License-Identifier: MIT
"""Batches for training, each a pure function of (seed, step)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import numpy as np

from bridge.common.errors import ArgumentError, FileError
from bridge.data.arguments import check_flag, check_range
from bridge.data.bad_file import ValuesError
from bridge.data.memory import check_memory
from bridge.data.normalization import Normalization, Scale
from bridge.data.order import Order
from bridge.data.orientation import copy_oriented, orientations
from bridge.data.pairs import INPUT, TARGET, ImagePairs
from bridge.data.prefetch import read_ahead
from bridge.data.random_words import SAMPLES, below, words
from bridge.data.sources.buffers import empty
from bridge.data.split import Subset

#: Random words of a sample: row, column, orientation, whether halves are swapped
WORDS = 4
#: Elements that are normalised while they are in a core's cache
BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Batch:
    """What a step is trained on, and what was taken for it.

    Attributes
    ----------
    step : int
    input, target : float32, shape (n, c, h, w), C order
    images : int64, shape (n,): numbers of the pairs in the data
    corners : int64, shape (n, 2): first row and column of each crop, in the image
    orientations : int64, shape (n,): 0 to 7, see `bridge.data.orientation`
    swapped : bool, shape (n,): whether the input is the pair's second half
    mean, std : float64, shape (n,)
        What was subtracted from both halves, and what they were divided by then, in the file's units.
    left_out : tuple of str
        Why pairs were not taken, whose place the next good ones have; only with ``on_bad="skip"``.
    """

    step: int
    input: np.ndarray
    target: np.ndarray
    images: np.ndarray
    corners: np.ndarray
    orientations: np.ndarray
    swapped: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    left_out: tuple[str, ...] = ()


class Batches:
    """Batches of crops from pairs of images.

    Where the data's `on_bad` is "skip", images that are smaller than a crop are left out, and a pair whose crop has a
    value that is not finite gives its place to the next pair that has none.

    Batch number `step` depends on the arguments and on `step` alone: not on what was read before, on threads, or on the
    number of ranks. How images are ordered stands in `bridge.data.order`, how numbers are drawn in
    `bridge.data.random_words`.

    Parameters
    ----------
    data : pairs, see `bridge.data.pairs`
    batch : samples of a step, of all ranks together
    crop : height and width, in pixels
    seed : 0 to 2**64 - 1
    flips : mirror crops left-right and up-down at random, input and target alike
    rotations : turn them by quarters at random; only of square crops
    normalization : the same for both halves of a pair
        None; "image": by mean and standard deviation of rows of the pair's first half; "set": by those of a sample of
        the whole set, read at once; or the two numbers.
    crops : of each image in an epoch
    block : neighbouring images that are visited together, see `bridge.data.order`
    swap : exchange input and target at random, of noise2noise

    Attributes
    ----------
    samples : int
        Of an epoch: images times crops. Batches take them without gaps, also across the end of an epoch.
    left_out : tuple of str
        Why files are not used: those that the scan has left out, and those with images that are too small.
    scale : (float, float) or None
        Mean and standard deviation of all pairs; None with "image". Given as `normalization`, they are the same again.

    Raises
    ------
    ArgumentError
        If an argument is out of range, a crop is larger than an image (which is named), or turned and not square.
    FileError
        With "set", if an image of the sample cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> from bridge.data.noise2noise import Consecutive
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(os.path.join(folder, "stack.npy"), np.arange(96, dtype=np.uint8).reshape(6, 4, 4))
    ...     batches = Batches(Consecutive(folder), batch=2, crop=(3, 3), seed=1)
    ...     batch = batches.at(step=5)
    ...     halves = [batches.at(5, rank, 2).input for rank in range(2)]
    >>> batch.input.shape, batch.input.dtype, bool((np.concatenate(halves) == batch.input).all())
    ((2, 1, 3, 3), dtype('float32'), True)
    """

    def __init__(self, data: ImagePairs, batch: int, crop: tuple[int, int], seed: int = 0, *, flips: bool = True,
                 rotations: bool = True, normalization: Normalization = None, crops: int = 1, block: int = 16,
                 swap: bool = False) -> None:
        for name, value, least in (("batch", batch, 1), ("crops", crops, 1), ("block", block, 1), ("seed", seed, 0)):
            check_range(name, value, least)
        for name, flag in (("flips", flips), ("rotations", rotations), ("swap", swap)):
            check_flag(name, flag)
        self.batch, self.crop, self.seed = batch, (int(crop[0]), int(crop[1])), seed
        self.left_out = tuple(one.reason for images in data.sources() for one in images.bad)
        self.data = data = self._large_enough(data)
        if rotations and crop[0] != crop[1]:
            raise ArgumentError(f"rotations: True with crops of {crop[0]} x {crop[1]}, expected square ones or "
                                "rotations=False")
        if swap and not data.symmetric:
            raise ArgumentError("swap: True, but targets are no inputs, expected the data of noise2noise or swap=False")
        self.swap, self._orientations = swap, orientations(flips, rotations)
        self._order = Order(len(data), crops, block, seed)
        self._scale = Scale(data, normalization)
        self.samples, self.scale = self._order.samples, self._scale.fixed

    def at(self, step: int, rank: int = 0, ranks: int = 1) -> Batch:
        """Return the batch of a step, or a rank's part of it. May be called by several threads.

        Parameters
        ----------
        step : 0 to 2**64 - 1
        rank, ranks : which part, of how many
            Samples ``batch * rank // ranks`` up to ``batch * (rank + 1) // ranks``: one more on some ranks where the
            batch cannot be divided.

        Raises
        ------
        ArgumentError
            If a number is out of range, or there are more ranks than samples.
        FileError
            If a file cannot be read, or a value is not finite; with its name.
        """
        check_range("step", step, 0)
        if not 0 <= rank < ranks <= self.batch:
            raise ArgumentError(f"rank: {rank} of {ranks}, expected 0 <= rank < ranks <= batch, which is {self.batch}")
        mine = range(self.batch * rank // ranks, self.batch * (rank + 1) // ranks)
        self._check_memory(ranks, 1)
        images = self._order.images(step * self.batch + k for k in mine)
        drawn = words(self.seed, step, SAMPLES, WORDS * self.batch).reshape(-1, WORDS)[mine.start:mine.stop]
        n, shape = len(mine), (len(mine), self.data.shape(0)[0], *self.crop)
        batch = Batch(step, empty(shape, np.float32), empty(shape, np.float32), images,
                      np.empty((n, 2), np.int64), np.empty(n, np.int64), np.empty(n, np.bool_), np.empty(n),
                      np.empty(n))
        left_out = list[str]()
        for k in range(n):
            for _ in range(len(self.data)):
                try:
                    self._choose(batch, k, drawn[k])
                    for half in (INPUT, TARGET):
                        self._fill(batch, k, half)
                    break
                except ValuesError as error:
                    if self.data.on_bad == "refuse":
                        raise
                    left_out.append(str(error))
                    images[k] = (images[k] + 1) % len(self.data)
            else:
                raise FileError(f"no pair is left whose values are finite: {left_out[-1]}")
        return replace(batch, left_out=tuple(left_out)) if left_out else batch

    def stream(self, first_step: int = 0, stop: int | None = None, *, depth: int = 2, threads: int = 2, rank: int = 0,
               ranks: int = 1) -> Generator[Batch, None, None]:
        """Yield the batches of steps in order, read ahead by threads.

        At most `depth` batches are in memory beside the one that was yielded last. The threads end after the last step,
        with an error (raised in the place of its step), with ``close()`` of what is returned, or when nobody refers to
        that any more.

        Parameters
        ----------
        first_step, stop : as of range; None goes on for ever
        depth, threads : 1 or more; each thread makes a whole batch
        rank, ranks : as of `at`
        """
        check_range("first_step", first_step, 0)
        self._check_memory(ranks, depth + 1)
        steps = count(first_step) if stop is None else range(first_step, stop)
        return read_ahead(partial(self.at, rank=rank, ranks=ranks), steps, depth, threads)

    def _check_memory(self, ranks: int, batches: int) -> None:
        """That a rank's part of so many batches fits, before it is filled."""
        channels, pixels = self.data.shape(0)[0], self.crop[0] * self.crop[1]
        # Both halves, and the random words of all ranks
        size = 8 * channels * pixels * -(-self.batch // ranks) + 8 * WORDS * self.batch
        check_memory(f"batch: {self.batch} with crops of {self.crop[0]} x {self.crop[1]}", batches * size)

    def _large_enough(self, data: ImagePairs) -> ImagePairs:
        """The pairs of images that crops fit into.

        Raises
        ------
        ArgumentError
            If the crop is none, or an image is smaller and not to be skipped; if none is left.
        """
        if min(self.crop) < 1:
            raise ArgumentError(f"crop: {self.crop}, expected (height, width) of 1 or more")
        small = {stack.name: f"images of {stack.name} are {stack.height} x {stack.width}"
                 for stack in data.images.stacks if self.crop[0] > stack.height or self.crop[1] > stack.width}
        if not small:
            return data
        fit = np.array([pair for pair in range(len(data)) if all(
            size >= least for size, least in zip(data.shape(pair)[1:], self.crop, strict=True))], np.int64)
        # Of a subset of pairs, files that it does not use are no matter
        used = {data.images.stacks[data.images.place(data.image(pair))[0]].name for pair in range(len(data))}
        reasons = [reason for name, reason in small.items() if name in used]
        if reasons and (data.on_bad == "refuse" or not fit.size):
            raise ArgumentError(f"crop: {self.crop[0]} x {self.crop[1]}, but {reasons[0]}")
        self.left_out += tuple(f"{one}, smaller than the crop" for one in reasons)
        return Subset(data, fit) if reasons else data

    def _choose(self, batch: Batch, k: int, drawn: np.ndarray) -> None:
        """Where sample `k` is taken from, and how."""
        pair = int(batch.images[k])
        _, height, width = self.data.shape(pair)
        batch.corners[k] = (below(drawn[0], height - self.crop[0] + 1), below(drawn[1], width - self.crop[1] + 1))
        batch.orientations[k] = self._orientations[below(drawn[2], len(self._orientations))]
        batch.swapped[k] = self.swap and below(drawn[3], 2)
        batch.mean[k], batch.std[k] = self._scale.of(pair)

    def _fill(self, batch: Batch, k: int, half: int) -> None:
        """One half of sample `k`."""
        pair, orientation = int(batch.images[k]), int(batch.orientations[k])
        slot = (batch.input, batch.target)[half ^ bool(batch.swapped[k])][k]
        row, column = map(int, batch.corners[k])
        direct = orientation == 0 and self.data.dtype(pair, half) == slot.dtype
        crop = self.data.read(pair, half, slice(row, row + self.crop[0]), slice(column, column + self.crop[1]),
                              slot if direct else None)
        try:
            with np.errstate(over="raise", divide="raise", invalid="raise"):
                normalize(crop, float(batch.mean[k]), float(batch.std[k]))
                if not direct:
                    copy_oriented(crop, orientation, slot)
        except FloatingPointError:
            raise ValuesError(f"{self.data.name(pair)}: values too large for float32 after normalisation by mean "
                            f"{batch.mean[k]:g} and standard deviation {batch.std[k]:g}") from None


def normalize(crop: np.ndarray, mean: float, std: float) -> None:
    """Subtract the mean and divide by the standard deviation, in place.

    >>> crop = np.array([[[1.0, 3.0]]])
    >>> normalize(crop, 2, 0.5)
    >>> crop.tolist()
    [[[-2.0, 2.0]]]
    """
    if (mean, std) == (0, 1):
        return
    rows = max(1, BLOCK // crop.shape[2])
    for channel in crop:
        for first in range(0, len(channel), rows):
            part = channel[first:first + rows]
            part -= mean
            part /= std
