# SPDX-License-Identifier: MIT
"""Read exchange files with h5py (docs/exchange-file.md).

Nothing in a file is trusted: format and version, kinds, shapes and finiteness are checked before use, and
every failure is a `FileError` whose message starts with the file's name.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import TracebackType

import h5py
import numpy as np

from bridge.errors import FileError
from bridge.model import Model

FORMAT = "cnn-exchange"
FORMAT_VERSION = 1
PRECISIONS = ("float32", "float64")


@dataclass(frozen=True)
class Sgd:
    """Settings of stochastic gradient descent, with torch's names and meaning."""

    lr: float
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False


class ExchangeFile:
    """An exchange file open for reading; a context manager.

    Parameters
    ----------
    path : file name

    Attributes
    ----------
    model : Model or None
        None where a candidate left the description out.
    sgd : Sgd or None
        The same for the optimiser.
    precision : "float32" or "float64"
        What the file declares; float32 where it declares nothing.
    attributes : dict
        Root attributes, texts and numbers.

    Raises
    ------
    FileError
        If the file is missing, truncated, not HDF5, of another format or version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        if not os.path.isfile(self.path):
            raise FileError(f"{self.path}: no such file")
        try:
            self.file = h5py.File(self.path, "r")
        except OSError as error:
            reason = str(error).partition("(")[2].rstrip(")") or str(error)
            raise FileError(f"{self.path}: not a readable HDF5 file ({reason})") from None
        try:
            self._read_head()
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> ExchangeFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.file.close()

    def has(self, name: str) -> bool:
        """Is there a dataset of this name in this file? (Links to other files do not count.)"""
        here: h5py.Group = self.file
        for part in name.strip("/").split("/"):
            try:
                link = here.get(part, getlink=True) if isinstance(here, h5py.Group) else None
                if link is None or isinstance(link, h5py.ExternalLink):
                    return False
                here = here[part]
            except (KeyError, OSError, RuntimeError):
                return False
        return isinstance(here, h5py.Dataset)

    def tensor(self, name: str, shape: tuple[int, ...]) -> h5py.Dataset:
        """A dataset of real numbers, checked but not read.

        Raises
        ------
        FileError
            If it is missing, does not hold float32 or float64, has another shape, or holds no data.
        """
        if not self.has(name):
            raise FileError(f"{self.path}: {name} is missing")
        dataset = self.file[name]
        if dataset.dtype.kind != "f" or dataset.dtype.itemsize not in (4, 8):
            raise FileError(f"{self.path}: {name} holds {dataset.dtype}, expected float32 or float64")
        if dataset.shape != shape:
            raise FileError(f"{self.path}: {name} has the shape {dataset.shape}, expected {shape}")
        if dataset.id.get_storage_size() == 0:
            raise FileError(f"{self.path}: {name} declares a shape but holds no data")
        return dataset

    def read(self, name: str, shape: tuple[int, ...], part: int | None = None) -> np.ndarray:
        """Values of a tensor, native byte order; with `part`, only that image of the batch."""
        dataset = self.tensor(name, shape)
        try:
            values = dataset[()] if part is None else dataset[part]
        except OSError as error:
            raise FileError(f"{self.path}: {name} could not be read (truncated file?): {error}") from None
        return np.asarray(values, dtype=dataset.dtype.newbyteorder("="))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a dataset."""
        if not self.has(name):
            raise FileError(f"{self.path}: {name} is missing")
        return tuple(self.file[name].shape)

    def batches(self) -> int:
        """Number of batches, numbered from 0 without a gap."""
        count = 0
        while self.has(f"batches/{count}/input"):
            count += 1
        return count

    def _read_head(self) -> None:
        self.attributes = {name: _plain(self.file.attrs, name) for name in self.file.attrs}
        if self.attributes.get("format") != FORMAT:
            raise FileError(f"{self.path}: attribute format is {self.attributes.get('format')!r}, expected {FORMAT!r}")
        version = self.attributes.get("format_version")
        if version != FORMAT_VERSION:
            raise FileError(f"{self.path}: format_version is {version!r}, this program reads {FORMAT_VERSION}")
        self.precision = self.attributes.get("precision", "float32")
        if self.precision not in PRECISIONS:
            raise FileError(f"{self.path}: attribute precision is {self.precision!r}, expected float32 or float64")
        try:
            self.model = Model.from_json(self._text("model")) if self.has("model") else None
            self.sgd = self._optimizer()
        except FileError as error:
            message = str(error)
            raise FileError(message if message.startswith(self.path) else f"{self.path}: {message}") from None

    def _text(self, name: str) -> str:
        dataset = self.file[name]
        if h5py.check_string_dtype(dataset.dtype) is None or dataset.shape != ():
            raise FileError(f"{name} is not one text")
        try:
            return dataset.asstr()[()].rstrip("\0 ")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{name} could not be read: {error}") from None

    def _optimizer(self) -> Sgd | None:
        group = self.file.get("optimizer")
        if not isinstance(group, h5py.Group):
            return None
        found = {name: _plain(group.attrs, name) for name in group.attrs}
        if found.get("type") != "sgd":
            raise FileError(f"optimizer type is {found.get('type')!r}, expected 'sgd'")
        numbers = {}
        for name in Sgd.__dataclass_fields__:
            value = found.get(name)
            if not isinstance(value, (int, float)) or not np.isfinite(value):
                raise FileError(f"attribute {name} of /optimizer is {value!r}, expected a number")
            numbers[name] = float(value)
        return Sgd(**(numbers | {"nesterov": bool(numbers["nesterov"])}))


def _plain(attributes: h5py.AttributeManager, name: str) -> str | float | int | None:
    """An attribute as a text or a number; None when it is neither."""
    try:
        value = attributes[name]
    except (OSError, UnicodeDecodeError, TypeError, ValueError):
        return None
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())[()]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.rstrip("\0 ")
    if isinstance(value, (bool, np.bool_, np.integer, int)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    return None
