# SPDX-License-Identifier: MIT
"""What h5py hands out and raises, as plain values and one-line texts."""

from __future__ import annotations

import h5py
import numpy as np

#: What h5py raises for damaged or strange objects; UnicodeDecodeError is a ValueError
HDF5_ERRORS = (OSError, RuntimeError, KeyError, TypeError, ValueError, OverflowError)


def one_line(error: BaseException) -> str:
    """HDF5's messages, which may have several lines, as one."""
    return " ".join(str(error).split()) or type(error).__name__


def plain(attributes: h5py.AttributeManager, name: str) -> str | float | int | None:
    """An attribute as a text or a number; None when it is neither."""
    try:
        value = attributes[name]
    except HDF5_ERRORS:
        return None
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())[()]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.rstrip("\0 ")
    if isinstance(value, (bool, np.bool_, np.integer, int)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    return None
