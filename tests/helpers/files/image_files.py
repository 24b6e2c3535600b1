# SPDX-License-Identifier: MIT
"""Image files of every format, written by the library of the format and not by what reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import mrcfile
import numpy as np
import tifffile

#: Types that MRC has
MRC_DTYPES = ("int8", "int16", "uint16", "float16", "float32")
DTYPES = ("uint8", "int8", "int16", "uint16", "float16", "float32", "float64")
ORDERS = "<>"
#: count, channels, height, width: all different
EXTENTS = (5, 3, 37, 41)


def numbers(shape: tuple[int, ...], dtype: str = "float32", order: str = "<", seed: int = 0) -> np.ndarray:
    """Random numbers that the type has, in a byte order."""
    rng = np.random.default_rng(seed)
    wanted = np.dtype(dtype)
    if wanted.kind == "f":
        return rng.standard_normal(shape).astype(wanted.newbyteorder(order))
    limits = np.iinfo(wanted)
    return rng.integers(limits.min, limits.max, shape, dtype=wanted, endpoint=True).astype(wanted.newbyteorder(order))


def write_mrc(path: Path, array: np.ndarray, **settings: Any) -> None:
    """An image, or a stack."""
    with mrcfile.new(path) as file:
        file.set_data(array)
        if array.ndim == 3:
            file.set_image_stack()


def write_npy(path: Path, array: np.ndarray) -> None:
    np.save(path, array)


def write_h5(path: Path, array: np.ndarray, **settings: Any) -> None:
    """In the dataset ``images``."""
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=array, **settings)


def write_tiff(path: Path, array: np.ndarray, **settings: Any) -> None:
    """A page for each image, of one channel."""
    order = ">" if array.dtype.byteorder == ">" else "<"
    tifffile.imwrite(path, array, **{"photometric": "minisblack", "byteorder": order, "metadata": None} | settings)


WRITERS: dict[str, Callable[..., None]] = {".mrc": write_mrc, ".npy": write_npy, ".h5": write_h5, ".tif": write_tiff}


def write(path: Path, array: np.ndarray) -> Path:
    """By the ending of the name."""
    WRITERS[path.suffix](path, array)
    return path
