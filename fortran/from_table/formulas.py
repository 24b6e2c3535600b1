# SPDX-License-Identifier: MIT
"""Functions of one number and of two, and losses: the loops over their formulas, and their numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fortran_text import Row, arms_of, declared, formula, loop, numbers, table, template, used


def settings_of(row: Row) -> dict[str, str]:
    """Return the numbers that stand for a row's settings in its formulas."""
    return {name: f"setting_{i}" for i, name in enumerate(row.get("settings", {}), 1)}


def body(row: Row, names: Mapping[str, str], assignments: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return assignments of formulas to targets, and the locals before them."""
    locals_ = used(" ".join(assignments.values()), row.get("with", {}))
    lines = [f"{name} = {formula(text, names)}" for name, text in locals_.items()]
    return [*lines, *(f"{to} = {formula(text, names)}" for to, text in assignments.items())], locals_


def functions() -> str:
    """Return functions.inc."""
    values, gradients, locals_ = {}, {}, [set(), set()]
    for kind, row in table.rows("functions").items():
        if "value" not in row:
            continue
        names = settings_of(row)
        lines, own = body(row, {**names, "z": "z(i)"}, {"y(i)": row["value"]})
        values[f"f_{kind}"] = loop(lines, own)
        locals_[0] |= own.keys()
        read = {"z": "read(i)", "y": "read(i)", "dy": "dy(i)"}
        lines, own = body(row, {**names, **read}, {"dx(i)": row["gradient"]})
        gradients[f"f_{kind}"] = loop(lines, own)
        locals_[1] |= own.keys()
    return template("operations/functions.inc", VALUES=arms_of(values), VALUE_LOCALS=declared(locals_[0]),
                    GRADIENTS=arms_of(gradients), GRADIENT_LOCALS=declared(locals_[1]))


def pairs() -> str:
    """Return binary_functions.inc."""
    values, gradients = {}, {}
    names = {"a": "a(i)", "b": "b(i)", "dy": "dy(i)"}
    for kind, row in table.rows("arithmetic").items():
        values[f"b_{kind}"] = loop([f"y(i) = {formula(row['value'], names)}"], ())
        for operand, place in (("a", f"2*b_{kind} - 1"), ("b", f"2*b_{kind}")):
            gradients[place] = loop([f"dx(i) = {formula(row[f'gradient_{operand}'], names)}"], ())
    return template("operations/binary_functions.inc", VALUES=arms_of(values), GRADIENTS=arms_of(gradients))


def losses() -> str:
    """Return loss_functions.inc."""
    arms, all_locals = {}, set()
    for kind, row in table.rows("losses").items():
        if "value" not in row:
            continue
        names = {**settings_of(row), "y": "y(i)", "t": "t(i)"}
        lines, own = body(row, names, {"value": row["value"], "dy(i)": row["gradient"]})
        lines = [re.sub("^value = (.*)$", r"part = part + (\1)", line) for line in lines]
        arms[f"loss_{kind}"] = loop(lines, own, " reduction(+:part)")
        all_locals |= own.keys()
    return template("operations/loss_functions.inc", VALUES=arms_of(arms), LOCALS=declared(all_locals))


def numbers_module() -> str:
    """Return numbers.f90."""
    return template("operations/numbers.f90", NUMBERS=_constants())


def constants() -> str:
    """Return numbers.inc."""
    return template("operations/numbers.inc", NUMBERS=_constants())


def _constants() -> str:
    return "".join([
        numbers("f", (kind for kind, row in table.rows("functions").items() if "value" in row)),
        numbers("b", table.rows("arithmetic")),
        numbers("loss", (kind for kind, row in table.rows("losses").items() if "value" in row))])
