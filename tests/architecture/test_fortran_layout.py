# SPDX-License-Identifier: MIT
"""The architecture of the Fortran sources, checked: which room may use which, names that lead to files, headers."""

from __future__ import annotations

import doctest
import importlib.util
import re
import shutil
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

#: Fortran's rooms, each with those whose modules it may use beside its own. A folder's own files (cpu/backend.f90) are
#: a room above its sub-folders; the files of fortran/ itself are the room ".".
ROOMS = {
    "core": "",
    "cpu/plan": "core",
    "cpu/kernels": "core cpu/plan",
    "cpu": "core cpu/plan cpu/kernels",
    "naive": "core cpu",
    "cuda/bindings": "core",
    "cuda/plans": "core cuda/bindings",
    "cuda/device": "core cuda/bindings cuda/plans",
    "cuda/operations": "core cuda/bindings cuda/plans cuda/device",
    "cuda/info": "core cuda/bindings cuda/plans cuda/device",
    "cuda/kernels": "",
    "cuda": "core cuda/bindings cuda/plans cuda/device cuda/operations",
    ".": "core cpu naive cuda cuda/device",
    "oracle": "core cpu",
    "operations": "core cpu",
    "operations/matrices": "core operations",
    "operations/recurrence": "core operations",
    "operations/volumes": "core operations",
    "optimizers": "core",
    "model": "core . operations optimizers",
    "io": "core cpu operations optimizers model",
    "library": "core . operations optimizers model io",
    "app": "core . model io",
    "api": "core cpu cuda/plans cuda/info . oracle operations optimizers model io",
}

#: What meson writes into the gaps of a template, see fortran/cpu/kernels/meson.build
TEMPLATES = {"@PRECISION@": ["f32", "f64"], "@LEVEL@": ["baseline", "avx2", "avx512"]}


def fortran_sources(root: Path) -> list[Path]:
    return sorted((root / "fortran").rglob("*.f90*"))


def place(path: Path, root: Path) -> Path:
    """Where a source lies under fortran/; what is made from the table of operations belongs where its template says."""
    found = path.relative_to(root / "fortran")
    return found.relative_to("from_table") if found.parts[0] == "from_table" else found


def room(path: Path, root: Path) -> str:
    """The folder of a Fortran source, as ROOMS names it."""
    return place(path, root).parent.as_posix()


def expanded(name: str) -> list[str]:
    """The modules that a template, or a module that uses one, means by a name; just the name where it has no gap."""
    for gap, words in TEMPLATES.items():
        if gap in name:
            return [one for word in words for one in expanded(name.replace(gap, word))]
    return [name]


def modules(root: Path) -> list[tuple[str, Path]]:
    """Every Fortran module and submodule with the file that has it, or the template that it is made from."""
    return [(name, path) for path in [*fortran_sources(root), *(root / "fortran").rglob("*.cuf")]
            for text in re.findall(r"^(?:sub)?module(?: |\(\w+\) )([\w@]+)$", path.read_text(encoding="utf-8"),
                                   re.MULTILINE)
            for name in expanded(text)]


def uses(path: Path) -> list[str]:
    """Our modules that a file uses, or extends as a submodule."""
    found = re.findall(r"^\s*(?:use |submodule\()(cnn_[\w@]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [name for text in found for name in expanded(text)]


def wrong_arrows(root: Path) -> list[str]:
    """Uses of a module that lies in a room whose modules the file may not use; files in rooms that nobody planned."""
    where = dict(modules(root))
    wrong = []
    for path in fortran_sources(root):
        here = room(path, root)
        if here not in ROOMS:
            wrong.append(f"{path.name} lies in {here}, a room that is not in ROOMS")
            continue
        there = {used: room(where[used], root) for used in uses(path)}
        wrong += [f"{here}/{path.name} uses {used}, and {here} may not use {other}" for used, other in there.items()
                  if other != here and other not in ROOMS[here].split()]
    return wrong


def misnamed(root: Path) -> list[str]:
    """Modules whose names are not their paths: ``cnn_cuda_plans_graph`` is fortran/cuda/plans/graph.f90.

    Of alternatives of one module, and of the copies of a template, the path without what tells them apart. The kernels
    of a GPU are several modules in one file: their names are the folder's, and a word for each.
    """
    wrong = []
    for name, path in modules(root):
        parts = place(path, root).parts
        expected = "_".join(("cnn", *parts[:-1], path.name.partition(".")[0]))
        if path.suffix == ".in":
            name = re.sub(f"(_f32|_f64)?_({'|'.join(TEMPLATES['@LEVEL@'])})$", "", name)
        if name == "cnn":
            # What programs use
            expected = "cnn" if parts == ("library", "cnn.f90") else expected
        right = name.startswith("_".join(("cnn", *parts[:-1], ""))) if path.suffix == ".cuf" else name == expected
        if not right:
            wrong.append(f"{'/'.join(parts)} holds the module {name}, expected {expected}")
    return wrong


def strayed(root: Path) -> list[str]:
    """Included files that do not lie where what includes them says, or that nothing includes."""
    made = {path.stem: path.with_suffix("") for path in (root / "fortran/from_table").rglob("*.inc.in")}
    files = {path.resolve() for path in [*(root / "fortran").rglob("*.inc"), *made.values()]}
    sources = [*fortran_sources(root), *(root / "fortran").rglob("*.cuf")]
    named = {made.get(name, path.parent / name).resolve() for path in sources
             for name in re.findall(r'^ *include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE)}
    return sorted(path.name for path in files ^ named)


def test_arrows_go_one_way(root: Path) -> None:
    """Between the folders, and between the sub-folders of cpu and cuda."""
    assert not wrong_arrows(root)
    order = TopologicalSorter({name: allowed.split() for name, allowed in ROOMS.items()}).static_order()
    assert set(order) == set(ROOMS)
    assert {room(path, root) for _, path in modules(root)} == set(ROOMS)


def test_a_fortran_module_has_the_name_of_its_path(root: Path) -> None:
    assert not misnamed(root)


def test_an_included_file_lies_where_what_includes_it_says(root: Path) -> None:
    assert not strayed(root)


@pytest.mark.parametrize(("name", "old", "new", "said"), [
    ("core/sgd.f90", "   implicit none", "   use cnn_model_network, only : network_type\n   implicit none",
     "core/sgd.f90 uses cnn_model_network, and core may not use model"),
    ("cuda/backend.f90", "   implicit none", "   use cnn_cpu_backend, only : cpu_type\n   implicit none",
     "cuda/backend.f90 uses cnn_cpu_backend, and cuda may not use cpu"),
    ("cuda/plans/graph.f90", "   implicit none", "   use cnn_cuda_device_plans, only : find\n   implicit none",
     "cuda/plans/graph.f90 uses cnn_cuda_device_plans, and cuda/plans may not use cuda/device"),
    ("cpu/plan/grid.f90", "   implicit none", "   use cnn_cpu_kernels_memory, only : c_free\n   implicit none",
     "cpu/plan/grid.f90 uses cnn_cpu_kernels_memory, and cpu/plan may not use cpu/kernels"),
    ("cpu/kernels/all.f90.in", "   implicit none", "   use cnn_cpu_backend, only : cpu_type\n   implicit none",
     "cpu/kernels/all.f90.in uses cnn_cpu_backend, and cpu/kernels may not use cpu"),
    ("api/another.f90", "", "module cnn_api_another\n   use cnn_app_progress\nend module cnn_api_another\n",
     "api/another.f90 uses cnn_app_progress, and api may not use app"),
    ("rest/another.f90", "", "module cnn_rest_another\nend module cnn_rest_another\n",
     "another.f90 lies in rest, a room that is not in ROOMS"),
])
def test_a_wrong_arrow_would_be_found(root: Path, tmp_path: Path, name: str, old: str, new: str,
                                      said: str) -> None:
    assert wrong_arrows(changed(root, tmp_path, name, old, new)) == [said]


@pytest.mark.parametrize(("name", "old", "new"), [
    ("core/sgd.f90", "module cnn_core_sgd\n", "module cnn_sgd\n"),
    ("model/network_step.f90", "(cnn_model_network) cnn_model_network_step\n", "(cnn_model_network) cnn_step\n"),
    ("cpu/kernels/tiles.f90.in", "module cnn_cpu_kernels_tiles_@", "module cnn_kernels_tiles_@"),
    ("cuda/kernels/kernels.cuf", "module cnn_cuda_kernels_grid\n", "module cnn_cuda_grid\n"),
    ("cpu/kernels/levels.f90.in", "module cnn_cpu_kernels_levels\n", "module cnn_cpu_kernels_levels_x86\n"),
])
def test_a_wrong_name_would_be_found(root: Path, tmp_path: Path, name: str, old: str, new: str) -> None:
    found = misnamed(changed(root, tmp_path, name, old, new))
    assert found and all(f"{name} holds the module" in one for one in found)


@pytest.mark.parametrize(("name", "old", "new", "said"), [
    ("naive/f32.f90", 'include "convolution.inc"', 'include "loops.inc"', ["loops.inc"]),
    ("core/another.inc", "", "x = 1\n", ["another.inc"]),
])
def test_a_stray_include_would_be_found(root: Path, tmp_path: Path, name: str, old: str, new: str,
                                        said: list[str]) -> None:
    assert strayed(changed(root, tmp_path, name, old, new)) == said


def changed(root: Path, folder: Path, name: str, old: str, new: str) -> Path:
    """A copy of the Fortran sources in which a file reads otherwise at its first `old`, or is new; its root."""
    shutil.copytree(root / "fortran", folder / "fortran")
    path = folder / "fortran" / name
    path.parent.mkdir(exist_ok=True)
    text = path.read_text(encoding="utf-8") if old else ""
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return folder


#: Functions whose results have a deferred length, where several threads may be: none is called by what computes
DEFERRED = {"target_of", "one_after_the_other", "math_mode", "kind_", "adam_kind", "sgd_kind"}


def test_no_length_is_shared_by_threads(root: Path) -> None:
    """gfortran keeps the length of such a result in static memory, where a thread may find that of another."""
    found = set()
    for name in ("core", "operations", "optimizers", "model", "library"):
        for path in (root / "fortran" / name).glob("*.f90"):
            text = path.read_text(encoding="utf-8")
            for function, result, body in re.findall(
                    r"function (\w+)\([^)]*\)(?: result\((\w+)\))?\n(.*?)end function", text, re.DOTALL):
                if re.search(rf"character\(len=:\), allocatable :: {result or function}$", body, re.MULTILINE):
                    found.add(function)
    assert found == DEFERRED


def test_every_level_is_one_that_the_templates_know(root: Path) -> None:
    """meson makes copies of these levels, and the modules that choose among the copies."""
    kernels = root / "fortran" / "cpu" / "kernels"
    made = set(re.findall(r"'(\w+)': \{'(?:args|bytes)'", (kernels / "meson.build").read_text(encoding="utf-8")))
    assert made == set(TEMPLATES["@LEVEL@"])


def test_tiles_are_written_of_their_lines(root: Path) -> None:
    """Each line of a tile is one, and their names are all different."""
    path = root / "fortran/cpu/kernels/tiles.py"
    spec = importlib.util.spec_from_file_location("tiles", path)
    assert spec is not None and spec.loader is not None
    tiles = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiles)
    assert doctest.testmod(tiles) == (0, 1)
    text = path.with_name("tiles.f90.in").read_text(encoding="utf-8")
    names = tiles.names(text)
    assert len(set(names)) == len(names) == len(re.findall(r"^      \w+: ", text, re.MULTILINE)) > 100


def test_fortran_headers(root: Path) -> None:
    for path in fortran_sources(root):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("! SPDX-License-Identifier: MIT\n!> "), path
        assert "implicit none" in text, path
        # A submodule has its parent's
        assert re.search(r"\bprogram|^submodule|^ {3}private$", text, re.MULTILINE), path


def test_no_fortran_local_is_initialised_where_it_is_declared(root: Path) -> None:
    """``real :: x = 0`` in a procedure is an implicit SAVE: right at the first call only."""
    for path in [*fortran_sources(root), *(root / "fortran").rglob("*.inc")]:
        text = path.read_text(encoding="utf-8")
        body = text if path.suffix == ".inc" else text.partition("\ncontains\n")[2]
        assert not initialised(body), path.name


def initialised(body: str) -> list[str]:
    """Declarations with a value that are no constants."""
    kinds = r"^\s*(?:integer|real|logical|character|complex|type\(|class\()[^:]*::(.*)"
    found = []
    for line in body.splitlines():
        code = line.partition("!")[0]
        declared = re.match(kinds, code, re.IGNORECASE)
        if declared and "parameter" not in code.lower().partition("::")[0] and "=" in declared[1]:
            found.append(line.strip())
    return found


@pytest.mark.parametrize(("line", "caught"), [
    ("   real :: beta = 0.0", True),
    ("   integer :: shapes(4) = 0  ! no parameter", True),
    ("   type(c_ptr), save :: p = c_null_ptr", True),
    ("   integer, parameter :: n = 3", False),
    ("   real :: beta", False),
    ("   y(i) = alpha", False),
])
def test_an_initialised_local_would_be_found(line: str, caught: bool) -> None:
    assert bool(initialised(line)) == caught


def test_only_the_program_may_stop(root: Path) -> None:
    for path in fortran_sources(root):
        if path.parent.name != "app":
            assert not re.search(r"^\s*(error )?stop\b", path.read_text(encoding="utf-8"), re.MULTILINE), path
