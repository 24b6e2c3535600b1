# SPDX-License-Identifier: MIT
"""What the programs share: exit codes that mean one thing, and an output that may be cut off.

Exit code 1 says that what was judged is not right: the program has a bug, or, for `bridge.doctor`, the device cannot be
used. Nothing else may give it: not a pipe closed by its reader, not Ctrl-C, not a fault of ours.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from io import TextIOWrapper
from typing import IO, Any

from rich.console import Console, ConsoleDimensions

from bridge.common.errors import BridgeError
from bridge.common.signals import Ended, end_by, signals_raise
from bridge.common.version import version

BAD_INPUT, INTERRUPTED = 2, 130


#: Columns and lines where no terminal is
NO_EDGE = 1 << 16


class Output(Console):
    """A console whose reader may go (``| head``): what is left is dropped, and the verdict keeps its exit code.

    Only a terminal has an edge at which lines are wrapped and tables shortened: a file or a pipe has each sentence on
    one line and every column whole, whatever the variable COLUMNS says.
    """

    def __init__(self, **given: Any) -> None:
        # Paths and names with brackets are no markup
        super().__init__(**{"markup": False} | given)
        if isinstance(self.file, TextIOWrapper) and self.file.errors == "strict":
            # Names of files may be no UTF-8
            self.file.reconfigure(errors="backslashreplace")
        if not self.file.isatty():
            self.size = ConsoleDimensions(NO_EDGE, NO_EDGE)

    def print(self, *values: Any, **given: Any) -> None:
        """Print as rich does; its releases before 13.8 raise BrokenPipeError here."""
        try:
            super().print(*values, **given)
        except BrokenPipeError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Go on in silence; rich would end the process with 1."""
        self.quiet = True
        _silence(self.file)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps the prose of a help to the terminal; a paragraph with an indented line is a list and stays as written."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip().split("\n\n")
        return "\n\n".join(one if "\n " in one else textwrap.fill(one, width, break_on_hyphens=False) for one in parts)


def new_parser(name: str, description: str, epilog: str = "") -> argparse.ArgumentParser:
    """Return the parser of ``python -m name``, which knows ``--version`` besides.

    Parameters
    ----------
    name : of the module
    description, epilog : before and after the options. The docstring of a module may serve: its first words,
        "``python -m name``:", are left out, and so are all double backticks.
    """
    prose = description.removeprefix(f"``python -m {name}``: ").replace("``", "")
    p = argparse.ArgumentParser(prog=f"python -m {name}", formatter_class=HelpFormatter, epilog=epilog,
                                description=prose[0].upper() + prose[1:])
    p.add_argument("--version", action="version", version=f"{name} {version()}", help="print the version")
    return p


def run(name: str, work: Callable[[], int], *, at_once: bool = False) -> int:
    """Return the exit code of a program: what `work` returns, or that of the exception it ended with, said in one line.

    Parameters
    ----------
    name : of the program, before each message
    work : returns the exit code
    at_once : a signal ends the process without cleaning up: `work` is one call of the library, which does that itself

    Examples
    --------
    >>> run("bridge.example", lambda: 0)
    0
    """
    try:
        with nullcontext() if at_once else signals_raise():
            code = work()
    except (BridgeError, OSError) as error:
        code = complain(name, _said(error))
    except KeyboardInterrupt:
        code = complain(name, "interrupted", INTERRUPTED)
    except Ended as ended:
        code = complain(name, f"ended by {ended}")
        end_by(ended.number)
    except MemoryError as error:
        code = complain(name, f"not enough memory ({error})" if str(error) else "not enough memory")
    except Exception:
        with suppress(OSError):
            traceback.print_exc()
        code = complain(name, "this is a fault of ours, not a verdict")
    return _flushed(name, code)


def _said(error: Exception) -> str:
    """The message, with the name of a file first, as all others have it."""
    if isinstance(error, OSError) and isinstance(error.filename, str):
        return f"{error.filename}: {error.strerror}"
    return str(error)


def complain(name: str, text: str, code: int = BAD_INPUT) -> int:
    """Say what is wrong in one line on standard error; give back the exit code."""
    with suppress(OSError):
        print(f"{name}: {' '.join(text.splitlines())}", file=sys.stderr, flush=True)
    return code


def _flushed(name: str, code: int) -> int:
    """Python would answer with 120 if it could not write the rest at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except BrokenPipeError:
            _silence(stream)
        except OSError as error:
            _silence(stream)
            code = code or complain(name, f"the output cannot be written: {error.strerror}")
    return code


def _silence(stream: IO[str]) -> None:
    """Lead a stream nowhere, with what it still holds."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
