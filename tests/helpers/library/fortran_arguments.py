# SPDX-License-Identifier: MIT
"""The dummy arguments of Fortran procedures, and which of them have no comment of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: "pure integer(i8) function", "attributes(global) subroutine", with the name and the arguments
HEADER = re.compile(r"(?!end\b)(?:\w+(?:\([^()]*\))?\s+)*(?:subroutine|function)\s+(\w+)\s*(?:\(([^)]*)\))?",
                    re.IGNORECASE)
END = re.compile(r"end\s*(?:subroutine|function)\b", re.IGNORECASE)


@dataclass
class Procedure:
    """A procedure that is being read."""

    name: str
    line: int
    arguments: list[str]
    described: set[str] = field(default_factory=set)


#: Their names say what they are: the object of a bound procedure, where it computes, and what went wrong
KNOWN = {"self", "backend", "device", "error"}


def with_bodies(path: Path) -> str:
    """The text of a source, with the bodies of procedures where they are included.

    What is included and has procedures of its own is a source of its own, and left out.
    """
    def body(include: re.Match[str]) -> str:
        file = path.parent / include[1]
        # What the build writes has its template as a source of its own
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        return "" if any(HEADER.match(statement) for _, statement, _ in statements(text)) else text

    text = path.read_text(encoding="utf-8")
    if path.name == "tiles.f90.in":
        text = subprocess.run([sys.executable, path.with_name("tiles.py"), path, "/dev/stdout"], text=True, check=True,
                              capture_output=True).stdout
    return re.sub(r'^ *include "(.*)"$', body, text, flags=re.MULTILINE)


def undescribed(text: str) -> list[str]:
    """Arguments without a line ``!>`` directly above a declaration that is theirs alone.

    Parameters
    ----------
    text
        A Fortran source: procedures of modules, interfaces, kernels, procedures inside others.

    Returns
    -------
    list of str
        ``"line: procedure: argument"`` for each of them, with the line where the procedure begins.
    """
    found: list[str] = []
    procedures: list[Procedure] = []
    for line, statement, is_described in statements(text):
        if header := HEADER.match(statement):
            names = [name.strip().lower() for name in (header[2] or "").split(",") if name.strip()]
            procedures.append(Procedure(header[1], line, names))
        elif END.match(statement) and procedures:
            done = procedures.pop()
            found += [f"{done.line}: {done.name}: {name}" for name in done.arguments
                      if name not in done.described | KNOWN]
        elif procedures and is_described and len(names := declared(statement)) == 1:
            procedures[-1].described |= set(names)
    return found


def statements(text: str) -> Iterator[tuple[int, str, bool]]:
    """Statements, each as one line, with the number of its first, and whether a comment ``!>`` is directly above."""
    joined, first, is_described = "", 0, False
    for number, line in enumerate(text.splitlines(), 1):
        code = without_comment(line).strip()
        if not code:
            if not joined:
                is_described = "!" in line and (is_described or line.lstrip().startswith("!>"))
            continue
        first = first if joined else number
        joined += code.removeprefix("&") if joined else code
        if joined.endswith("&"):
            joined = joined[:-1]
            continue
        yield first, joined, is_described
        joined, is_described = "", False


def without_comment(line: str) -> str:
    """A line up to the ``!`` that is not in quotes."""
    quote = ""
    for at, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "!":
            return line[:at]
    return line


def declared(statement: str) -> list[str]:
    """The names behind ``::``, without shapes and values, in lower case."""
    names = statement.partition("::")[2]
    while (shorter := re.sub(r"\([^()]*\)", "", names)) != names:
        names = shorter
    return [name.partition("=")[0].strip().lower() for name in names.split(",") if name.strip()]
