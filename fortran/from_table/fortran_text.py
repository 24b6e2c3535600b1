# SPDX-License-Identifier: MIT
"""The table of operations, and how lines of Fortran are written."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TABLE = ROOT / "bridge/operations/table"
WIDTH = 120
#: Of a function of each number
MOST_SETTINGS = 2
#: Of families that are not named as theirs
MODULES = {"functions": "pointwise"}
Row = Mapping[str, Any]


def reader() -> Any:
    """Return the module that reads the table, without the package around it, which may not be built yet."""
    spec = importlib.util.spec_from_file_location("table", TABLE / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        sys.exit(f"write.py: a Python before 3.11 needs the package {error.name} to read TOML; this is "
                 f"{sys.executable} (python3-tomli in Debian and Ubuntu)")
    return module


table = reader()


def template(name: str, **parts: str) -> str:
    """Return a file of a folder beside this one with texts in the places of its names, `<NAME>`."""
    text = (HERE / f"{name}.in").read_text(encoding="utf-8")
    for place, part in parts.items():
        text = text.replace(f"<{place}>", part)
    return text


# --- Fortran's text ----------------------------------------------------------------------------------------------


def broken(line: str) -> str:
    """Return a statement, with continuations where it is longer than a line may be.

    >>> print(broken("   a = " + "b + "*40 + "c").count("&"))
    2
    """
    indent = " " * (len(line) - len(line.lstrip()) + 3)
    done = []
    while len(line) > WIDTH:
        at = max(line.rfind(mark, len(indent), WIDTH - 3) for mark in (", ", " ", "*"))
        done.append(line[:at + 1].rstrip() + " &")
        line = f"{indent}& {line[at + 1:].lstrip()}"
    return "\n".join([*done, line])


def formula(text: str, names: Mapping[str, str]) -> str:
    """Return a formula with names replaced, in one line.

    >>> formula("dy*merge(1.0_wp, alpha, z > 0.0_wp)", {"dy": "dy(i)", "z": "z(i)", "alpha": "a"})
    'dy(i)*merge(1.0_wp, a, z(i) > 0.0_wp)'
    """
    def replaced(found: re.Match[str]) -> str:
        return names.get(found[0], found[0])

    return re.sub(r"(?<![\w.%])[a-z]\w*(?!\s*\()", replaced, " ".join(text.split()))


def used(text: str, locals_: Mapping[str, str]) -> dict[str, str]:
    """Return the locals that a formula reads, and those that these read, in their order."""
    found: set[str] = set(re.findall(r"\b[a-z]\w*\b", text))
    for name in reversed(locals_):
        if name in found:
            found |= set(re.findall(r"\b[a-z]\w*\b", locals_[name]))
    return {name: one for name, one in locals_.items() if name in found}


def loop(lines: Iterable[str], private: Iterable[str], reduction: str = "") -> list[str]:
    """Return a loop over n numbers with this body."""
    clauses = "".join([reduction, f" private({', '.join(private)})" if private else ""])
    return [f"         !$omp simd{clauses}", "         do i = 1, n", *(f"            {one}" for one in lines),
            "         end do"]


def arms_of(arms: Mapping[str, list[str]]) -> str:
    """Return the arms of a `select case`; those that are alike are one."""
    alike: dict[str, list[str]] = {}
    for label, body in arms.items():
        alike.setdefault("\n".join(map(broken, body)), []).append(label)
    return "\n".join(
        broken(f"       case ({', '.join(labels)})") + "\n" + text for text, labels in alike.items())


def declared(locals_: Iterable[str]) -> str:
    """Return the end of a declaration that has locals, too."""
    return "".join(f", {name}" for name in sorted(set(locals_)))


def numbers(prefix: str, names: Iterable[str]) -> str:
    """Return constants that count names."""
    listed = ", ".join(f"{prefix}_{name} = {i}" for i, name in enumerate(names, 1))
    return broken(f"   integer(i8), parameter, public :: {listed}") + "\n"
