# SPDX-License-Identifier: MIT
"""The exceptions of the package. A message names the object, what was found, what was expected."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_OURS = str(Path(__file__).parent.parent)
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


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


def foreign(error: BaseException) -> str:
    """Return an exception of the user's own code on one line: its type, its text, and the last line of that code.

    >>> foreign(ValueError("width must be odd"))
    'ValueError: width must be odd'
    """
    if isinstance(error, SyntaxError) and error.filename:
        # No line of it ran; the traceback ends in who imported it
        line = f": {error.text.strip()}" if error.text else ""
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno}{line})"
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(("<", _OURS))]
    theirs = [one for one in frames if not one.filename.startswith(_LIBRARIES)] or frames
    where = f" ({theirs[-1].filename}, line {theirs[-1].lineno}: {theirs[-1].line})" if theirs else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
