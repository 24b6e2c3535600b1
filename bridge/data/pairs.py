# SPDX-License-Identifier: MIT
"""Pairs of input and target: what a network is trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType

import numpy as np

from bridge.common.errors import FileError
from bridge.common.progress import Report
from bridge.data.find import Sources
from bridge.data.images import ALL, OPEN_FILES, BadFile, Images, OnBad, refused, scan
from bridge.data.partners import Found, matched
from bridge.data.sources.stack import Stack

#: Halves of a pair
INPUT, TARGET = 0, 1


class ImagePairs(ABC):
    """Pairs of images of one shape, by number. A context manager that closes their files.

    Attributes
    ----------
    images : Images
        What inputs are taken from; `stacks` and `bad` there say what was found.
    on_bad : "refuse" or "skip"
        What becomes of what cannot be used, in `bridge.data.Batches`, too.
    symmetric : bool
        Whether input and target are noisy alike (noise2noise), so that they may be swapped.
    """

    images: Images
    on_bad: OnBad = "refuse"
    symmetric: bool = True

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of pairs."""

    @abstractmethod
    def image(self, pair: int) -> int:
        """Return the number in `images` of what the pair's input is, or begins with."""

    @abstractmethod
    def read(self, pair: int, half: int, rows: slice = ALL, columns: slice = ALL,
             out: np.ndarray | None = None) -> np.ndarray:
        """Read a window of the input (`half` 0) or the target (1) of a pair, as `Images.read` does."""

    def shape(self, pair: int) -> tuple[int, int, int]:
        """Return channels, height and width of a pair."""
        return self.images.shape(self.image(pair))

    def dtype(self, pair: int, half: int) -> np.dtype:
        """Return the type that `read` gives, float32 or float64."""
        return self.images.dtype(self.image(pair))

    def name(self, pair: int) -> str:
        """Return the name of a pair's input."""
        return self.images.name(self.image(pair))

    def sources(self) -> tuple[Images, ...]:
        """Return all images that pairs are made of: those of inputs, and where they are others, those of targets."""
        return (self.images,)

    def close(self) -> None:
        """Close the files."""
        self.images.close()

    def __enter__(self) -> ImagePairs:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


class Pairs(ImagePairs):
    """Inputs, each with the target of the same number: clean images, another exposure, ...

    Parameters
    ----------
    inputs, targets : see `bridge.data.find.find`
        Matched by the names of files, without what is common to those of a side: ``noisy/3.mrc`` and
        ``clean_3.mrc``. Where no two names agree, or the sides are divided differently into files, in order, image by
        image.
    on_bad : "skip" leaves out a bad file and the one that belongs to it, and a file without a partner
    open_files, report : see `Images`; of each of the two

    Attributes
    ----------
    targets : Images

    Raises
    ------
    FileError
        If a file is bad, or has no partner of the same shape. The file is named.
    """

    symmetric = False

    def __init__(self, inputs: Sources, targets: Sources, *, on_bad: OnBad = "refuse", open_files: int = OPEN_FILES,
                 report: Report | None = None) -> None:
        self.on_bad = on_bad
        sides = scan(inputs, report), scan(targets, report)
        found = matched(*sides) or (sides if on_bad == "refuse" else _in_order(*sides))
        if on_bad == "skip":
            found = _without_partners(*found)
        self.images, self.targets = (Images.of_stacks(*refused(side, on_bad), open_files) for side in found)
        _check_match(self.images, self.targets)

    def __len__(self) -> int:
        return len(self.images)

    def image(self, pair: int) -> int:
        return pair

    def dtype(self, pair: int, half: int) -> np.dtype:
        return (self.images, self.targets)[half].dtype(pair)

    def read(self, pair: int, half: int, rows: slice = ALL, columns: slice = ALL,
             out: np.ndarray | None = None) -> np.ndarray:
        return (self.images, self.targets)[half].read(pair, rows, columns, out)

    def sources(self) -> tuple[Images, ...]:
        return self.images, self.targets

    def close(self) -> None:
        self.images.close()
        self.targets.close()


def _in_order(inputs: list[Found], targets: list[Found]) -> tuple[list[Found], list[Found]]:
    """Both, whose names say nothing: where some are bad, partners are known only if there are as many on both sides."""
    bad = [one for one in (*inputs, *targets) if isinstance(one, BadFile)]
    if bad and len(inputs) != len(targets):
        raise FileError(f"{len(inputs)} files of inputs and {len(targets)} of targets, some of them bad: expected as "
                        f"many on both sides, so that partners are known; {bad[0].reason}")
    return inputs, targets


def _without_partners(inputs: list[Found], targets: list[Found]) -> tuple[list[Found], list[Found]]:
    """The same, where a file whose partner is bad is bad; without bad ones sides need not be divided alike."""
    if not any(isinstance(one, BadFile) for one in (*inputs, *targets)):
        return inputs, targets
    both = list(zip(inputs, targets, strict=False))
    return ([*(_partner(*pair) for pair in both), *inputs[len(both):]],
            [*(_partner(*pair[::-1]) for pair in both), *targets[len(both):]])


def _partner(one: Found, other: Found) -> Found:
    if isinstance(one, Stack) and isinstance(other, BadFile):
        return BadFile(one.name, f"{one.name}: left out with its partner {other.name}")
    return one


def _check_match(inputs: Images, targets: Images) -> None:
    """File by file where they are divided alike, so that the first that does not match is named."""
    if len(inputs.stacks) == len(targets.stacks):
        for stack, other in zip(inputs.stacks, targets.stacks, strict=True):
            if other.count != stack.count:
                raise FileError(f"{other.name}: {other.count} images found, its partner {stack.name} has {stack.count}")
    image, end = 0, min(len(inputs), len(targets))
    while image < end:
        (file, number), (other_file, other_number) = inputs.place(image), targets.place(image)
        stack, other = inputs.stacks[file], targets.stacks[other_file]
        if other.shape != stack.shape:
            raise FileError(f"{targets.name(image)}: shape {other.shape} found, its partner {inputs.name(image)} has "
                            f"{stack.shape}")
        image += min(stack.count - number, other.count - other_number)
    if len(targets) != len(inputs):
        alone = targets if len(targets) > end else inputs
        raise FileError(f"{alone.name(end)}: has no partner; there are {len(inputs)} inputs and {len(targets)} targets")
