# SPDX-License-Identifier: MIT
"""A hash of every object of an HDF5 file, kept in the file: what belongs together is told when a part of it changes.

The dataset `TABLE` has a line for each group and dataset, "HASH NAME", in the order of names. Each hash is over the
object's kind, its attributes (names, types, shapes, bytes) and, of a dataset, its type, shape and bytes. The group that
the table is in has the attribute `SEAL`, the hash of the table: neither can be lost without being missed. HDF5's own
structures have no part in it, so that a file that is copied object by object keeps its hashes.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import h5py
import numpy as np

from bridge.common.errors import FileError
from bridge.exchange.hdf5_values import HDF5_ERRORS, one_line, plain, printable, several

#: The group of a training in its checkpoints
TRAINING = "training"
#: Name of the table within its group, and of the group's attribute
TABLE, SEAL = "contents", "sha256"
#: Bytes of a hash that are kept, and of a dataset that are read at a time
KEPT, PIECE = 16, 1 << 26


def seal(file: h5py.File, group: str) -> None:
    """Write, or replace, the table of all that is in a file.

    Parameters
    ----------
    file : open for writing
    group : of the file, which the table is kept in

    Examples
    --------
    >>> with h5py.File("example", "w", driver="core", backing_store=False) as file:
    ...     file["a/b"] = np.zeros(3)
    ...     seal(file, "a")
    ...     before = changed(file, "a")
    ...     file["a/b"][1] = 1
    ...     before, changed(file, "a")
    ([], ['/a/b has changed'])
    """
    name = f"{group}/{TABLE}"
    if name in file:
        del file[name]
    table = "".join(f"{digest} {one}\n" for one, digest in _hashes(file, f"/{name}").items()).encode()
    file[name] = np.frombuffer(table, np.uint8)
    file[group].attrs[SEAL] = _digest(table)


def changed(file: h5py.File, group: str) -> list[str]:
    """Return what is no longer as it was when the file was sealed, each in words; nothing of a file without a table.

    Raises
    ------
    FileError
        If the table itself is damaged, or a part of the file cannot be read.
    """
    name = f"/{group}/{TABLE}"
    try:
        if group not in file or (name not in file and SEAL not in file[group].attrs):
            return []
        if name not in file or SEAL not in file[group].attrs:
            raise FileError(f"{name if name not in file else f'attribute {SEAL} of /{group}'} is missing")
        table = file[name][()].tobytes()
        if _digest(table) != plain(file[group].attrs, SEAL):
            raise FileError(f"{name}, or attribute {SEAL} of /{group}, has changed")
        expected = {one: digest for digest, _, one in (line.partition(" ") for line in table.decode().splitlines())}
        found = _hashes(file, name)
    except HDF5_ERRORS as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"its objects cannot be read ({one_line(error)})") from None
    return ([f"{one} is missing" for one in expected if one not in found]
            + [f"{one} has changed" for one in expected if one in found and found[one] != expected[one]]
            + [f"{one} is new" for one in found if one not in expected])


def check_contents(path: str, group: str) -> None:
    """Refuse a file that has changed since it was sealed; what is no HDF5 file is left to who reads it.

    Raises
    ------
    FileError
        With the names of what has changed.
    """
    try:
        file = h5py.File(path, "r")
    except HDF5_ERRORS:
        return  # by whom it cannot be read either
    with file:
        try:
            found = changed(file, group)
        except FileError as error:
            raise FileError(f"{path}: {error}, expected the file as it was written") from None
    if found:
        raise FileError(f"{path}: {several(found)} since it was written, expected the file as it was "
                        f"(damaged; where it was changed on purpose, delete {TABLE} and the attribute {SEAL} of "
                        f"/{group})")


def _hashes(file: h5py.File, without: str) -> dict[str, str]:
    """By names, in their order; names that are no UTF-8 with escapes."""
    found = {"/": _hash(file)}

    def note(name: str | bytes, item: Any) -> None:
        full = "/" + printable(name)
        if full != without:
            found[full] = _hash(item, SEAL if full == os.path.dirname(without) else "")

    file.visititems(note)
    return dict(sorted(found.items()))


def _hash(item: Any, without: str = "") -> str:
    """Of an object, without one of its attributes."""
    made = hashlib.sha256(type(item).__name__.encode())
    # By the low level: a name that is no UTF-8 is a name, too
    for number in range(h5py.h5a.get_num_attrs(item.id)):
        one = h5py.h5a.open(item.id, index=number)
        if one.name == without.encode():
            continue
        # A text of any length lies elsewhere in the file: here it is what is read
        value: Any = item.attrs[one.name.decode()] if one.dtype.hasobject else np.empty(one.shape, one.dtype)
        if isinstance(value, np.ndarray) and value.size and not one.dtype.hasobject:
            one.read(value)
        told = value.tobytes() if isinstance(value, np.ndarray) and not value.dtype.hasobject else repr(value).encode()
        made.update(b"\0".join((b"attribute", one.name, str((one.dtype, one.shape)).encode(), told)))
    if isinstance(item, h5py.Dataset):
        made.update(str((item.dtype, item.shape)).encode())
        for part in _parts(item):
            made.update(part)
    return made.hexdigest()[:2 * KEPT]


def _parts(dataset: h5py.Dataset) -> Any:
    """The bytes of a dataset, a few rows at a time."""
    if not dataset.shape or not dataset.size:
        yield np.ascontiguousarray(dataset[()]).tobytes() if dataset.shape is not None else b""
        return
    rows = max(1, PIECE * dataset.shape[0] // max(1, dataset.nbytes))
    for first in range(0, dataset.shape[0], rows):
        yield np.ascontiguousarray(dataset[first:first + rows]).data.cast("B")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:2 * KEPT]
