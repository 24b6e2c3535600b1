# SPDX-License-Identifier: MIT
"""Read exchange files with h5py (docs/exchange-file.md).

Nothing in a file is trusted: format and version, kinds, shapes and finiteness are checked before use, and
every failure is a `FileError` whose message starts with the file's name.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

import h5py
import numpy as np

from bridge.common.errors import FileError
from bridge.exchange.file_locks import lock_hint
from bridge.exchange.hdf5_values import (
    HDF5_ERRORS,
    LONGEST_TEXT,
    clipped,
    holds_bytes,
    one_line,
    plain,
    printable,
    read_bytes,
    shortened,
)
from bridge.exchange.memory_order import KeptTensors, Layout, layout_of
from bridge.exchange.model import Model
from bridge.exchange.model_groups import read_model
from bridge.exchange.optimizers import Optimizer, read_optimizer

FORMAT = "cnn-exchange"
#: Versions that are read: the model as JSON, and as groups and attributes
FORMAT_VERSIONS = (1, 2)
PRECISIONS = ("float32", "float64")
#: gzip, the best of HDF5's usual filters, makes zeros 1032 times smaller
LARGEST_COMPRESSION = 1100
#: Bytes of a tensor that is read by several threads
LARGE = 1 << 24


class ExchangeFile:
    """An exchange file open for reading; a context manager.

    Parameters
    ----------
    path : file name
    alive : called for every layer of the model that is read

    Attributes
    ----------
    model : Model or None
        None where a candidate left the description out.
    optimizer : Sgd, Adam, AdamW or None
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

    def __init__(self, path: str | os.PathLike[str], alive: Callable[[], object] = lambda: None) -> None:
        self.path, self._alive = os.fspath(path), alive
        self._known: dict[str, h5py.Dataset | None] = {}
        self._layouts: dict[str, Layout | None] = {}
        self._groups: dict[str, h5py.Group | None] = {}
        self._kept = KeptTensors()
        if not os.path.isfile(self.path):
            raise FileError(f"{self.path}: {'not a file' if os.path.exists(self.path) else 'no such file'}")
        try:
            self.file = h5py.File(self.path, "r")
        except PermissionError:
            raise FileError(f"{self.path}: permission denied, expected a file that this user may read") from None
        except HDF5_ERRORS as error:
            reason = one_line(error).partition("(")[2].rstrip(")") or one_line(error)
            raise FileError(f"{self.path}: not a readable HDF5 file ({reason}){lock_hint(self.path)}") from None
        self._groups[""] = self.file
        try:
            self._read_head()
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> ExchangeFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    def has(self, name: str) -> bool:
        """Return whether there is a dataset of this name in this file; links to other files do not count."""
        return self._find(name) is not None

    def _find(self, name: str) -> h5py.Dataset | None:
        """The dataset, once it was looked for: h5py takes longer for a name than for a small tensor."""
        if name not in self._known:
            self._known[name] = self._search(name)
        return self._known[name]

    def _search(self, name: str) -> h5py.Dataset | None:
        parent, _, last = name.strip("/").rpartition("/")
        found = self._inside(self._group(parent), last)
        return found if isinstance(found, h5py.Dataset) else None

    def _group(self, name: str) -> h5py.Group | None:
        """A group of this file, which is looked for once."""
        if name not in self._groups:
            parent, _, last = name.rpartition("/")
            found = self._inside(self._group(parent), last)
            self._groups[name] = found if isinstance(found, h5py.Group) else None
        return self._groups[name]

    def _inside(self, group: h5py.Group | None, name: str) -> object:
        """What a group of this file has under a name; None where that is nothing, or in another file."""
        try:
            link = None if group is None else group.get(name, getlink=True)
            if group is None or link is None or isinstance(link, h5py.ExternalLink):
                return None
            found = group[name]
            # A soft link may lead through a link to another file
            return found if h5py.h5i.get_file_id(found.id) == self.file.id else None
        except HDF5_ERRORS:
            return None

    def is_frozen(self, parameter: str) -> bool:
        """Return whether no step changes this parameter ("conv1/weight"), as the attribute of its first weights says.

        Raises
        ------
        FileError
            If the attribute is neither 0 nor 1.
        """
        dataset = self._find(f"steps/0/weights/{parameter}")
        try:
            found = 0 if dataset is None or "frozen" not in dataset.attrs else plain(dataset.attrs, "frozen")
        except HDF5_ERRORS as error:
            raise FileError(f"{self.path}: steps/0/weights/{parameter} is unreadable ({one_line(error)})") from None
        if found not in (0, 1):
            raise FileError(f"{self.path}: attribute frozen of steps/0/weights/{parameter} is {shortened(found)}, "
                            "expected 0 or 1")
        return bool(found)

    def tensor(self, name: str, shape: tuple[int, ...]) -> h5py.Dataset:
        """Return a dataset of real numbers, checked but not read.

        Raises
        ------
        FileError
            If it is missing, does not hold float32 or float64, has another shape or an unknown layout, or does not
            hold its data.
        """
        dataset = self._find(name)
        if dataset is None:
            raise FileError(f"{self.path}: {name} is missing, or is not a dataset of this file")
        try:
            dtype, found = dataset.dtype, dataset.shape
            elsewhere = dataset.is_virtual or bool(dataset.external)
            stored, nbytes = dataset.id.get_storage_size(), dataset.nbytes
            filters = dataset.id.get_create_plist().get_nfilters()
        except HDF5_ERRORS as error:
            raise FileError(f"{self.path}: {name} is unreadable ({one_line(error)})") from None
        if dtype.kind != "f" or dtype.itemsize not in (4, 8):
            raise FileError(f"{self.path}: {name} holds {clipped(str(dtype), 60)}, expected float32 or float64")
        layout = self._layout(name, dataset)
        expected = layout.declared(shape) if layout else shape
        # A scalar may be kept as an array of one element
        if found != expected and not (shape == () and found is not None and math.prod(found) == 1):
            what = f" (layout {layout.stored})" if layout else ""
            raise FileError(f"{self.path}: {name} has the shape {found}, expected {expected}{what}")
        if elsewhere:
            raise FileError(f"{self.path}: {name} keeps its data in other files, expected them in this one")
        if stored == 0:
            raise FileError(f"{self.path}: {name} declares a shape but holds no data")
        if nbytes > stored * (LARGEST_COMPRESSION if filters else 1):
            raise FileError(f"{self.path}: {name} declares {nbytes} bytes but holds only {stored}")
        return dataset

    def _layout(self, name: str, dataset: h5py.Dataset) -> Layout | None:
        if name not in self._layouts:
            try:
                self._layouts[name] = layout_of(name, dataset, self.attributes.get("role"))
            except FileError as error:
                raise FileError(f"{self.path}: {error}") from None
        return self._layouts[name]

    def read(self, name: str, shape: tuple[int, ...], part: int | None = None) -> np.ndarray:
        """Return the values of a tensor in its own axes, native byte order, C order, whatever layout the file keeps it
        in.

        With `part`, only that index of the first axis: one image of a batch.
        """
        dataset = self.tensor(name, shape)
        try:
            values = self._direct(name, dataset, part)
            if values is None:
                values = self._values(name, dataset, part)
            values = np.asarray(values, dtype=dataset.dtype.newbyteorder("="), order="C")
        except MemoryError:
            raise FileError(f"{self.path}: {name} of shape {shape} does not fit into memory") from None
        except HDF5_ERRORS as error:
            raise FileError(f"{self.path}: {name} cannot be read ({one_line(error)})") from None
        return values.reshape(shape) if part is None else values

    def same_bits(self, name: str, values: np.ndarray) -> bool:
        """Return whether a tensor has the element type and the bits of `values`, so that -0 differs from 0 and NaN
        equals itself. A large one is compared as it is read, and never in memory as a whole.

        Raises
        ------
        FileError
            As of `read`, with the shape of `values`.
        """
        dataset, values = self.tensor(name, values.shape), np.asarray(values, order="C")
        start = self._place(name, dataset)
        if start is None or dataset.dtype != values.dtype:
            found = self.read(name, values.shape)
            return found.dtype == values.dtype and found.tobytes() == values.tobytes()
        try:
            return holds_bytes(self.file.id.get_vfd_handle(), start, values)
        except HDF5_ERRORS as error:
            raise FileError(f"{self.path}: {name} cannot be read ({one_line(error)})") from None

    def _place(self, name: str, dataset: h5py.Dataset) -> int | None:
        """Where a large tensor begins that lies in the file as it will in memory; else None."""
        if self._layouts[name] is not None or dataset.nbytes < LARGE or not dataset.dtype.isnative:
            return None
        start: int | None = dataset.id.get_offset()
        return start

    def _direct(self, name: str, dataset: h5py.Dataset, part: int | None) -> np.ndarray | None:
        """A tensor that has a place, by several threads; else None."""
        start = self._place(name, dataset)
        if start is None:
            return None
        values = np.empty(dataset.shape if part is None else dataset.shape[1:], dataset.dtype)
        start += 0 if part is None else range(dataset.shape[0])[part] * values.nbytes
        read_bytes(self.file.id.get_vfd_handle(), start, values)
        return values

    def _values(self, name: str, dataset: h5py.Dataset, part: int | None) -> np.ndarray:
        layout = self._layouts[name]
        if layout is None:
            return dataset[()] if part is None else dataset[part]
        if part is None:
            return layout.canonical(dataset[()])
        if layout.column_major:
            # An image is no block of such a dataset
            return self._kept.get(name, lambda: layout.canonical(dataset[()]))[part]
        return layout.read_part(dataset, part)

    def datasets(self) -> list[str]:
        """Return the names of all datasets in the file, sorted; fit for printing."""
        found: list[str] = []

        def note(name: str | bytes, node: object) -> None:
            if isinstance(node, h5py.Dataset):
                found.append(printable(name))

        try:
            self.file.visititems(note)
        except HDF5_ERRORS as error:
            raise FileError(f"{self.path}: its list of objects cannot be read ({one_line(error)})") from None
        return sorted(found)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a dataset."""
        dataset = self._find(name)
        if dataset is None:
            raise FileError(f"{self.path}: {name} is missing")
        return tuple(dataset.shape or ())

    def batches(self) -> int:
        """Return the number of batches, numbered from 0 without a gap."""
        count = 0
        while self.has(f"batches/{count}/input"):
            count += 1
        return count

    def _read_head(self) -> None:
        try:
            self.attributes = self._attributes(self.file)
        except FileError as error:
            raise FileError(f"{self.path}: {error}") from None
        if self.attributes.get("format") != FORMAT:
            found = shortened(self.attributes.get("format"))
            raise FileError(f"{self.path}: attribute format is {found}, expected {FORMAT!r}")
        version = self.attributes.get("format_version")
        if version not in FORMAT_VERSIONS:
            raise FileError(f"{self.path}: format_version is {shortened(version)}, this program reads 1 and 2")
        precision = self.attributes.get("precision", "float32")
        if precision not in PRECISIONS:
            found = shortened(precision)
            raise FileError(f"{self.path}: attribute precision is {found}, expected float32 or float64")
        self.precision = str(precision)
        try:
            self.model = self._model(int(version))
            self.optimizer = self._optimizer(int(version))
        except (FileError, ValueError, RecursionError) as error:
            # json also raises plain ValueError, for numbers of thousands of digits
            raise FileError(f"{self.path}: {one_line(error)}") from None

    def _model(self, version: int) -> Model | None:
        if version == 1:
            return Model.from_json(self._text("model")).joined() if self.has("model") else None
        group = self.file.get("model")
        return read_model(group, self._alive) if isinstance(group, h5py.Group) else None

    def _text(self, name: str) -> str:
        try:
            dataset = self.file[name]
            if h5py.check_string_dtype(dataset.dtype) is None or dataset.shape != ():
                raise FileError(f"/{name} is not one text")
            text = dataset.asstr()[()].rstrip("\0 ") if dataset.dtype.itemsize <= LONGEST_TEXT else None
        except HDF5_ERRORS as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"/{name} cannot be read ({one_line(error)})") from None
        if text is None or len(text) > LONGEST_TEXT:
            raise FileError(f"/{name} is longer than {LONGEST_TEXT} bytes")
        return text

    def _attributes(self, node: h5py.Group) -> dict[str, str | float | int | None]:
        try:
            return {name: plain(node.attrs, name) for name in node.attrs}
        except HDF5_ERRORS as error:
            raise FileError(f"the attributes of {node.name} cannot be read ({one_line(error)})") from None

    def _optimizer(self, version: int) -> Optimizer | None:
        try:
            group = self.file.get("optimizer")
        except HDF5_ERRORS:
            group = None
        if not isinstance(group, h5py.Group):
            return None
        found = self._attributes(group)
        if version == 1 and found.get("type") != "sgd":
            raise FileError(f"attribute type of /optimizer is {shortened(found.get('type'))}, expected 'sgd'")
        return read_optimizer(found)

    def has_memory(self, step: int) -> bool:
        """Return whether it has what the optimiser remembers of some parameter before a step."""
        if self.model is None or self.optimizer is None:
            return False
        kind = self.optimizer.memory[0]
        return any(self.has(self.memory_path(step, name, kind)) for name in self.model.parameter_shapes())

    def memory_path(self, step: int, parameter: str, kind: str) -> str:
        """Return where that is of a parameter ("conv1/weight"); `kind` is one of `Optimizer.memory`."""
        if self.attributes["format_version"] == 1:
            return f"steps/{step}/momenta/{parameter}"
        return f"steps/{step}/optimizer/{parameter}/{kind}"

    def updates(self, step: int, parameter: str) -> int | None:
        """Return of how many updates that is, 0 of none yet; None where the file does not say.

        Raises
        ------
        FileError
            If it is no number from 1 on, or 0 where something is remembered.
        """
        path = f"steps/{step}/optimizer/{parameter}"
        try:
            node = self.file.get(path)
            if not isinstance(node, h5py.Group) or "updates" not in node.attrs:
                return None
            found, least = plain(node.attrs, "updates"), int(len(node) > 0)
        except HDF5_ERRORS as error:
            raise FileError(f"{self.path}: attribute updates of {path} is unreadable ({one_line(error)})") from None
        if not isinstance(found, (int, float)) or not least <= found < 2**63 or found != int(found):
            raise FileError(f"{self.path}: attribute updates of {path} is {shortened(found)}, expected a whole number "
                            f"from {least} on")
        return int(found)

    def optimizer_at(self, step: int) -> Optimizer | None:
        """Return the optimiser with the learning rate of a step, where the file says one (attribute lr of /steps/<k>).

        Raises
        ------
        FileError
            If that is no finite number from 0 on.
        """
        if self.optimizer is None:
            return None
        try:
            node = self.file.get(f"steps/{step}")
            has_one = isinstance(node, h5py.Group) and "lr" in node.attrs
            found = plain(node.attrs, "lr") if has_one else self.optimizer.lr
        except HDF5_ERRORS as error:
            raise FileError(f"{self.path}: attribute lr of steps/{step} is unreadable ({one_line(error)})") from None
        if not isinstance(found, (int, float)) or not 0 <= found < math.inf:
            raise FileError(f"{self.path}: attribute lr of steps/{step} is {shortened(found)}, expected a finite "
                            "number from 0 on")
        return replace(self.optimizer, lr=float(found))
