# SPDX-License-Identifier: MIT
"""The model of an exchange file of version 2: groups and attributes (docs/exchange-file.md, ``/model``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from bridge.common.errors import FileError
from bridge.exchange.hdf5_values import HDF5_ERRORS, one_line, plain, printable, shortened
from bridge.exchange.model import Model
from bridge.operations import OPERATIONS, Operation
from bridge.operations.aten.operation import Aten
from bridge.operations.graph import INPUT
from bridge.operations.hyperparameters import MOST, NAME, described, fields
from bridge.operations.losses import LOSSES, described_loss

#: What files have: the operations of the table, and what it lacks
KINDS: dict[str, type[Operation]] = {**OPERATIONS, Aten.kind: Aten}
#: Most layers that are read
MOST_LAYERS = 10_000


def read_model(group: h5py.Group, alive: Callable[[], object] = lambda: None) -> Model:
    """Return the model of the group ``/model``; `alive` is called for every layer.

    Raises
    ------
    FileError
        If a layer is of an unknown type, has an attribute that is unknown, missing or out of its range, or takes what
        no layer before it gives.
    """
    try:
        layers = group.get("layers")
        loss = group.get("loss")
        if not isinstance(layers, h5py.Group) or not isinstance(loss, h5py.Group) or not len(layers):
            raise FileError("model: layers or loss is missing, expected a group of layers and one with the loss")
        if len(layers) > MOST_LAYERS:
            raise FileError(f"model: {len(layers)} layers, expected {MOST_LAYERS} at most")
        found = []
        for name in layers:
            found.append(_layer(name, layers))
            alive()
        found.sort(key=lambda one: one[0])
        criterion, mean = _loss(loss)
        inputs = plain(group.attrs, "inputs") if "inputs" in group.attrs else ""
    except HDF5_ERRORS as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"model: it cannot be read ({one_line(error)})") from None
    if [index for index, _ in found] != list(range(len(found))):
        raise FileError(f"model: the layers' index are {[index for index, _ in found][:8]}, expected 0, 1, 2, ...")
    if not isinstance(inputs, str):
        raise FileError(f"model: inputs are {shortened(inputs)}, expected a text")
    return Model(tuple(layer for _, layer in found), mean, criterion, inputs).joined()


def write_model(group: h5py.Group, model: Model) -> None:
    """Write layers and loss of a model into the group ``/model``."""
    for index, layer in enumerate(model.graph.nodes):
        attributes = group.create_group(f"layers/{layer.name}").attrs
        attributes["index"], attributes["type"], attributes["inputs"] = index, layer.kind, ",".join(layer.inputs)
        for one in fields(layer):
            value = getattr(layer, one.name)
            attributes[one.name] = int(value) if isinstance(value, bool) else value
    if model.inputs:
        group.attrs["inputs"] = model.inputs
    loss, criterion = group.create_group("loss").attrs, model.criterion
    loss["type"], loss["reduction"] = criterion.kind, criterion.reduction
    for name, value in criterion.given.items():
        loss[name] = value


def _layer(name: str, layers: h5py.Group) -> tuple[int, Operation]:
    """Index and operation of a layer."""
    group = layers.get(name)
    if not NAME.fullmatch(name) or name == INPUT or not isinstance(group, h5py.Group):
        raise FileError(f"model: layer {printable(name)!r} is not a group, or its name is not allowed "
                        "(1 to 64 letters, digits, '_', '.', '-'; not 'input')")
    if len(group):
        raise FileError(f"model: layer {name} has the member {printable(next(iter(group)))!r}, expected attributes "
                        "alone")
    kind, index = plain(group.attrs, "type"), plain(group.attrs, "index")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FileError(f"model: layer {name} has type {shortened(kind)}, expected one of {', '.join(OPERATIONS)}")
    if not isinstance(index, int):
        raise FileError(f"model: layer {name} has index {shortened(index)}, expected a number from 0 on")
    inputs = plain(group.attrs, "inputs") if "inputs" in group.attrs else ""
    if not isinstance(inputs, str):
        raise FileError(f"model: layer {name} has inputs {shortened(inputs)}, expected names with commas between them")
    given = {printable(one): _value(group, one) for one in group.attrs if one not in ("type", "index", "inputs")}
    return index, described(KINDS[kind], name, tuple(inputs.split(",")) if inputs else (), given)


def _value(group: h5py.Group, name: str) -> Any:
    """An attribute: a number, a text, or numbers."""
    value: Any = plain(group.attrs, name)
    if value is None and group.attrs.get_id(name).get_storage_size() <= 8 * MOST:
        value = tuple(np.atleast_1d(group.attrs[name]).tolist())
    return value


def _loss(group: h5py.Group) -> tuple[str, bool]:
    """The loss as a text, and whether it is a mean."""
    kind, reduction = plain(group.attrs, "type"), plain(group.attrs, "reduction")
    if kind not in LOSSES or reduction not in ("mean", "sum"):
        raise FileError(f"model: loss is {shortened(kind)} with the reduction {shortened(reduction)}, expected one of "
                        f"{', '.join(LOSSES)} with mean or sum")
    if len(group):
        raise FileError(f"model: the loss has the member {printable(next(iter(group)))!r}, expected attributes alone")
    given = {printable(one): _value(group, one) for one in group.attrs if one not in ("type", "reduction")}
    return described_loss(kind, given, reduction == "mean").text, reduction == "mean"
