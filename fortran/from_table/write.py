#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write what the Fortran sources say of operations, primitives and losses, from their table, `bridge/operations/table`,
of functions of NVIDIA's libraries and of HDF5, from their signatures beside it, and to Fortran, Python and C, from its
faces.

    write.py FOLDER [--depfile FILE]

The build runs it before anything of the package is there. The folders beside it have the files that it writes,
with `<NAME>` where something of the table stands.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bindings import hdf5, nvidia
from faces import face
from formulas import constants, functions, losses, numbers_module, pairs
from fortran_text import HERE, TABLE
from primitives import assignments, interfaces, records, runs
from registries import loss_table, registry
from schema import mistakes
from typed import typed

#: Of f90wrap's extension, and of C programs
FACES = [
    "api/convolution.f90", "api/device.f90", "api/host.f90", "api/info.f90", "api/network.f90", "api/operations.f90",
    "api/tensors.f90", "api/training.f90", "library/c_interface.f90"]
#: Of Fortran programs, whose arrays are of several types
TYPED = ["library/arrays.f90", "library/inputs.f90", "library/typed_network.f90"]
#: By the names of their templates; all lie in one folder
FILES: dict[str, Callable[[], str]] = {
    "core/calls.f90": records, "cuda/bindings/signatures.f90": nvidia, "io/hdf5_c.f90": hdf5,
    "operations/binary_functions.inc": pairs, "operations/functions.inc": functions,
    "operations/loops_assignments.inc": assignments, "operations/loops_table.f90": interfaces,
    "operations/loss_functions.inc": losses, "operations/loss_table.f90": loss_table,
    "operations/numbers.f90": numbers_module, "operations/numbers.inc": constants, "operations/primitives.f90": runs,
    "operations/registry.f90": registry, **{name: partial(face, name) for name in FACES},
    **{name: partial(typed, name) for name in TYPED}}


def main(arguments: list[str] | None = None) -> int:
    """Write the files; exit status 0, or 1 with a message where a row is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the files are written")
    parser.add_argument("--depfile", type=Path, help="is written, too: what the files are made from, for make or ninja")
    chosen = parser.parse_args(arguments)
    if wrong := mistakes():
        print("\n".join(f"write.py: {one}" for one in wrong), file=sys.stderr)
        return 1
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for name, make in FILES.items():
        path, text = chosen.folder / Path(name).name, make()
        # One that stays as it is keeps its time, so that nothing is compiled for it
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    if chosen.depfile:
        # Folders, too: a file that is new changes them
        folders = [path for path in TABLE.iterdir() if any(path.glob("*.toml"))]
        read = [TABLE / "__init__.py", *folders, *TABLE.glob("*/*.toml"), *HERE.glob("*.py"),
                *HERE.rglob("*.in"), *HERE.rglob("*.toml")]
        made = " ".join(str(chosen.folder / Path(name).name) for name in FILES)
        chosen.depfile.write_text(f"{made}: {' '.join(map(str, sorted(read)))}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
