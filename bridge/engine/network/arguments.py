# SPDX-License-Identifier: MIT
"""What a `Network` is given, checked: model, optimiser settings, step numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from bridge.common.errors import ArgumentError, ArgumentTypeError, FileError
from bridge.exchange.model import Model
from bridge.exchange.optimizers import KINDS, Adam, Optimizer, Sgd
from bridge.operations import OPERATIONS, Operation
from bridge.operations.aten.operation import lacking
from bridge.operations.hyperparameters import check_layer

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
    if missing := lacking([one for one in model.layers if isinstance(one, Operation)]):
        raise ArgumentError(f"model: {missing}; PyTorch computes them, and bridge.compare judges who does")
    for number, layer in enumerate(model.layers):
        if type(layer) not in OPERATIONS.values():
            raise ArgumentTypeError(f"model: layer {number} is {layer!r}, expected an operation of bridge.operations, "
                                    "as bridge.Conv2d")
    try:
        return replace(model, layers=tuple(check_layer(layer) for layer in model.layers),
                       loss=model.criterion.text).joined()
    except FileError as error:
        raise ArgumentError(str(error)) from None


def as_real(name: str, array: Any, dtype: str, model: Model) -> Any:
    """Return an array of integers as the real numbers that networks compute with, where an operation takes whole
    numbers; any other array stays as it is.

    >>> from bridge.operations import Embedding
    >>> as_real("x", np.array([3]), "float32", Model((Embedding("a", 5, 2),))).dtype
    dtype('float32')

    Raises
    ------
    ArgumentError
        Where one of them is too large to be one of these.
    """
    kind = str(getattr(array, "dtype", "")).removeprefix("torch.")
    if not kind.startswith(("int", "uint")) or not any(one.takes_whole_numbers for one in model.layers):
        return array
    most = 2 ** (np.finfo(dtype).nmant + 1)
    if math.prod(array.shape) and (array.max() > most or array.min() < -most):
        raise ArgumentError(f"{name}: whole numbers from {array.min()} to {array.max()}, expected at most {most} in a "
                            f"network of {dtype}")
    return array.to(_torch_dtype(dtype)) if hasattr(array, "to") else array.astype(dtype)


def _torch_dtype(dtype: str) -> Any:
    import torch

    return getattr(torch, dtype)


def optimizer_of(optimizer: object, lr: float | None = None, momentum: float = 0.0, dampening: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False) -> Optimizer:
    """Return the optimiser of a step: the one that is given, or SGD with these settings.

    >>> optimizer_of(None, 0.5)
    Sgd(lr=0.5, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False)
    """
    if optimizer is None:
        return Sgd(lr, momentum, dampening, weight_decay, nesterov)  # type: ignore[arg-type]  # see `settings_of`
    if type(optimizer) not in KINDS:
        raise ArgumentTypeError(f"optimizer: {optimizer!r}, expected bridge.Sgd, bridge.Adam or bridge.AdamW")
    if lr is not None or momentum or dampening or weight_decay or nesterov:
        raise ArgumentTypeError(f"lr: {lr!r} and other settings of SGD beside an optimizer, expected one of them")
    assert isinstance(optimizer, (Sgd, Adam))
    return optimizer


def settings_of(dtype: str, optimizer: Optimizer) -> tuple[str, np.ndarray]:
    """Return type and settings of an optimiser as cnn_api_training wants them; what `dtype` cannot hold is refused, not
    made infinite.
    """
    found = np.zeros(8)
    for i, (name, value) in enumerate(vars(optimizer).items()):
        if name == "nesterov":
            found[i] = flag("nesterov", value)
            continue
        if type(value) is not float:
            if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
                raise ArgumentTypeError(f"{name}: {value!r}, expected a number")
            if isinstance(value, int) and abs(value) > LARGEST["float64"]:
                raise ArgumentError(f"{name}: an integer of {value.bit_length()} bits, expected a finite number")
        if math.isfinite(value) and abs(float(value)) > LARGEST[dtype]:
            raise ArgumentError(f"{name}: {value!r}, expected a number that {dtype} can hold")
        found[i] = value
    return KINDS[type(optimizer)], found


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
