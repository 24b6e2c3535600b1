# SPDX-License-Identifier: MIT
"""A second compiler's opinion of the Fortran sources: flang's semantic check, which writes no object.

Modules come in the order in which they use each other. What uses a module that does not compile is left out, and
counted; so is what uses `mpi_f08`, which is gfortran's alone. Files in CUDA Fortran (.cuf) are checked as such, with
the declarations of cudafor.f90 for NVIDIA's module. Exit status 0 when flang has no word to say, or when there is no
flang.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from graphlib import TopologicalSorter
from pathlib import Path

FORTRAN = Path(__file__).resolve().parents[1] / "fortran"
#: The address of a network is compared, and its target is not used afterwards
STANDARD = ["-std=f2018", "-pedantic", "-Werror", "-Wno-non-target-passed-to-target"]
#: What meson fills into the templates, for each precision
PRECISIONS = {"f32": {"KIND": "sp"}, "f64": {"KIND": "dp"}}
LEVELS = ("baseline", "avx2", "avx512")
#: Writes the tiles of their lines
TILES = FORTRAN / "cpu/kernels/tiles.py"
#: Templates of the modules that choose among the levels; the build's own lines for each are in the meson.build beside
CHOOSING = ("cpu/kernels/levels", "oracle/deviation_levels", "operations/loops_levels")


def in_order(sources: dict[Path, str]) -> list[Path]:
    """The sources, each behind those whose modules it uses."""
    where = {name: path for path, text in sources.items() for name in modules(text)}
    uses = {path: {where[name] for name in used(text) & where.keys()} - {path} for path, text in sources.items()}
    return list(TopologicalSorter(uses).static_order())


def modules(text: str) -> set[str]:
    """Names of the modules that a source holds."""
    return set(re.findall(r"^module (\w+)$", text, re.MULTILINE))


def used(text: str) -> set[str]:
    """Names after `use`."""
    return set(re.findall(r"^(?:\s*use(?:,[^:\n]*::)?\s+|submodule\()(\w+)", text, re.MULTILINE))


def configured(folder: Path) -> list[Path]:
    """The templates (.f90.in) filled in, in this folder."""
    paths = [_fill(FORTRAN / "core/version.f90.in", folder / "version.f90", {"version": "0"})]
    paths += [_fill(FORTRAN / "oracle/deviation_runs.f90.in", folder / f"deviation_runs_{level}.f90", {"LEVEL": level})
              for level in LEVELS]
    tiles = _tiles()
    for part, (precision, names), level in itertools.product(("tiles", "all"), PRECISIONS.items(), LEVELS):
        values = {"PRECISION": precision, "LEVEL": level, **names, **tiles}
        paths.append(_fill(FORTRAN / f"cpu/kernels/{part}.f90.in", folder / f"{part}_{precision}_{level}.f90", values))
        if part == "tiles":
            subprocess.run([sys.executable, TILES, paths[-1], paths[-1]], check=True)
    for (precision, names), level in itertools.product(PRECISIONS.items(), LEVELS):
        values = {"PRECISION": precision, "LEVEL": level, **names}
        paths.append(_fill(FORTRAN / "operations/loops.f90.in", folder / f"loops_{precision}_{level}.f90", values))
    paths += [_fill(FORTRAN / f"{name}.f90.in", folder / f"{Path(name).name}.f90", _choices(FORTRAN / name))
              for name in CHOOSING]
    return paths + _from_table(folder)


def _from_table(folder: Path) -> list[Path]:
    """What is written from the table of operations; sources find what they include of it there."""
    subprocess.run([sys.executable, FORTRAN / "from_table/write.py", folder], check=True)
    return [folder / path.name.removesuffix(".in") for path in (FORTRAN / "from_table").rglob("*.f90.in")]


def _choices(template: Path) -> dict[str, str]:
    """The lines of each level, from the texts of the build and what stands in their gaps."""
    build = (template.parent / "meson.build").read_text(encoding="utf-8")
    level_numbers = {level: number for number, level in enumerate(LEVELS, 1)}
    lines: dict[str, dict[str, None]] = {"uses": {}, "cases": {}}
    for (level, number), (precision, first) in itertools.product(level_numbers.items(), (("f32", 0), ("f64", 10))):
        names = {"level": level, "number": number, "precision": precision, "first": first,
                 "level_numbers": level_numbers}
        for name, text, arguments in re.findall(r"^ +(uses|cases) \+= '(.*)'\.format\((.*)\)$", build, re.MULTILINE):
            values = eval(f"({arguments},)", names)
            for i, value in enumerate(values):
                text = text.replace(f"@{i}@", str(value))
            lines[name][text.replace("\\n", "\n")] = None
    return {"USES": "\n".join(lines["uses"]), "CASES": "\n".join(lines["cases"]),
            "COMPILED": ", ".join([".true."] * len(LEVELS))}


def _tiles() -> dict[str, str]:
    """Names of the tiles, and their sizes for 16 registers, as an example, from the build's own table."""
    names = subprocess.run([sys.executable, TILES, FORTRAN / "cpu/kernels/tiles.f90.in"], check=True, text=True,
                           capture_output=True).stdout.split()
    text = (FORTRAN / "cpu/kernels/meson.build").read_text(encoding="utf-8")
    table = text.partition("tiles_of_16 = {")[2].partition("}")[0]
    return {"VECTOR_BYTES": "32", "TILES": ", &\n      & ".join(names), **dict(re.findall(r"'(\w+)': '(\d+)'", table))}


def _fill(template: Path, path: Path, values: dict[str, str]) -> Path:
    text = template.read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    # In a folder of the template's name, by which `main` finds what it includes
    place = path.parent / template.parent.relative_to(FORTRAN) / path.name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")
    return place


def _included(path: Path, folder: Path) -> list[str | Path]:
    """Where a filled template finds what its template includes."""
    return ["-I", FORTRAN / path.parent.relative_to(folder)] if path.is_relative_to(folder) else []


def main() -> int:
    flang = next(filter(None, map(shutil.which, ("flang-22", "flang-23", "flang"))), None)
    if flang is None:
        print("flang's check: skipped: no flang")
        return 0
    failed, checked, left_out = False, 0, 0
    # Modules that nobody complained about, but flang cannot read
    absent: set[str] = {"mpi_f08"}
    with tempfile.TemporaryDirectory() as folder:
        paths = [*FORTRAN.rglob("*.f90"), *FORTRAN.rglob("*.cuf"), Path(__file__).with_name("cudafor.f90"),
                 *configured(Path(folder))]
        for path in in_order({path: path.read_text(encoding="utf-8") for path in sorted(paths)}):
            text = path.read_text(encoding="utf-8")
            if absent & used(text):
                absent |= modules(text)
                left_out += 1
                continue
            options = ["-module-dir", folder, "-I", folder, *_included(path, Path(folder)),
                       *([] if path.suffix == ".cuf" else STANDARD)]
            done = subprocess.run([flang, "-fc1", "-fsyntax-only", *options, path],
                                  capture_output=True, text=True, check=False)
            said = (done.stdout + done.stderr).strip()
            failed |= done.returncode != 0 or bool(said)
            checked += 1
            if said:
                print(said)
            if done.returncode != 0:
                absent |= modules(text)
    print(f"flang's check: {checked} files",
          "with complaints" if failed else "clean", f"({left_out} left out, as they use what flang cannot read)")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
