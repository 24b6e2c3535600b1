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


class Views(Mapping[str, Array]):
    """Tensors of a network by torch's names, as views."""

    def __init__(self, model: Model, dtype: str, device: DeviceSpec, owner: Owner, find: Find, weight: int,
                 bias: int) -> None:
        self._arrays: dict[str, Array] = {}
        for number, layer in enumerate(model.layers, start=1):
            if not isinstance(layer, Conv2d):
                continue
            for kind, which, there in (("weight", weight, True), ("bias", bias, layer.bias)):
                if there:
                    place, shape = find(number, which)
                    shape = shape if kind == "weight" else shape[-1:]
                    if device.on_gpu:
                        array = DeviceArray.at(place, shape, dtype, device.index, owner)
                    else:
                        array = np.asarray(Memory(owner, place, shape, dtype))
                    self._arrays[f"{layer.name}.{kind}"] = array

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
