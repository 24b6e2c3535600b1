# SPDX-License-Identifier: MIT
"""The momenta of a network, which its optimiser makes, by the names of its parameters."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from bridge.common.errors import ArgumentError
from bridge.engine.arrays import dispatch
from bridge.engine.library import extension
from bridge.engine.network.parameter_views import Tensors, parameter_places
from bridge.exchange.file import ExchangeFile
from bridge.exchange.hdf5_values import several
from bridge.exchange.model import Model
from bridge.exchange.optimizers import Adam

#: numpy.ndarray or DeviceArray
Array = Any


def lost(file: ExchangeFile, step: int) -> list[str]:
    """Return what is not in the file of the optimiser's memory (momentum, Adam) before a step, where it should be.

    It should be there of each parameter that is not frozen, whole, if there is any of it, or if the weights come from a
    training: those of a later step of `cnn_step` or the reference, those with a `first_step` above 0, and what
    `Network.save` wrote before it wrote momenta. The last ones may lack all of it, which is then told as one. Of a
    parameter that the file says had no update yet (``updates`` = 0) nothing is missing.
    """
    if file.model is None or file.optimizer is None or not file.optimizer.remembers:
        return []
    expected = dict[str, bool]()
    for name in file.model.parameter_shapes():
        if not file.is_frozen(name):
            there = {path: file.has(path) for path in (file.memory_path(step, name, kind)
                                                       for kind in file.optimizer.memory)}
            updates = file.updates(step, name)
            if updates == 0:
                continue
            expected |= there
            # SGD asks only whether there has been one
            if isinstance(file.optimizer, Adam):
                expected[f"attribute updates of steps/{step}/optimizer/{name}"] = updates is not None
    if any(expected.values()):
        return [path for path, there in expected.items() if not there]
    first, saved = file.attributes.get("first_step"), str(file.attributes.get("producer")).startswith("bridge.Network")
    trained = step > 0 or (saved if first is None else first != 0)
    return [f"the momenta before step {step}"] if trained and expected else []


def in_words(without: Sequence[str]) -> str:
    """Return what is `lost` with its verb.

    >>> in_words(["the momenta before step 2"]), in_words(["a/exp_avg"]), in_words([*"abcd"])
    ('the momenta before step 2 are', 'a/exp_avg is', 'a, b, c and 1 more are')
    """
    plural = len(without) > 1 or "momenta" in without[0]
    return f"{several(without)} {'are' if plural else 'is'}"


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
