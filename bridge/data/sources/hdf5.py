# SPDX-License-Identifier: MIT
"""HDF5: a dataset (h, w), (n, h, w) or (n, c, h, w) of any chunking and filter, or a virtual one.

HDF5's library lets one thread work at a time (h5py's global lock): threads that read ahead do not read faster.
"""

from __future__ import annotations

import os

import h5py
import numpy as np

from bridge.data.sources.stack import Reader, Stack, check_dtype, extents

#: Names of datasets in a message
NAMED = 5


def scan(path: str, dataset: str | None) -> Stack:
    """Return what is known without reading values.

    Parameters
    ----------
    path : of the file
    dataset : its name, or None where the file has only one of a suitable shape

    Raises
    ------
    ValueError
        If there is no such dataset, its values are no real numbers, or a filter or a source that it needs is missing:
        HDF5 would give the fill value in place of a missing source.
    """
    with h5py.File(path, "r") as file:
        name = dataset or _only_dataset(file)
        found = file.get(name)
        if not isinstance(found, h5py.Dataset):
            raise ValueError(f"no dataset {name} in it, {_datasets(file)}")
        check_dtype(found.dtype)
        shape = extents(found.shape or ())
        _check_filters(found)
        if found.is_virtual:
            _check_sources(path, found)
        dtype, axes = found.dtype, len(found.shape)
    return Stack(f"{path}:{name}", *shape, dtype, lambda: Hdf5Reader(path, name, axes))


def _only_dataset(file: h5py.File) -> str:
    """The one that may hold images."""
    suitable: list[str] = []
    file.visititems(lambda name, item: suitable.append(f"/{name}") if _may_hold_images(item) else None)
    if len(suitable) != 1:
        raise ValueError(f"{len(suitable)} datasets that may hold images (of real numbers, with 2 to 4 dimensions), "
                         f"expected one, or FILE.h5:/dataset; {_datasets(file)}")
    return suitable[0]


def _may_hold_images(item: object) -> bool:
    return isinstance(item, h5py.Dataset) and 2 <= item.ndim <= 4 and item.dtype.kind in "iuf"


def _datasets(file: h5py.File) -> str:
    """What is there, with types and shapes."""
    names: list[str] = []
    file.visititems(lambda name, item: names.append(f"/{name} {item.dtype} {item.shape}")
                    if isinstance(item, h5py.Dataset) else None)
    more = f" and {len(names) - NAMED} more" * (len(names) > NAMED)
    return f"it has {', '.join(names[:NAMED])}{more}" if names else "it has no datasets"


def _check_filters(dataset: h5py.Dataset) -> None:
    created = dataset.id.get_create_plist()
    for number in range(created.get_nfilters()):
        code, _, _, name = created.get_filter(number)
        if not h5py.h5z.filter_avail(code):
            raise ValueError(f"compressed with the filter {name.decode(errors='replace') or code} (number {code}), "
                             "which this HDF5 library lacks; the package hdf5plugin has many")


def _check_sources(path: str, dataset: h5py.Dataset) -> None:
    """That what a virtual dataset shows is there."""
    for source in dataset.virtual_sources():
        # A printf-like name stands for files that come and go
        if source.file_name == "." or "%" in source.file_name:
            continue
        place = os.path.join(os.path.dirname(path), source.file_name)
        try:
            with h5py.File(place, "r") as file:
                there = source.dset_name in file
        except OSError:
            there = False
        if not there:
            raise ValueError(f"a virtual dataset whose source {place}:{source.dset_name} is missing or unreadable")


class Hdf5Reader(Reader):
    """Reads a dataset.

    Parameters
    ----------
    path, name : of the file and the dataset
    axes : its number of dimensions
    """

    def __init__(self, path: str, name: str, axes: int) -> None:
        self._file = h5py.File(path, "r")
        self._dataset, self._axes = self._file[name], axes

    def close(self) -> None:
        self._file.close()

    def read(self, image: int, rows: slice, columns: slice, out: np.ndarray) -> None:
        front: tuple[int | slice, ...] = {2: (), 3: (image,), 4: (image, slice(None))}[self._axes]
        out[...] = self._dataset[(*front, rows, columns)]
