# SPDX-License-Identifier: MIT
"""The header of an MRC file, kept for what is made of its images: pixel size, origin, labels, extended header."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from bridge.common.optional_packages import require
from bridge.data.sources.mrc import HEADER

#: Numbers of float32
MODE = 2
#: Numbers that are counted at a time
BLOCK = 1 << 16


class MrcHeader:
    """The header of a file with images of another mode, and perhaps another size.

    Pixels are as large as they were, where a network gives one for each; where it gives more or fewer, they are smaller
    or larger. The origin stays. dmin, dmax, dmean and rms are those of the numbers that are counted.

    Parameters
    ----------
    source : path of the file
    size : height and width of the new images
    scales : pixels of them for each of the old ones, along the height and the width

    Attributes
    ----------
    dtype : float32 in the byte order of the file
    """

    def __init__(self, source: str, size: tuple[int, int], scales: Sequence[Fraction]) -> None:
        require("mrcfile", "MRC files are read by it")
        import mrcfile

        with mrcfile.open(source, mode="r", header_only=True) as file:
            self._header = file.header.copy()
        with open(source, "rb") as raw:
            raw.seek(HEADER)
            self._extended = raw.read(int(self._header.nsymbt))
        self.dtype = np.dtype(np.float32).newbyteorder(self._header.mode.dtype.byteorder)
        self._header.mode = MODE
        for letter, pixels, scale in zip("yx", size, scales, strict=True):
            if pixels != int(self._header[f"n{letter}"]) or scale != 1:
                _resize(self._header, letter, pixels, scale)
        self._count, self._mean, self._squares = 0, 0.0, 0.0
        self._least, self._most = math.inf, -math.inf

    def count(self, part: np.ndarray) -> None:
        """Take the numbers (channels, rows, columns) of a part into the statistics."""
        rows = max(1, BLOCK // part.shape[2])
        for channel in part:
            for first in range(0, len(channel), rows):
                self._join(channel[first:first + rows].astype(np.float64))

    def _join(self, numbers: np.ndarray) -> None:
        """Those of parts are joined, so that nothing is lost of small deviations.

        Source: T. F. Chan, G. H. Golub and R. J. LeVeque, The American Statistician 37 (1983), equations 2.1.
        """
        count, mean = numbers.size, float(numbers.mean())
        squares, apart = float(np.square(numbers - mean).sum()), mean - self._mean
        total = self._count + count
        self._squares += squares + apart * apart * self._count * count / total
        self._mean += apart * count / total
        self._count = total
        self._least, self._most = min(self._least, float(numbers.min())), max(self._most, float(numbers.max()))

    @property
    def data(self) -> bytes:
        """Return the bytes of both headers, with the statistics so far."""
        if self._count:
            self._header.dmin, self._header.dmax, self._header.dmean = self._least, self._most, self._mean
            self._header.rms = math.sqrt(self._squares / self._count)
        return self._header.tobytes() + self._extended


def _resize(header: np.recarray, letter: str, pixels: int, scale: Fraction) -> None:
    """Let an axis have so many pixels, of which `scale` are as large as one was."""
    before, sampling = int(header[f"n{letter}"]), int(header[f"m{letter}"])
    header[f"n{letter}"] = pixels
    if sampling == before:
        header[f"m{letter}"] = pixels
    if sampling > 0:
        size = float(header["cella"][letter]) / sampling
        header["cella"][letter] = size / scale * int(header[f"m{letter}"])
