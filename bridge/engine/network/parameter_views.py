# SPDX-License-Identifier: MIT
"""Memory of a Fortran network as arrays: of numpy, or on a CUDA device `bridge.DeviceArray`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bridge.engine.arrays.device_array import DeviceArray
from bridge.engine.library import extension, finalizers
from bridge.engine.library.device_spec import DeviceSpec
from bridge.exchange.model import Conv2d as Conv2d
from bridge.exchange.model import Model, Operation

#: numpy.ndarray or DeviceArray
Array = Any

class Owner:
    """Frees the network when neither the `Network` nor a view of its memory is left."""

    def __init__(self, handle: int, *, on_gpu: bool = False) -> None:
        finalizers.release_with(self, partial(extension.api().network_free, handle), on_gpu=on_gpu)


class FortranMemory:
    """Memory of Fortran, as numpy's array interface wants it; holds on to its owner."""

    def __init__(self, owner: Owner, place: int, shape: tuple[int, ...], dtype: str) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3, "data": (place, False), "shape": shape, "typestr": np.dtype(dtype).str}


@dataclass(frozen=True)
class Slot:
    """Where Fortran has a tensor that belongs to a layer: the layer's number, and its own in the layer, from 1."""

    layer: int
    number: int
    shape: tuple[int, ...]


def parameter_places(model: Model) -> dict[str, Slot]:
    """Return where Fortran has the parameters of torch's names.

    >>> parameter_places(Model((Conv2d("a", 1, 2, (1, 1)),)))["a.bias"]
    Slot(layer=1, number=2, shape=(2,))
    """
    return _places(model, lambda layer: layer.parameter_shapes())


def state_places(model: Model) -> dict[str, Slot]:
    """Return where Fortran has what layers keep and do not learn, by torch's names of buffers."""
    return _places(model, lambda layer: layer.state_shapes())


def _places(model: Model, shapes_of: Callable[[Operation], dict[str, tuple[int, ...]]]) -> dict[str, Slot]:
    return {f"{layer.name}.{name}": Slot(number, own, shape) for number, layer in enumerate(model.layers, start=1)
            for own, (name, shape) in enumerate(shapes_of(layer).items(), start=1)}


class Tensors:
    """The tensors of a network in Fortran, which lives as long as this or a view.

    Parameters
    ----------
    handle : the network's
    dtype : of its parameters
    device : on which it is
    """

    def __init__(self, handle: int, dtype: str, device: DeviceSpec) -> None:
        self.handle, self._dtype, self._device = handle, dtype, device
        self._owner = Owner(handle, on_gpu=device.on_gpu)

    def find(self, layer: int, item: int, number: int = 1) -> tuple[int, tuple[int, ...]]:
        """Return the address and four extents or more, as numpy's shape, by the layer's number (from 1) and what of it;
        address 0 when there is none.
        """
        extent = np.zeros(extension.DIMENSIONS[-1], np.int32)
        address = int(extension.call("network_address", self.handle, layer, item, number, extent))
        rank = max([4, *(i for i, n in enumerate(extent, start=1) if n != 1)])
        return address, tuple(int(n) for n in extent[rank - 1::-1])

    def view(self, place: Slot, item: int) -> Array | None:
        """Return what belongs to a parameter, or state, as a view; None when there is none."""
        address, _ = self.find(place.layer, item, place.number)
        if address == 0:
            return None
        if self._device.on_gpu:
            return DeviceArray.at(address, place.shape, self._dtype, self._device.index, self._owner)
        return np.asarray(FortranMemory(self._owner, address, place.shape, self._dtype))


class Views(Mapping[str, Array]):
    """What belongs to the parameters of a network, or its state, by torch's names, as views; `item` as of
    `Tensors.view`.
    """

    def __init__(self, places: dict[str, Slot], tensors: Tensors, item: int) -> None:
        self._arrays: dict[str, Array] = {name: tensors.view(place, item) for name, place in places.items()}

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
