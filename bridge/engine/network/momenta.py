# SPDX-License-Identifier: MIT
"""The momenta of a network, which its optimiser makes, by the names of its parameters."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from bridge.common.errors import ArgumentError
from bridge.engine.arrays import dispatch
from bridge.engine.library import extension
from bridge.engine.network.parameter_views import Tensors, parameter_places
from bridge.exchange.file import ExchangeFile
from bridge.exchange.model import Model

#: numpy.ndarray or DeviceArray
Array = Any


def lost(file: ExchangeFile, step: int) -> bool:
    """Return whether the weights before a step come from a training with memory (momentum, Adam) that is not there.

    So are those of a later step of `cnn_step` or the reference, and what `Network.save` wrote before it wrote momenta.
    """
    if file.model is None or file.optimizer is None or not file.optimizer.remembers:
        return False
    if file.has_memory(step):
        return False
    saved = str(file.attributes.get("producer")).startswith("bridge.Network")
    return step > 0 or (saved and "first_step" not in file.attributes)


class Momenta(MutableMapping[str, Array]):
    """Those that are there: like torch's, a momentum comes with the parameter's first update with momentum.

    ``momenta[name]`` is a view of Fortran's memory, whose address never changes. ``momenta[name] = array`` copies the
    array, where there was no momentum too; ``del momenta[name]`` forgets one: the next update begins with the gradient
    alone, as the first does.

    Parameters
    ----------
    model, tensors, place : of the network
    item : of `Tensors.view`

    Raises
    ------
    KeyError
        Where there is no momentum of this name to be read.
    ArgumentError
        Where there is no parameter of this name to be given one.
    """

    def __init__(self, model: Model, tensors: Tensors, place: dispatch.Place, item: int) -> None:
        self._places, self._tensors, self._place, self._item = parameter_places(model), tensors, place, item

    def __getitem__(self, name: str) -> Array:
        found = self._found(name)
        if found is None:
            raise KeyError(name)
        return found

    def __setitem__(self, name: str, value: Array) -> None:
        if name not in self._places:
            raise ArgumentError(f"momenta: {name!r}, expected a parameter of {', '.join(self._places)}")
        was_there = name in self
        self._keep(name, True)
        try:
            self[name][...] = value
        except BaseException:
            if not was_there:
                del self[name]
            raise

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._keep(name, False)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._places if self._found(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _found(self, name: str) -> Array | None:
        if name not in self._places:
            return None
        return self._tensors.view(self._places[name], self._item)

    def _keep(self, name: str, kept: bool) -> None:
        """Let it be there, zero where it was not, or no longer."""
        place = self._places[name]
        with self._place.working():
            extension.call("network_keep_memory", self._tensors.handle, place.layer, place.number, "sgd", int(kept))
