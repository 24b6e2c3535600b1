# SPDX-License-Identifier: MIT
"""The Fortran programs, which are installed in this package, and the commands that start them.

So they are found wherever an installer puts packages, with the libraries that a wheel brings along. Nothing is
imported that takes time: the Python of a command is there for some 20 ms, and then is the program.

>>> path("cnn_step").endswith("/cnn_programs/cnn_step")
True
"""

import os
import signal
import sys


def path(name: str) -> str:
    """Where a program lies, ``cnn_step`` or ``cnn_time``."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


def cnn_step() -> None:
    """The command ``cnn_step``."""
    _become("cnn_step")


def cnn_time() -> None:
    """The command ``cnn_time``."""
    _become("cnn_time")


def _become(name: str) -> None:
    """Put the program in the place of this process."""
    # Python ignores these, and a program inherits that: a closed pipe or a full quota shall end it as ever
    for one in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(one, signal.SIG_DFL)
    try:
        os.execv(path(name), [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: cannot start {path(name)}: {error.strerror}")
