# SPDX-License-Identifier: MIT
"""The exceptions of the package. A message names the object, what was found, what was expected."""

from __future__ import annotations


class BridgeError(Exception):
    """Anything that the user can mend: bad input, a bad file, a missing library. Exit code 2."""


class ArgumentError(BridgeError, ValueError):
    """An argument has a wrong value, shape, order, or is not finite, writable, ..."""


class ArgumentTypeError(BridgeError, TypeError):
    """An argument has a wrong type or element type."""


class FileError(BridgeError, ValueError):
    """A file is not what it should be. The message starts with its name."""


class EngineError(BridgeError, RuntimeError):
    """The Fortran library refused, or is not installed."""


class DivergenceError(EngineError):
    """The loss of a training step is NaN or infinite; where that was seen before the update, no weight has changed."""


class OracleError(BridgeError, RuntimeError):
    """What computes the truth is wrong itself: nothing can be said about any candidate."""
