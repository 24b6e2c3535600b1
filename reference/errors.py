# SPDX-License-Identifier: MIT
"""The one exception that means: the user asked for something that cannot be done."""


class InputError(ValueError):
    """Bad input or usage.

    The message is one line that names the object, what was found and what was expected. The command line
    prints it and exits with code 2; every other exception is a bug of this package.
    """


def one_line(error: BaseException) -> str:
    """Return the text of a foreign exception on one line, with its type where the text alone says little."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
