# SPDX-License-Identifier: MIT
"""The affine map by which a network's inputs are normalised, as in its training, and which its outputs are mapped back
by: input and target were normalised by the same one.
"""

from __future__ import annotations

import numpy as np

from bridge.common.errors import ArgumentError, DivergenceError
from bridge.data.batches import normalize
from bridge.data.images import ALL, Images
from bridge.data.normalization import Normalization, Scale
from bridge.data.pairs import ImagePairs

EXPECTED = "none, image, or MEAN,STD with a positive standard deviation"


class _Alone(ImagePairs):
    """Each image as the input of a pair, of which `Scale` takes mean and standard deviation: the same rows as in
    training.
    """

    def __init__(self, images: Images) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def image(self, pair: int) -> int:
        return pair

    def read(self, pair: int, half: int, rows: slice = ALL, columns: slice = ALL,
             out: np.ndarray | None = None) -> np.ndarray:
        return self.images.read(pair, rows, columns, out)


def scale_of(images: Images, wanted: Normalization) -> Scale:
    """Return what gives mean and standard deviation of each image, ``scale_of(images, "image").of(7)``."""
    return Scale(_Alone(images), wanted)


def normalized(window: np.ndarray, mean: float, std: float, dtype: np.dtype) -> np.ndarray:
    """Return a window (channels, rows, columns) of a file as a network takes it, as `bridge.data.Batches` does.

    Parameters
    ----------
    window : float32 or float64
        May be changed.
    mean, std : what is subtracted, and what it is divided by then
    dtype : of the network

    Raises
    ------
    ArgumentError
        If a number is too large for it then.

    Examples
    --------
    >>> normalized(np.array([[[1.0, 3.0]]]), 2, 0.5, np.dtype(np.float32))
    array([[[-2.,  2.]]], dtype=float32)
    """
    found = window.astype(np.promote_types(window.dtype, dtype), copy=False)
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            normalize(found, mean, std)
            return found.astype(dtype, copy=False)
    except FloatingPointError:
        raise ArgumentError(f"values too large for {dtype.name} after normalisation by mean {mean:g} and standard "
                            f"deviation {std:g}") from None


def restored(part: np.ndarray, mean: float, std: float) -> np.ndarray:
    """Return outputs in the units of the file.

    Raises
    ------
    DivergenceError
        If a number is too large then.

    Examples
    --------
    >>> restored(np.array([-2.0, 2.0]), 2, 0.5)
    array([1., 3.])
    """
    if (mean, std) == (0, 1):
        return part
    try:
        with np.errstate(over="raise", invalid="raise"):
            found: np.ndarray = part * part.dtype.type(std)
            found += part.dtype.type(mean)
            return found
    except FloatingPointError:
        raise DivergenceError(f"outputs too large for {part.dtype.name} times the standard deviation {std:g}") from None


def of_text(text: str) -> Normalization:
    """Return what the option ``--normalization`` says.

    Raises
    ------
    ArgumentError
        If it is no normalisation.

    Examples
    --------
    >>> of_text("none"), of_text("image"), of_text("100,2.5")
    (None, 'image', (100.0, 2.5))
    """
    if text == "none":
        return None
    if text == "image":
        return "image"
    try:
        mean, std = map(float, text.split(","))
    except ValueError:
        raise ArgumentError(f"--normalization {text}: expected {EXPECTED}") from None
    if not (np.isfinite([mean, std]).all() and std > 0):
        raise ArgumentError(f"--normalization {text}: expected {EXPECTED}")
    return mean, std
