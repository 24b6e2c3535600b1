# SPDX-License-Identifier: MIT
"""Pairs for noise2noise (Lehtinen and others, 2018): two noisy images of the same, each the other's target."""

from __future__ import annotations

import numpy as np

from bridge.common.errors import FileError
from bridge.common.progress import Report
from bridge.data.find import Sources
from bridge.data.images import ALL, OPEN_FILES, BadFile, Images, OnBad, refused, scan
from bridge.data.pairs import ImagePairs
from bridge.data.sources.stack import Stack


class EvenOdd(ImagePairs):
    """One pair of each file, a movie: the mean of frames 0, 2, 4, ... and the mean of frames 1, 3, 5, ...

    Means, so that both have one scale where the number of frames is odd. Frames are taken as they are, aligned before.

    Parameters
    ----------
    movies : see `bridge.data.find.find`; a file of one image is bad
    on_bad, open_files, report : see `Images`

    Raises
    ------
    FileError
        With the name of a bad file.
    """

    def __init__(self, movies: Sources, *, on_bad: OnBad = "refuse", open_files: int = OPEN_FILES,
                 report: Report | None = None) -> None:
        self.on_bad = on_bad
        found = [_movie(one) for one in scan(movies, report)]
        self.images = Images.of_stacks(*refused(found, on_bad), open_files)
        self._firsts = np.cumsum([0, *(stack.count for stack in self.images.stacks)])

    def __len__(self) -> int:
        return len(self.images.stacks)

    def image(self, pair: int) -> int:
        return int(self._firsts[pair])

    def dtype(self, pair: int, half: int) -> np.dtype:
        return np.dtype(np.float64)

    def name(self, pair: int) -> str:
        return self.images.stacks[pair].name

    def read(self, pair: int, half: int, rows: slice = ALL, columns: slice = ALL,
             out: np.ndarray | None = None) -> np.ndarray:
        frames = range(self.image(pair) + half, self.image(pair) + self.images.stacks[pair].count, 2)
        total = self.images.read(frames[0], rows, columns).astype(np.float64)
        for frame in frames[1:]:
            total += self.images.read(frame, rows, columns)
        total /= len(frames)
        if out is None:
            return total
        out[...] = total
        return out


def _movie(one: Stack | BadFile) -> Stack | BadFile:
    if isinstance(one, Stack) and one.count < 2:
        return BadFile(one.name, f"{one.name}: one image found, expected a movie of two frames or more")
    return one


class Consecutive(ImagePairs):
    """Images 0 and 1 are a pair, 2 and 3 the next, ...: of each file, or where each file has one image, of the files.

    Parameters
    ----------
    images : see `bridge.data.find.find`
    on_bad : as of `Images`; where files have one image each, "skip" leaves out the partner of a bad one, too
    open_files, report : see `Images`

    Raises
    ------
    FileError
        If a file is bad, has an odd number of images (unless each has one), or a partner of another shape.
    """

    def __init__(self, images: Sources, *, on_bad: OnBad = "refuse", open_files: int = OPEN_FILES,
                 report: Report | None = None) -> None:
        self.on_bad = on_bad
        found = scan(images, report)
        if all(isinstance(one, BadFile) or one.count == 1 for one in found):
            found = _whole_pairs(found)
        self.images = Images.of_stacks(*refused(found, on_bad), open_files)
        _check_even(self.images)

    def __len__(self) -> int:
        return len(self.images) // 2

    def image(self, pair: int) -> int:
        return 2 * pair

    def dtype(self, pair: int, half: int) -> np.dtype:
        return self.images.dtype(2 * pair + half)

    def read(self, pair: int, half: int, rows: slice = ALL, columns: slice = ALL,
             out: np.ndarray | None = None) -> np.ndarray:
        return self.images.read(2 * pair + half, rows, columns, out)


def _whole_pairs(found: list[Stack | BadFile]) -> list[Stack | BadFile]:
    """The same, where a file without a good partner is bad."""
    made = []
    for number, one in enumerate(found):
        other = found[number ^ 1] if number ^ 1 < len(found) else None
        if isinstance(one, Stack) and other is None:
            one = BadFile(one.name, f"{one.name}: the last of {len(found)} files of one image each, expected pairs")
        elif isinstance(one, Stack) and isinstance(other, BadFile):
            one = BadFile(one.name, f"{one.name}: left out with its partner {other.name}")
        made.append(one)
    return made


def _check_even(images: Images) -> None:
    """By files: those of one image each are even in number here."""
    stacks = images.stacks
    if all(stack.count == 1 for stack in stacks):
        for one, other in zip(stacks[::2], stacks[1::2], strict=True):
            if one.shape != other.shape:
                raise FileError(f"{other.name}: shape {other.shape} found, its partner {one.name} has {one.shape}")
        return
    for stack in stacks:
        if stack.count % 2:
            raise FileError(f"{stack.name}: {stack.count} images found, expected an even number")
