# SPDX-License-Identifier: MIT
"""Memory of a Fortran network as arrays: of numpy, or on a CUDA device `bridge.DeviceArray`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from bridge.engine.arrays.device_array import DeviceArray
from bridge.engine.library import extension, finalizers
from bridge.engine.library.device_spec import DeviceSpec
from bridge.exchange.model import Conv2d, Model

#: numpy.ndarray or DeviceArray
Array = Any

class Owner:
    """Frees the network when neither the `Network` nor a view of its memory is left."""

    def __init__(self, handle: int, *, on_gpu: bool = False) -> None:
        finalizers.release_with(self, partial(extension.api().network_free, handle), on_gpu=on_gpu)


class Memory:
    """Memory of Fortran, as numpy's array interface wants it; holds on to its owner."""

    def __init__(self, owner: Owner, place: int, shape: tuple[int, ...], dtype: str) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3, "data": (place, False), "shape": shape, "typestr": np.dtype(dtype).str}


def parameter_places(model: Model) -> dict[str, tuple[int, int]]:
    """Return where Fortran has the parameters of torch's names: the layer's number, from 1, and 1 (weight) or 2 (bias).

    >>> parameter_places(Model((Conv2d("a", 1, 1, (1, 1)),)))
    {'a.weight': (1, 1), 'a.bias': (1, 2)}
    """
    return {f"{layer.name}.{kind}": (number, which) for number, layer in enumerate(model.layers, start=1)
            if isinstance(layer, Conv2d)
            for which, kind in enumerate(("weight", "bias"), start=1) if kind == "weight" or layer.bias}


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

    def find(self, number: int, which: int) -> tuple[int, tuple[int, ...]]:
        """Return the address and numpy shape, by the layer's number (from 1) and the tensor's; address 0 when there is
        none.
        """
        shape = np.zeros(4, np.int32)
        place = int(extension.call("network_address", self.handle, number, which, shape))
        return place, tuple(int(n) for n in shape[::-1])

    def parameter(self, number: int, first: int, which: int) -> Array | None:
        """Return what belongs to a parameter, as a view; None when there is none.

        Parameters
        ----------
        number, which : see `parameter_places`
        first : number of that of a weight
        """
        place, shape = self.find(number, first + which - 1)
        if place == 0:
            return None
        shape = shape if which == 1 else shape[-1:]
        if self._device.on_gpu:
            return DeviceArray.at(place, shape, self._dtype, self._device.index, self._owner)
        return np.asarray(Memory(self._owner, place, shape, self._dtype))


class Views(Mapping[str, Array]):
    """What belongs to the parameters of a network by torch's names, as views; `first` as of `Tensors.parameter`."""

    def __init__(self, model: Model, tensors: Tensors, first: int) -> None:
        self._arrays: dict[str, Array] = {name: tensors.parameter(number, first, which)
                                          for name, (number, which) in parameter_places(model).items()}

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
