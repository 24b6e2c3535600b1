# SPDX-License-Identifier: MIT
"""Names of an earlier version that work for one version more, each with a DeprecationWarning that says the new one."""

from __future__ import annotations

import warnings

from bridge.common.errors import ArgumentTypeError
from bridge.engine.network.arguments import AFTER_RELU, Keep, flag, kept_activations


def keep_activations_of(keep_activations: object, fuse: object, lean: object) -> Keep:
    """Return what `keep_activations` asks for, or the former options `fuse` and `lean`, which are None if not given.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        If a value is not one of those expected, or a former option is given beside `keep_activations`.
    """
    former = {name: flag(name, value) for name, value in (("fuse", fuse), ("lean", lean)) if value is not None}
    found = kept_activations(keep_activations)
    for name, wanted in former.items():
        if found is not True:
            raise ArgumentTypeError(f"{name}: {wanted!r} and keep_activations={found!r}, expected the latter only")
    meant: Keep = False if former.get("lean") else AFTER_RELU if former.get("fuse") else found
    for name in former:
        warn(f"{name}=", f"keep_activations={meant!r}", stacklevel=4)
    return meant


def warn(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn the caller of a public function that `old` is deprecated, and name what to write instead."""
    warnings.warn(f"{old} is deprecated and will be removed in the next version: use {new}", DeprecationWarning,
                  stacklevel=stacklevel)
