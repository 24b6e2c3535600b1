# SPDX-License-Identifier: MIT
"""The table of operations and losses: a TOML file for each, a folder for each family.

The build writes Fortran from it (`fortran/from_table`), so that a function of each number, or a loss, is its
file here and its class with the oracle's formula, which is written by hand (`bridge.operations`).

A file has, of a function of each number z (with its output y): ``value`` and ``gradient``, Fortran's formulas, in which
its settings stand by their names, and ``dy`` for the gradient of the output; ``with``, formulas that these name. A
``gradient`` that reads y is found from the output. A function of two numbers a and b has ``gradient_a`` and
``gradient_b``. A loss of an output y and its target t has the ``value`` that is added up, and the ``gradient`` with its
factor ``scale``. The formulas that they may call are in fortran/operations/loops/formulas.inc.

Any other operation has Fortran's ``type`` (``<name>_type`` if it is not said), its ``components`` where they are not
the type's own, what these ``uses``, and the ``module``, if it is not named as the folder.

``settings`` are the hyperparameters, in torch's order: the ``type`` of the class's field, the ``default``, and the
``cases`` that `bridge.gradcheck` tries, where none has a derivative at ``kinks`` or is of numbers that are not
``positive``. One may be ``positive``, or make the loss another one where it is ``zero``. An ``elementary`` function is
no activation. A loss that torch lacks has a ``formula``, which PyTorch and JAX evaluate.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parent
Row = Mapping[str, Any]


def rows(family: str) -> dict[str, Row]:
    """Return the rows of a family by their names, in alphabetical order.

    >>> rows("losses")["l1"]["value"]
    'abs(d)'
    """
    return {path.stem: tomllib.loads(path.read_text(encoding="utf-8"))
            for path in sorted((FOLDER / family).glob("*.toml"))}


def families() -> list[str]:
    """Return the families of operations, which are all folders but two.

    >>> families()[:3]
    ['arithmetic', 'functions', 'joins']
    """
    return sorted({path.parent.name for path in FOLDER.glob("*/*.toml")} - {"losses", "primitives"})
