# SPDX-License-Identifier: MIT
"""Memory of a Fortran network as arrays: of numpy, or on a CUDA device `bridge.DeviceArray`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from bridge import engine, lifetime
from bridge.device import DeviceSpec
from bridge.device_array import DeviceArray
from bridge.model import Conv2d, Model

#: numpy.ndarray or DeviceArray
Array = Any

#: Gives address and numpy shape of a tensor, for a layer's number (from 1) and a tensor's
Find = Callable[[int, int], tuple[int, tuple[int, ...]]]


class Owner:
    """Frees the network when neither the `Network` nor a view of its memory is left."""

    def __init__(self, handle: int, *, on_gpu: bool = False) -> None:
        lifetime.release_with(self, partial(engine.api().network_free, handle), on_gpu=on_gpu)


class Memory:
    """Memory of Fortran, as numpy's array interface wants it; holds on to its owner."""

    def __init__(self, owner: Owner, place: int, shape: tuple[int, ...], dtype: str) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3, "data": (place, False), "shape": shape, "typestr": np.dtype(dtype).str}


def parameter_places(model: Model) -> dict[str, tuple[int, int]]:
    """Where Fortran has the parameters of torch's names: the layer's number, from 1, and 1 (weight) or 2 (bias).

    >>> parameter_places(Model((Conv2d("a", 1, 1, (1, 1)),)))
    {'a.weight': (1, 1), 'a.bias': (1, 2)}
    """
    return {f"{layer.name}.{kind}": (number, which) for number, layer in enumerate(model.layers, start=1)
            if isinstance(layer, Conv2d)
            for which, kind in enumerate(("weight", "bias"), start=1) if kind == "weight" or layer.bias}


class Views(Mapping[str, Array]):
    """Tensors of a network by torch's names, as views; `first` is the number of that of a weight."""

    def __init__(self, model: Model, dtype: str, device: DeviceSpec, owner: Owner, find: Find, first: int) -> None:
        self._arrays: dict[str, Array] = {}
        for name, (number, which) in parameter_places(model).items():
            place, shape = find(number, first + which - 1)
            shape = shape if which == 1 else shape[-1:]
            if device.on_gpu:
                array = DeviceArray.at(place, shape, dtype, device.index, owner)
            else:
                array = np.asarray(Memory(owner, place, shape, dtype))
            self._arrays[name] = array

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
