# SPDX-License-Identifier: MIT
"""What a `Network` is given, checked: model, optimiser settings, step numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final, Literal, TypeAlias

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError, FileError
from bridge.exchange.model import Conv2d, Model, Relu

#: Largest numbers of the element types
LARGEST = {name: float(np.finfo(name).max) for name in ("float32", "float64")}
#: Of the tensors between layers those are kept that come after a ReLU, where there is one
AFTER_RELU: Final = "after_relu"
#: What a network may be told to keep
Keep: TypeAlias = bool | Literal["after_relu"]


def checked_model(model: object) -> Model:
    """Return the model with its pairs as tuples, as it would be read from a file.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        Naming the layer.
    """
    if not isinstance(model, Model):
        raise ArgumentTypeError(f"model: {type(model).__qualname__}, expected bridge.Model")
    if not isinstance(model.layers, (tuple, list)) or not isinstance(model.mean, bool):
        raise ArgumentTypeError(f"model: layers {model.layers!r} and mean {model.mean!r}, expected a tuple and a bool")
    for number, layer in enumerate(model.layers):
        if not isinstance(layer, (Conv2d, Relu)):
            raise ArgumentTypeError(f"model: layer {number} is {layer!r}, expected bridge.Conv2d or bridge.Relu")
    try:
        return Model.from_json(model.to_json())
    except FileError as error:
        raise ArgumentError(str(error)) from None
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"model: {error}, expected texts, int and bool in its layers") from None


def sgd_settings(dtype: str, lr: float, momentum: float, dampening: float, weight_decay: float,
                 nesterov: bool) -> tuple[float, float, float, float, int]:
    """Return the settings of SGD as cnn_api_training wants them; what `dtype` cannot hold is refused, not made
    infinite.
    """
    numbers = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise ArgumentTypeError(f"{name}: {value!r}, expected a number")
        if isinstance(value, int) and abs(value) > LARGEST["float64"]:
            raise ArgumentError(f"{name}: an integer of {value.bit_length()} bits, expected a finite number")
        if math.isfinite(value) and abs(float(value)) > LARGEST[dtype]:
            raise ArgumentError(f"{name}: {value!r}, expected a number that {dtype} can hold")
    return float(lr), float(momentum), float(dampening), float(weight_decay), int(flag("nesterov", nesterov))


def flag(name: str, value: object) -> bool:
    """Return a bool, and nothing that is only true or false in effect."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(f"{name}: {value!r}, expected a bool")
    return bool(value)


def kept_activations(value: object) -> Keep:
    """Return the argument `keep_activations` of a network, checked.

    >>> kept_activations("after_relu")
    'after_relu'
    """
    if isinstance(value, str):
        if value != AFTER_RELU:
            raise ArgumentError(f"keep_activations: {value!r}, expected True, {AFTER_RELU!r} or False")
        return AFTER_RELU
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(f"keep_activations: {value!r}, expected True, {AFTER_RELU!r} or False")
    return bool(value)


def parameter_names(name: str, given: object, known: Collection[str]) -> frozenset[str]:
    """Return the names of parameters; a text alone would be one of letters.

    >>> parameter_names("frozen", ["a.bias"], ["a.weight", "a.bias"])
    frozenset({'a.bias'})
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ArgumentTypeError(f"{name}: {given!r}, expected a tuple of names")
    found = tuple(given)
    for one in found:
        if one not in known:
            raise ArgumentError(f"{name}: {one!r}, expected parameters of {', '.join(known)}")
    return frozenset(found)


def step_number(step: object) -> int:
    """Return a number of a step that Fortran can take."""
    if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
        raise ArgumentTypeError(f"step: {step!r}, expected an int")
    if not 0 <= step <= np.iinfo(np.int32).max:
        raise ArgumentError(f"step: {step!r}, expected a number from 0 to {np.iinfo(np.int32).max}")
    return int(step)
