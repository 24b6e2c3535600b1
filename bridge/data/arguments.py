# SPDX-License-Identifier: MIT
"""Checks of numbers and flags that a user gives."""

from __future__ import annotations

import numpy as np

from bridge.common.errors import ArgumentError

#: Numbers are seeds and steps below
LIMIT = 1 << 64


def check_range(name: str, value: object, least: int) -> None:
    """
    Raises
    ------
    ArgumentError
        If it is no whole number from `least` to 2**64 - 1.

    Examples
    --------
    >>> try:
    ...     check_range("seed", 1.5, 0)
    ... except ArgumentError as error:
    ...     print(error)
    seed: 1.5, expected 0 to 2**64 - 1, a whole number
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value < LIMIT:
        raise ArgumentError(f"{name}: {value!r}, expected {least} to 2**64 - 1, a whole number")


def check_flag(name: str, value: object) -> None:
    """
    Raises
    ------
    ArgumentError
        If it is neither True nor False.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(f"{name}: {value!r}, expected true or false")
