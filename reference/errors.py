# SPDX-License-Identifier: MIT
"""The one exception that means: the user asked for something that cannot be done."""


import sysconfig
import traceback
from pathlib import Path

_OURS = str(Path(__file__).parent)
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


class InputError(ValueError):
    """Bad input or usage.

    The message is one line that names the object, what was found and what was expected. The command line
    prints it and exits with code 2; every other exception is a bug of this package.
    """


def one_line(error: BaseException) -> str:
    """Return the text of a foreign exception on one line, with its type where the text alone says little."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def own_line(error: BaseException) -> str:
    """Return where a foreign exception comes from, in brackets: the last line of its author's that was run.

    >>> try:
    ...     int("x")
    ... except ValueError as error:
    ...     own_line(error)
    ''
    """
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(("<", _OURS))]
    theirs = [one for one in frames if not one.filename.startswith(_LIBRARIES)] or frames
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno}: {theirs[-1].line})" if theirs else ""
