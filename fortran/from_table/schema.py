# SPDX-License-Identifier: MIT
"""The rows of the table, checked before anything is written: what a row may have, and what formulas may read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fortran_text import MOST_SETTINGS, ROOT, Row, table

KEYS = {"components", "elementary", "formula", "gradient", "gradient_a", "gradient_b", "kinks", "module", "positive",
        "primitives", "settings", "type", "uses", "value", "with"}
SETTING_KEYS = {"cases", "default", "positive", "type", "zero"}
#: Of an argument of a primitive
ARGUMENT = re.compile(r"tensor|(?:integer|real|logical)(?:\(\d\))?")
#: A name that is no procedure's, no kind's and no part of a number
NAME = re.compile(r"(?<![\w.])[a-z]\w*\b(?!\s*\()")
#: What each formula may read beside settings, locals and the constants of formulas.inc
READS = {"functions": {"value": "z", "gradient": "z y dy"},
         "arithmetic": {"value": "a b", "gradient_a": "a b dy", "gradient_b": "a b dy"},
         "losses": {"value": "y t", "gradient": "y t scale"}}


def constants() -> set[str]:
    """Return the names of fortran/operations/loops/constants.inc.

    >>> {"log_2", "density_at_0"} <= constants()
    True
    """
    text = (ROOT / "fortran/operations/loops/constants.inc").read_text(encoding="utf-8")
    return set(re.findall(r"(?:::|&|,) *(\w+)(?:\([^)]*\))? = ", text))


def mistakes() -> list[str]:
    """Return what is wrong with the table, each with its file, what was found and what was expected."""
    families = [*table.families(), "losses", "primitives"]
    return [f"bridge/operations/table/{family}/{kind}.toml: {said}" for family in families
            for kind, row in table.rows(family).items() for said in of_row(family, row)]


def of_row(family: str, row: Row) -> Iterator[str]:
    """Yield what is wrong with a row.

    >>> list(of_row("functions", {"value": "z", "gradiant": "dy"}))
    ["the key 'gradiant', expected one of those of bridge/operations/table/__init__.py"]
    >>> list(of_row("functions", {"value": "z*z", "gradient": "dy*(z + y)"}))
    ['a gradient of z and of y, expected one of them']
    """
    for key in sorted(row.keys() - KEYS):
        yield f"the key {key!r}, expected one of those of bridge/operations/table/__init__.py"
    settings = row.get("settings", {})
    for name, setting in settings.items():
        for key in sorted(setting.keys() - SETTING_KEYS):
            yield f"setting {name} has the key {key!r}, expected one of {', '.join(sorted(SETTING_KEYS))}"
    if "gradient" in row and len(settings) > MOST_SETTINGS:
        yield f"{len(settings)} settings, expected {MOST_SETTINGS} at most"
    yield from _of_formulas(family, row)
    for name, primitive in row.get("primitives", {}).items():
        yield from _of_primitive(name, primitive)


def _of_formulas(family: str, row: Row) -> Iterator[str]:
    """Names that nobody gives a meaning to, and formulas of what is not there together."""
    locals_, settings = row.get("with", {}), row.get("settings", {})
    known = constants() | settings.keys() | locals_.keys()
    for key, reads in READS.get(family, {}).items():
        if key not in row:
            continue
        found = names_of([row[key], *locals_.values()])
        # Locals may be read by the other formula alone
        allowed = known | set(" ".join(READS[family].values()).split())
        for name in sorted(found - allowed | (names_of([row[key]]) - known - set(reads.split()))):
            yield f"{key} reads {name}, expected {', '.join(reads.split())}, a setting, a constant or a name of [with]"
    if family == "functions" and "gradient" in row and {"y", "z"} <= names_of(_with_locals(row)):
        yield "a gradient of z and of y, expected one of them"


def _with_locals(row: Row) -> list[str]:
    """The gradient, and the locals that it reads."""
    texts, locals_ = [row["gradient"]], dict(row.get("with", {}))
    while more := [name for name in locals_ if name in names_of(texts)]:
        texts += [locals_.pop(name) for name in more]
    return texts


def _of_primitive(name: str, primitive: Row) -> Iterator[str]:
    arguments = {key: one for key, one in primitive.items() if isinstance(one, list)}
    for key, one in arguments.items():
        if len(one) != 2 or not ARGUMENT.fullmatch(one[0]):
            yield f"primitive {name} has {key} = {one}, expected a type and what it is"
    if not arguments or [*arguments.values()][-1][0] != "tensor":
        yield f"primitive {name}: the last argument is no tensor, expected the one that is written"


def names_of(texts: Iterable[str]) -> set[str]:
    """Return the names that formulas read.

    >>> sorted(names_of(["merge(1.0_wp, alpha, z > 0.0_wp)"]))
    ['alpha', 'z']
    """
    return {name for text in texts for name in NAME.findall(text)} - {"and", "or", "not"}
