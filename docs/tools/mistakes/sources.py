# SPDX-License-Identifier: MIT
"""Fortran routines of which some lines are there twice: with a mistake, and without it.

``fortran/NAME.f90.in`` holds both. A line that ends in ``!wrong`` is only in the program with the mistake, one that
ends in ``!right`` only in the repaired one, and neither has that mark. So what the page shows is what was compiled.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "fortran"
#: No warning that the compiler has finds the mistakes, nor do checks of bounds
COMPILER = ("gfortran", "-std=f2018", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fcheck=all", "-O1", "-shared",
            "-fPIC")
_MARKED = re.compile(r"^(?P<text>.*?)\s*!(?P<of>wrong|right)$")
_SIGNS = {"wrong": "-", "right": "+"}


def marked(name: str) -> list[tuple[str, str]]:
    """Return the lines of a routine, each after ``-`` (in the wrong program), ``+`` (in the right one) or a blank.

    >>> [text.strip() for sign, text in marked("saved") if sign == "-"]
    ['real(c_float) :: beta = 0']
    """
    found = []
    for line in (FOLDER / f"{name}.f90.in").read_text(encoding="utf-8").splitlines():
        mark = _MARKED.match(line)
        found.append((_SIGNS[mark["of"]], mark["text"]) if mark else (" ", line))
    return found


def program(name: str, wrong: bool) -> str:
    """Return the source of a routine, with its mistake or without."""
    left_out = "+" if wrong else "-"
    return "".join(f"{text}\n" for sign, text in marked(name) if sign != left_out)


def difference(name: str) -> str:
    """Return both sources as programs show differences, without the line of the licence.

    >>> [line for line in difference("saved").splitlines() if line.startswith("-")]
    ['-   real(c_float) :: beta = 0']
    """
    return "".join(f"{sign}{text}".rstrip() + "\n" for sign, text in marked(name) if "SPDX" not in text)


class Routine:
    """A compiled routine, called with numpy arrays, tensors of the CPU and numbers.

    Attributes
    ----------
    wrong : it has its mistake
    """

    def __init__(self, name: str, library: Path, wrong: bool) -> None:
        (called,) = re.findall(r"^subroutine (\w+)", program(name, wrong), re.MULTILINE)
        self.wrong = wrong
        self._call = getattr(ctypes.CDLL(str(library)), called)
        self._call.restype = None

    def __call__(self, *arguments: Any) -> None:
        """Call it; arrays of float32 by address, in C's order, whole and real numbers by value."""
        # Until the call is over they must not be freed
        given = [_as_array(one) for one in arguments]
        self._call(*map(_as_c, given))

    def filled(self, shape: tuple[int, ...], *arguments: Any) -> np.ndarray:
        """Call it with a new array as the last argument, and return that."""
        found = np.full(shape, np.nan, np.float32)
        self(*arguments, found)
        return found


def _as_array(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return value
    array = value if isinstance(value, np.ndarray) else np.ascontiguousarray(value.detach().numpy())
    if array.dtype != np.float32 or not array.flags.c_contiguous:
        raise TypeError(f"an array of {array.dtype} was given, expected float32 in C's order")
    return array


def _as_c(value: Any) -> Any:
    if isinstance(value, int):
        return ctypes.c_int(value)
    return ctypes.c_float(value) if isinstance(value, float) else value.ctypes.data_as(ctypes.c_void_p)


def compiled(name: str, wrong: bool, folder: Path) -> Routine:
    """Compile a routine in a folder; one of its own for each call, since a library is loaded once in a process.

    Raises
    ------
    subprocess.CalledProcessError
        If the compiler complains, of a warning, too.
    """
    source = folder / f"{name}-{'wrong' if wrong else 'right'}.f90"
    source.write_text(program(name, wrong), encoding="utf-8")
    library = source.with_suffix(".so")
    subprocess.run([*COMPILER, str(source), "-o", str(library)], cwd=folder, check=True, capture_output=True, text=True)
    return Routine(name, library, wrong)
