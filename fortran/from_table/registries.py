# SPDX-License-Identifier: MIT
"""The operations and the losses by their names in exchange files."""

from __future__ import annotations

import re

from fortran_text import MODULES, MOST_SETTINGS, Row, broken, table, template


def real(value: float) -> str:
    """Return a literal of kind dp, or the name of an infinity."""
    if value in (float("inf"), float("-inf")):
        return "plus_infinity" if value > 0 else "minus_infinity"
    return f"{float(value)!r}_dp"


def maker(kind: str, row: Row) -> tuple[str, str]:
    """Return the derived type of an operation's row, and the components that are not as the type has them."""
    if "gradient" in row:
        return _function_maker(kind, row)
    if "gradient_a" in row and "type" not in row:
        reads = re.search(r"\b[ab]\b", row["gradient_a"] + row["gradient_b"])
        return "product_type" if reads else "arithmetic_type", f"number=b_{kind}"
    return row.get("type", f"{kind}_type"), row.get("components", "")


def _function_maker(kind: str, row: Row) -> tuple[str, str]:
    """The same of a function of each number."""
    given = [f"number=f_{kind}"]
    if settings := row.get("settings"):
        left = MOST_SETTINGS - len(settings)
        names = [f'"{name}"' for name in settings] + ['""'] * left
        values = [real(one["default"]) for one in settings.values()] + ["0.0_dp"] * left
        given += ["signed=.true."] * any(one["type"] == "Real" for one in settings.values())
        given += [f"settings=[character(len=16) :: {', '.join(names)}]", f"values=[{', '.join(values)}]"]
    of_output = re.search(r"\by\b", row["gradient"])
    return row.get("type", "function_of_output_type" if of_output else "function_type"), ", ".join(given)


def registry() -> str:
    """Return registry.f90."""
    arms: dict[str, str] = {}
    uses: dict[str, set[str]] = {}
    for family in table.families():
        for kind, row in table.rows(family).items():
            made, components = maker(kind, row)
            uses.setdefault(row.get("module", MODULES.get(family, family)), set()).update([made, *row.get("uses", ())])
            arms[kind] = broken(f"         allocate (operation, source={made}({components}))" if components else
                                f"         allocate ({made} :: operation)")
    return template(
        "operations/registry.f90",
        USES="\n".join(broken(f"   use cnn_operations_{module}, only : {', '.join(sorted(names))}")
                       for module, names in sorted(uses.items())),
        CASES="\n".join(f'       case ("{kind}")\n{arms[kind]}' for kind in sorted(arms)))


def loss_table() -> str:
    """Return loss_table.f90."""
    made, names = [], []
    for kind, row in table.rows("losses").items():
        settings = row.get("settings", {})
        given = [f'"{kind}"', *([f"loss_{kind}"] if "value" in row else [])]
        # Several settings are read by hand
        for name, one in settings.items() if len(settings) == 1 else ():
            given += [f'setting="{name}"', f"default={real(one['default'])}"]
            given += ["is_positive=.true."] if one.get("positive") else []
            given += [f"at_zero=loss_{one['zero']}"] if "zero" in one else []
        made.append(f"loss_type({', '.join(given)})")
        names += [kind, *settings]
    return template("operations/loss_table.f90", LENGTH=str(max(map(len, names))),
                    ROWS=", &\n".join(f"      & {one}" for one in made) + "]")
