# SPDX-License-Identifier: MIT
"""One greyscale image from a file: .mrc, .npy, .h5, .png or .tif."""

from __future__ import annotations

import importlib
import re
import struct
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np

from reference.errors import InputError, one_line

READABLE = ".mrc, .npy, .h5, .hdf5 (or FILE.h5:/dataset), .png, .tif, .tiff"
_H5_WITH_DATASET = re.compile(r"(?P<file>.+\.(?:h5|hdf5)):(?P<dataset>/.+)", re.IGNORECASE)


def load_image(path: str | Path) -> np.ndarray:
    """Read a micrograph.

    Parameters
    ----------
    path : path of a file, or ``FILE.h5:/dataset``
        Without a dataset's name, the first two-dimensional one of an HDF5 file is read.

    Returns
    -------
    image : float32 or float64, shape (h, w), C order
        In the file's own units. float32 where that holds every value of the file's type exactly.

    Raises
    ------
    InputError
        If the file is missing or unreadable, holds no single greyscale image, or has values that are not
        finite.
    """
    file, dataset = _split(str(path))
    suffix = file.suffix.lower()
    if file.is_dir():
        raise InputError(f"image {path}: a folder, expected a file: {READABLE}")
    if not suffix:
        raise InputError(f"image {path}: a name without an ending, expected {READABLE}")
    if suffix not in _READERS:
        raise InputError(f"image {file.name}: cannot read '{suffix}'; expected {READABLE}")
    if not file.is_file():
        raise InputError(f"image {file}: no such file")
    try:
        raw = _READERS[suffix](file, dataset)
    except InputError:
        raise
    except Exception as error:  # four libraries, each with exceptions of its own
        raise InputError(f"image {file.name}: cannot be read: {one_line(error)}") from error
    return _greyscale(np.asarray(raw), file.name)


def image_file(path: str | Path | None) -> Path | None:
    """Return the file of an image, without the dataset in it; None for None."""
    return None if path is None else _split(str(path))[0]


def shown_name(path: str | Path) -> str:
    """Return the image's name for the fixture: no folders, which say nothing on another machine."""
    file, dataset = _split(str(path))
    return f"{file.name}:{dataset}" if dataset else file.name


def _split(path: str) -> tuple[Path, str | None]:
    match = _H5_WITH_DATASET.fullmatch(path)
    return (Path(match["file"]), match["dataset"]) if match else (Path(path), None)


def _greyscale(raw: np.ndarray, name: str) -> np.ndarray:
    if raw.ndim > 2 and all(extent == 1 for extent in raw.shape[:-2]):
        raw = raw.reshape(raw.shape[-2:])
    if raw.ndim != 2:
        raise InputError(
            f"image {name}: shape {raw.shape} found, expected one two-dimensional image "
            "(save one slice or frame of a stack as a file of its own)"
        )
    if raw.dtype.kind not in "fiu":
        raise InputError(f"image {name}: values of type {raw.dtype} found, expected real numbers")
    exact = np.can_cast(raw.dtype, np.float32, "safe")
    image = np.ascontiguousarray(raw, dtype=np.float32 if exact else np.float64)
    if not np.isfinite(image).all():
        raise InputError(f"image {name}: {np.count_nonzero(~np.isfinite(image))} values are not finite")
    return image


def _package(name: str, pip_name: str, file: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"image {file.name}: reading {file.suffix} needs the Python package {pip_name}, which is not "
            "installed: pip install '.[images]' in the project's folder"
        ) from error


#: Where IMOD's stamp and flags are in an MRC header, what the stamp is, and the flag of signed bytes
IMOD, STAMP, SIGNED = 152, 1146047817, 1


def _read_mrc(file: Path, _: str | None) -> np.ndarray:
    mrcfile = _package("mrcfile", "mrcfile", file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about headers that do not matter here
        with mrcfile.open(file, mode="r") as opened:
            data, header = np.array(opened.data), opened.header
    order = ">" if header.nx.dtype.byteorder == ">" else "<"
    stamp, flags = struct.unpack_from(f"{order}2i", header.tobytes(), IMOD)
    # MRC2014 has signed bytes; IMOD says which
    return data.view(np.uint8) if data.dtype == np.int8 and stamp == STAMP and not flags & SIGNED else data


def _read_npy(file: Path, _: str | None) -> np.ndarray:
    return np.load(file, allow_pickle=False)


def _read_h5(file: Path, dataset: str | None) -> np.ndarray:
    with h5py.File(file, "r") as opened:
        found = opened.visititems(_if_flat) if dataset is None else opened.get(dataset)
        if not isinstance(found, h5py.Dataset):
            wanted = "two-dimensional dataset" if dataset is None else f"dataset {dataset}"
            raise InputError(f"image {file.name}: it has no {wanted}")
        return found[()]


def _if_flat(_: str, found: Any) -> h5py.Dataset | None:
    flat = isinstance(found, h5py.Dataset) and found.ndim == 2 and found.dtype.kind in "fiu"
    return found if flat else None


def _read_picture(file: Path, _: str | None) -> np.ndarray:
    pillow = _package("PIL.Image", "pillow", file)
    with warnings.catch_warnings():
        # Camera frames of 100 million pixels are ordinary here.
        warnings.simplefilter("ignore", pillow.DecompressionBombWarning)
        with pillow.open(file) as picture:
            frames = getattr(picture, "n_frames", 1)
            if frames != 1 or len(picture.getbands()) != 1 or picture.mode == "P":
                raise InputError(
                    f"image {file.name}: {frames} frame(s) of mode {picture.mode} found, expected "
                    "one greyscale frame"
                )
            return np.array(picture)


_READERS = {
    ".mrc": _read_mrc,
    ".npy": _read_npy,
    ".h5": _read_h5,
    ".hdf5": _read_h5,
    ".png": _read_picture,
    ".tif": _read_picture,
    ".tiff": _read_picture,
}
