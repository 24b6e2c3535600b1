# SPDX-License-Identifier: MIT
"""The model of an exchange file of version 2: groups and attributes (docs/exchange-file.md, ``/model``)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import h5py
import numpy as np

from bridge.common.errors import FileError
from bridge.exchange.hdf5_values import HDF5_ERRORS, one_line, plain, printable, shortened
from bridge.exchange.model import NAME, Model
from bridge.operations import OPERATIONS, Operation
from bridge.operations.graph import INPUT
from bridge.operations.losses import LOSSES

#: Most layers that are read
MOST_LAYERS = 10_000
#: Largest integer of a hyperparameter
LARGEST = 65536
#: Hyperparameters of several integers, by the type that their classes declare
_SEVERAL = {"Pair": "(height, width)", "Sides": "(left, right, top, bottom)"}
#: Hyperparameters that may be 0; all other integers are 1 or more
FROM_ZERO = ("padding", "output_padding")


def read_model(group: h5py.Group) -> Model:
    """Return the model of the group ``/model``.

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
        found = sorted((_layer(name, layers) for name in layers), key=lambda one: one[0])
        criterion, mean = _loss(loss)
    except HDF5_ERRORS as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"model: it cannot be read ({one_line(error)})") from None
    if [index for index, _ in found] != list(range(len(found))):
        raise FileError(f"model: the layers' index are {[index for index, _ in found][:8]}, expected 0, 1, 2, ...")
    model = Model(tuple(layer for _, layer in found), mean, criterion)
    return Model(model.graph.nodes, mean, criterion)


def _layer(name: str, layers: h5py.Group) -> tuple[int, Operation]:
    """Index and operation of a layer."""
    group = layers.get(name)
    if not NAME.fullmatch(name) or name == INPUT or not isinstance(group, h5py.Group):
        raise FileError(f"model: layer {printable(name)!r} is not a group, or its name is not allowed "
                        "(1 to 64 letters, digits, '_', '.', '-'; not 'input')")
    kind, index = plain(group.attrs, "type"), plain(group.attrs, "index")
    if not isinstance(kind, str) or kind not in OPERATIONS:
        raise FileError(f"model: layer {name} has type {shortened(kind)}, expected one of {', '.join(OPERATIONS)}")
    if not isinstance(index, int):
        raise FileError(f"model: layer {name} has index {shortened(index)}, expected a number from 0 on")
    operation = OPERATIONS[kind]
    own = [one for one in dataclasses.fields(operation) if one.name not in ("name", "inputs")]
    if unknown := sorted({*group.attrs} - {"type", "index", "inputs", *(one.name for one in own)}):
        raise FileError(f"model: layer {name} has the unknown attribute {printable(unknown[0])!r}")
    inputs = plain(group.attrs, "inputs") if "inputs" in group.attrs else ""
    if not isinstance(inputs, str):
        raise FileError(f"model: layer {name} has inputs {shortened(inputs)}, expected names with commas between them")
    given = {one.name: _hyperparameter(name, group, one) for one in own}
    return index, operation(name, inputs=tuple(inputs.split(",")) if inputs else (), **given)


def _hyperparameter(layer: str, group: h5py.Group, field: dataclasses.Field[Any]) -> Any:
    """The attribute as the operation's class declares it: int, float, bool, or several integers."""
    kind, name = str(field.type), field.name
    if name not in group.attrs:
        if field.default is not dataclasses.MISSING:
            return field.default
        raise FileError(f"model: layer {layer} has no {name}")
    lowest = 0 if name in FROM_ZERO else 1
    if kind in _SEVERAL:
        found = np.asarray(group.attrs[name]) if group.attrs.get_id(name).get_storage_size() <= 64 else np.empty(0)
        count = _SEVERAL[kind].count(",") + 1
        if found.shape == (count,) and found.dtype.kind in "iu" and all(lowest <= n <= LARGEST for n in found):
            return tuple(int(n) for n in found)
        raise FileError(f"model: layer {layer} has {name} {shortened(found.tolist())}, expected {_SEVERAL[kind]}, "
                        f"integers from {lowest} to {LARGEST}")
    value = plain(group.attrs, name)
    if kind == "bool" and value in (0, 1):
        return bool(value)
    if kind == "int" and isinstance(value, int) and lowest <= value <= LARGEST:
        return value
    if kind == "float" and isinstance(value, (int, float)) and math.isfinite(value) and value >= 0:
        return float(value)
    expected = {"bool": "0 or 1", "int": f"an integer from {lowest} to {LARGEST}", "float": "a number from 0 on"}[kind]
    raise FileError(f"model: layer {layer} has {name} {shortened(value)}, expected {expected}")


def _loss(group: h5py.Group) -> tuple[str, bool]:
    """The type of the loss, and whether it is a mean."""
    kind, reduction = plain(group.attrs, "type"), plain(group.attrs, "reduction")
    if kind not in LOSSES or reduction not in ("mean", "sum"):
        raise FileError(f"model: loss is {shortened(kind)} with the reduction {shortened(reduction)}, expected one of "
                        f"{', '.join(LOSSES)} with mean or sum")
    return kind, reduction == "mean"
