# SPDX-License-Identifier: MIT
"""Memory of a Fortran network as numpy arrays."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from bridge import engine
from bridge.model import Conv2d, Model

Array = np.ndarray

#: Gives address and numpy shape of a tensor, for a layer's number (from 1) and a tensor's
Find = Callable[[int, int], tuple[int, tuple[int, ...]]]


class Owner:
    """Frees the network when neither the `Network` nor a view of its memory is left."""

    def __init__(self, handle: int) -> None:
        weakref.finalize(self, engine.api().network_free, handle)


class Memory:
    """Memory of Fortran, as numpy's array interface wants it; holds on to its owner."""

    def __init__(self, owner: Owner, place: int, shape: tuple[int, ...], dtype: str) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3, "data": (place, False), "shape": shape, "typestr": np.dtype(dtype).str}


class Views(Mapping[str, Array]):
    """Tensors of a network by torch's names, as views."""

    def __init__(self, model: Model, dtype: str, owner: Owner, find: Find, weight: int, bias: int) -> None:
        self._arrays: dict[str, Array] = {}
        for number, layer in enumerate(model.layers, start=1):
            if not isinstance(layer, Conv2d):
                continue
            for kind, which, there in (("weight", weight, True), ("bias", bias, layer.bias)):
                if there:
                    place, shape = find(number, which)
                    shape = shape if kind == "weight" else shape[-1:]
                    memory = Memory(owner, place, shape, dtype)
                    self._arrays[f"{layer.name}.{kind}"] = np.asarray(memory)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
