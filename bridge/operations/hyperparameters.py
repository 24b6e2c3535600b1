# SPDX-License-Identifier: MIT
"""The hyperparameters of an operation, checked by the types that its class declares."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bridge.common.errors import FileError
from bridge.operations.operation import Operation

#: Allowed names of layers
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")
#: Largest integer of a hyperparameter: `largest` of fortran/operations/attributes.f90
LARGEST = 2**24
#: The same of windows, steps and borders, and of what may be 0: `widest` there
WIDEST = 65536
#: Most numbers of a hyperparameter that is a list of them
MOST = 4096
#: Of a tensor: `max_rank` of fortran/core/tensor.f90
MOST_DIMENSIONS = 8
#: Hyperparameters of several integers, by the type that their classes declare
SEVERAL = {"Pair": "(height, width)", "Triple": "(depth, height, width)", "Sides": "(left, right, top, bottom)"}
#: Hyperparameters of up to so many integers
UP_TO = {"Sizes": 3, "Extents": MOST_DIMENSIONS - 1, "Axes": MOST_DIMENSIONS, "Shifts": MOST_DIMENSIONS,
         "Indices": MOST}
#: Integers that are not from 1 to LARGEST: extents, of which -1 is what is left, axes and indices, from the last if
#: negative
RANGES = {"Extents": (-1, LARGEST), "Axis": (-MOST_DIMENSIONS, MOST_DIMENSIONS - 1),
          "Axes": (-MOST_DIMENSIONS, MOST_DIMENSIONS - 1), "Index": (-LARGEST, LARGEST), "Shifts": (-LARGEST, LARGEST),
          "Indices": (0, LARGEST - 1)}
#: Hyperparameters that may be 0; all other integers are 1 or more
FROM_ZERO = ("padding", "output_padding", "ignore_index", "divisor_override", "degree", "size")
Weights = tuple[float, ...]


def fields(operation: type[Operation] | Operation) -> list[dataclasses.Field[Any]]:
    """Return the hyperparameters of an operation: what its class declares besides name and inputs.

    >>> from bridge.operations import LeakyRelu
    >>> [one.name for one in fields(LeakyRelu)]
    ['negative_slope']
    """
    return [one for one in dataclasses.fields(operation) if one.name not in ("name", "inputs")]


def numbers(operation: Operation) -> dict[str, tuple[float, ...]]:
    """Return the hyperparameters of an operation as numbers, one or several for each.

    >>> from bridge.operations import Conv2d
    >>> numbers(Conv2d("a", 1, 2, (3, 3)))["kernel_size"]
    (3, 3)
    """
    found = {one.name: getattr(operation, one.name) for one in fields(operation)}
    return {name: value if isinstance(value, tuple) else (value,) for name, value in found.items()}


def described(
    operation: type[Operation], name: str, inputs: tuple[str, ...], given: Mapping[str, Any]
) -> Operation:
    """Return an operation from its hyperparameters as files have them: flags are 0 or 1, and what is missing has its
    default.

    Raises
    ------
    FileError
        If one is unknown, missing without a default, of another type, or out of its range.
    """
    found: dict[str, Any] = {}
    for field in fields(operation):
        if field.name in given:
            value = given[field.name]
            is_flag = str(field.type) == "bool" and isinstance(value, int) and value in (0, 1)
            found[field.name] = check_value(f"layer {name}", field, bool(value) if is_flag else value)
        elif field.default is dataclasses.MISSING:
            raise FileError(f"model: layer {name} has no {field.name}")
    if unknown := sorted(given.keys() - found.keys()):
        raise FileError(f"model: layer {name} has the unknown attribute {unknown[0]!r:.80}")
    made = operation(name, inputs=inputs, **found)
    made.check()
    return made


def check_layer(layer: Operation) -> Operation:
    """Return an operation whose name and hyperparameters a file could have, with lists as tuples.

    Raises
    ------
    FileError
        Naming the layer, what was found and what was expected.
    """
    if not isinstance(layer.name, str) or not NAME.fullmatch(layer.name) or layer.name == "input":
        raise FileError(f"model: layer name {layer.name!r}, expected 1 to 64 letters, digits, '_', '.', '-', not "
                        "'input'")
    given = {one.name: check_value(f"layer {layer.name}", one, getattr(layer, one.name)) for one in fields(layer)}
    checked = dataclasses.replace(layer, **given)
    checked.check()
    return checked


def check_value(owner: str, field: dataclasses.Field[Any], value: Any) -> Any:
    """Return the value of a hyperparameter, of the type that its class declares.

    Parameters
    ----------
    owner : what has it, in words

    Raises
    ------
    FileError
        If it is of another type, or out of its range.
    """
    kind, name = str(field.type), field.name
    usual = 0 if name in FROM_ZERO else 1, WIDEST if kind in SEVERAL or name in FROM_ZERO else LARGEST
    lowest, highest = RANGES.get(kind, usual)
    if kind in SEVERAL:
        if (isinstance(value, (tuple, list)) and len(value) == SEVERAL[kind].count(",") + 1
                and all(_is_integer(n, lowest, highest) for n in value)):
            return tuple(int(n) for n in value)
        expected = f"{SEVERAL[kind]}, integers from {lowest} to {highest}"
    elif kind == "Weights":
        listed = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        if 1 <= len(listed) <= MOST and all(_is_number(one) for one in listed):
            return tuple(float(one) for one in listed)
        expected = f"1 to {MOST} numbers from 0 on"
    elif kind in UP_TO:
        found = value if isinstance(value, (tuple, list)) else (value,)
        if 0 < len(found) <= UP_TO[kind] and all(_is_integer(n, lowest, highest) for n in found):
            return tuple(int(n) for n in found)
        expected = f"1 to {UP_TO[kind]} integers from {lowest} to {highest}"
    elif kind == "Text":
        if isinstance(value, str):
            return value
        expected = "a text"
    elif kind == "bool":
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        expected = "0 or 1"
    elif kind in ("int", "Axis", "Index"):
        if _is_integer(value, lowest, highest):
            return int(value)
        expected = f"an integer from {lowest} to {highest}"
    else:
        is_any = kind == "Real" and isinstance(value, (int, float, np.integer, np.floating)) and not math.isnan(value)
        if is_any or _is_number(value):
            return float(value)
        expected = "a number" if kind == "Real" else "a number from 0 on"
    raise FileError(f"model: {owner} has {name} {value!r:.60}, expected {expected}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and bool(math.isfinite(value) and value >= 0)


def _is_integer(value: Any, lowest: int, highest: int) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(lowest <= value <= highest)
