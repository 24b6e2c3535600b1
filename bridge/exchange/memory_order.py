# SPDX-License-Identifier: MIT
"""Tensors in a memory order of their writer's own, who says so in attributes of the dataset.

`layout` names the axes that the dataset declares, `order` how its numbers follow each other, `flip` the axes along
which it runs backwards (docs/exchange-file.md, "Another memory order"). Whatever was written, the reader hands out
(n, c, h, w) and (k, c, r, s). Nothing is guessed: what is not one of the documented values is a `FileError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import h5py
import numpy as np

from bridge.common.errors import FileError
from bridge.exchange.hdf5_values import HDF5_ERRORS, one_line, plain, shortened

Array = np.ndarray
ATTRIBUTES = ("layout", "order", "flip")
ORDERS = ("C", "F")


@dataclass(frozen=True)
class Layout:
    """How a dataset keeps a tensor.

    Attributes
    ----------
    axes : letters of the tensor's own axes, "NCHW", "KCRS" or "K"
    stored : the same letters in the order of the dataset's dimensions, as h5py and numpy see them
    column_major : the numbers follow each other with the first declared dimension the fastest
    flipped : axes along which the dataset runs backwards

    Examples
    --------
    >>> Layout("NCHW", "NHWC").declared((2, 16, 5, 7))
    (2, 5, 7, 16)
    >>> Layout("KCRS", "RSCK", flipped="RS").canonical(np.arange(4.0).reshape(2, 2, 1, 1))[0, 0]
    array([[3., 2.],
           [1., 0.]])
    """

    axes: str
    stored: str
    column_major: bool = False
    flipped: str = ""

    def declared(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the dataset's shape for a tensor of shape `shape`."""
        return tuple(shape[self.axes.index(axis)] for axis in self.stored)

    def canonical(self, stored: Array) -> Array:
        """Return the tensor, from all that is in the dataset; a view where that is possible."""
        if self.column_major:
            stored = stored.reshape(-1).reshape(stored.shape, order="F")
        return self._arranged(stored, self.stored, self.axes)

    def read_part(self, dataset: h5py.Dataset, part: int) -> Array:
        """Return the index `part` of the tensor's first axis; only that is read. Not for `column_major`."""
        axis = self.stored.index(self.axes[0])
        place = dataset.shape[axis] - 1 - part if self.axes[0] in self.flipped else part
        values = np.asarray(dataset[(slice(None),) * axis + (place,)])
        return self._arranged(values, self.stored.replace(self.axes[0], ""), self.axes[1:])

    def _arranged(self, values: Array, stored: str, wanted: str) -> Array:
        values = values.transpose([stored.index(axis) for axis in wanted])
        return values[tuple(slice(None, None, -1 if axis in self.flipped else 1) for axis in wanted)]


class KeptTensors:
    """The last tensors that had to be read whole, so that each is read once and not once an image.

    Parameters
    ----------
    limit : bytes to keep; the oldest go first
    """

    def __init__(self, limit: int = 2**30) -> None:
        self._limit, self._lock = limit, Lock()
        self._kept: dict[str, Array] = {}

    def get(self, name: str, load: Callable[[], Array]) -> Array:
        """Return the tensor of this name, loaded where it is not kept."""
        with self._lock:
            values = self._kept.pop(name, None)
            if values is None:
                values = load()
            self._kept[name] = values
            while len(self._kept) > 1 and sum(kept.nbytes for kept in self._kept.values()) > self._limit:
                del self._kept[next(iter(self._kept))]
            return values


def axes_of(name: str) -> str:
    """Return the letters of a tensor's axes by its name; none for a number, and for what is no tensor of a step.

    >>> axes_of("steps/0/forward/conv1"), axes_of("steps/2/grads/conv1/weight"), axes_of("steps/0/loss")
    ('NCHW', 'KCRS', '')
    """
    parts = name.strip("/").split("/")
    match parts[2:] if parts[0] == "steps" else []:
        case ["forward", _] | ["grads", "input"] | ["grads", _, "output"]:
            return "NCHW"
        case ["weights" | "grads", _, "weight"]:
            return "KCRS"
        case ["weights" | "grads", _, "bias"]:
            return "K"
    return ""


def layout_of(name: str, dataset: h5py.Dataset, role: object) -> Layout | None:
    """Return what a dataset says of its memory order; None where it says nothing.

    Parameters
    ----------
    name : of the dataset in the file
    role : of the file

    Raises
    ------
    FileError
        If an attribute has an unknown value or a wrong type, or may not be there. Without the file's name.
    """
    given = _given(name, dataset)
    if not given:
        return None
    axes, first = axes_of(name), next(iter(given))
    if not axes:
        raise FileError(f"{name} has the attribute {first}, expected it at no tensor but those of four axes and biases")
    if role != "candidate":
        # Fortran's reader of fixtures, for one, does not look at it
        raise FileError(
            f"{name} has the attribute {first}, which only a result may use, and the file's role is "
            f"{shortened(role)}, expected 'candidate'"
        )
    stored = given.get("layout", axes).upper()
    if sorted(stored) != sorted(axes):
        raise FileError(f"{name} has the layout {shortened(given['layout'])}, expected the letters {axes} in any order")
    order = given.get("order", "C").upper()
    if order not in ORDERS:
        raise FileError(f"{name} has the order {shortened(given['order'])}, expected 'C' or 'F'")
    flipped = given.get("flip", "").upper()
    if not set(flipped) <= set(axes) or len(set(flipped)) < len(flipped):
        raise FileError(f"{name} has the flip {shortened(given['flip'])}, expected letters of {axes}, each once")
    return Layout(axes, stored, order == "F", flipped)


def _given(name: str, dataset: h5py.Dataset) -> dict[str, str]:
    """The attributes that are there, as texts. Counting them first costs nothing, and mostly there are none."""
    try:
        if h5py.h5a.get_num_attrs(dataset.id) == 0:
            return {}
        given = {key: plain(dataset.attrs, key) for key in ATTRIBUTES if key in dataset.attrs}
    except HDF5_ERRORS as error:
        raise FileError(f"the attributes of {name} cannot be read ({one_line(error)})") from None
    for key, value in given.items():
        if not isinstance(value, str):
            raise FileError(f"attribute {key} of {name} is {shortened(value)}, expected one text")
    return {key: str(value) for key, value in given.items()}
