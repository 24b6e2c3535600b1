# SPDX-License-Identifier: MIT
"""The architecture, checked: which folder may use which, one version, names that lead to files."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from graphlib import TopologicalSorter
from importlib.metadata import version
from pathlib import Path

import pytest

from bridge.engine.library import extension
from bridge.engine.library.programs import cnn_step

#: Fortran's rooms, each with those whose modules it may use beside its own. A folder's own files (cpu/backend.f90) are
#: a room above its sub-folders; the files of fortran/ itself are the room ".".
FORTRAN_ROOMS = {
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
    "model": "core .",
    "io": "core cpu model",
    "app": "core . model io",
    "api": "core cpu cuda/plans cuda/info . oracle model io",
}

#: What `bridge` consists of; ``__init__`` is its public face. Each uses only itself and those before it.
ROOMS = ["common", "exchange", "engine", "judge", "report", "step", "compare", "testing", "identities", "gradcheck",
         "__init__", "validate", "doctor"]

#: The same inside a room; what else lies in it may use all of them
INNER_ROOMS = {"engine": ["library", "arrays", "network"], "judge": ["oracle", "measure", "diagnosis"]}

#: What `benchmarks` consists of, each with those that it may use beside its own; the files above them are the commands
BENCHMARK_ROOMS = {
    "harness": "",
    "frameworks": "harness",
    "cpu": "harness frameworks",
    "gpu": "harness frameworks",
    "gpu_check": "harness",
    "validator": "harness",
    "": "harness frameworks cpu gpu gpu_check validator",
}

#: Ends of the names of files that hold one module of two machines, or of a build with and without a library
ALTERNATIVE = re.compile(r"_(openblas|none|x86|other)$")

#: What meson writes into the gaps of a template, see fortran/cpu/kernels/meson.build
TEMPLATES = {"@PRECISION@": ["f32", "f64"], "@LEVEL@": ["baseline", "avx2", "avx512"]}

#: Built from two parts, so that this file does not contain what it looks for
MACHINE = re.compile("|".join(f"/{a}{b}/" for a, b in (("wo", "rk"), ("ro", "ot"), ("ho", "me"))))


def fortran_sources(root: Path) -> list[Path]:
    return sorted((root / "fortran").rglob("*.f90*"))


def room(path: Path, root: Path) -> str:
    """The folder of a Fortran source, as FORTRAN_ROOMS names it."""
    return path.parent.relative_to(root / "fortran").as_posix()


def python_imports(path: Path, *, when_loaded: bool = False) -> set[str]:
    """Names of imported modules; with `when_loaded` only those that importing the file imports."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if when_loaded else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


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


def wrong_fortran_arrows(root: Path) -> list[str]:
    """Uses of a module that lies in a room whose modules the file may not use; files in rooms that nobody planned."""
    where = dict(modules(root))
    wrong = []
    for path in fortran_sources(root):
        here = room(path, root)
        if here not in FORTRAN_ROOMS:
            wrong.append(f"{path.name} lies in {here}, a room that is not in FORTRAN_ROOMS")
            continue
        there = {used: room(where[used], root) for used in uses(path)}
        wrong += [f"{here}/{path.name} uses {used}, and {here} may not use {other}" for used, other in there.items()
                  if other != here and other not in FORTRAN_ROOMS[here].split()]
    return wrong


def misnamed(root: Path) -> list[str]:
    """Modules whose names are not their paths: ``cnn_cuda_plans_graph`` is fortran/cuda/plans/graph.f90.

    Of alternatives of one module, and of the copies of a template, the path without what tells them apart. The kernels
    of a GPU are several modules in one file: their names are the folder's, and a word for each.
    """
    wrong = []
    for name, path in modules(root):
        parts = path.relative_to(root / "fortran").parts
        expected = "_".join(("cnn", *parts[:-1], ALTERNATIVE.sub("", path.name.partition(".")[0])))
        if path.suffix == ".in":
            name = re.sub(f"(_f32|_f64)?_({'|'.join(TEMPLATES['@LEVEL@'])})$", "", name)
        right = name.startswith("_".join(("cnn", *parts[:-1], ""))) if path.suffix == ".cuf" else name == expected
        if not right:
            wrong.append(f"{'/'.join(parts)} holds the module {name}, expected {expected}")
    return wrong


def strayed(root: Path) -> list[str]:
    """Included files that lie in another folder than what includes them, or that nothing includes."""
    files = set((root / "fortran").rglob("*.inc"))
    named = {path.parent / name for path in [*fortran_sources(root), *(root / "fortran").rglob("*.cuf")]
             for name in re.findall(r'^ *include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE)}
    return sorted(path.name for path in files ^ named)


def test_fortran_arrows_go_one_way(root: Path) -> None:
    """Between the folders, and between the sub-folders of cpu and cuda."""
    assert not wrong_fortran_arrows(root)
    order = TopologicalSorter({name: allowed.split() for name, allowed in FORTRAN_ROOMS.items()}).static_order()
    assert set(order) == set(FORTRAN_ROOMS)
    assert {room(path, root) for _, path in modules(root)} == set(FORTRAN_ROOMS)


def test_a_fortran_module_has_the_name_of_its_path(root: Path) -> None:
    assert not misnamed(root)


def test_an_included_file_lies_beside_what_includes_it(root: Path) -> None:
    assert not strayed(root)


@pytest.mark.parametrize(("name", "old", "new", "said"), [
    ("core/sgd.f90", "   implicit none", "   use cnn_model_network, only : network_type\n   implicit none",
     "core/sgd.f90 uses cnn_model_network, and core may not use model"),
    ("cuda/backend.f90", "   implicit none", "   use cnn_cpu_backend, only : cpu_type\n   implicit none",
     "cuda/backend.f90 uses cnn_cpu_backend, and cuda may not use cpu"),
    ("cuda/plans/graph.f90", "   implicit none", "   use cnn_cuda_device_plans, only : find\n   implicit none",
     "cuda/plans/graph.f90 uses cnn_cuda_device_plans, and cuda/plans may not use cuda/device"),
    ("cpu/plan/grid.f90", "   implicit none", "   use cnn_cpu_kernels_blas, only : sgemm\n   implicit none",
     "cpu/plan/grid.f90 uses cnn_cpu_kernels_blas, and cpu/plan may not use cpu/kernels"),
    ("cpu/kernels/all.f90.in", "   implicit none", "   use cnn_cpu_backend, only : cpu_type\n   implicit none",
     "cpu/kernels/all.f90.in uses cnn_cpu_backend, and cpu/kernels may not use cpu"),
    ("api/another.f90", "", "module cnn_api_another\n   use cnn_app_progress\nend module cnn_api_another\n",
     "api/another.f90 uses cnn_app_progress, and api may not use app"),
    ("rest/another.f90", "", "module cnn_rest_another\nend module cnn_rest_another\n",
     "another.f90 lies in rest, a room that is not in FORTRAN_ROOMS"),
])
def test_a_wrong_fortran_arrow_would_be_found(root: Path, tmp_path: Path, name: str, old: str, new: str,
                                              said: str) -> None:
    assert wrong_fortran_arrows(changed(root, tmp_path, name, old, new)) == [said]


@pytest.mark.parametrize(("name", "old", "new"), [
    ("core/sgd.f90", "module cnn_core_sgd\n", "module cnn_sgd\n"),
    ("model/network_step.f90", "(cnn_model_network) cnn_model_network_step\n", "(cnn_model_network) cnn_step\n"),
    ("cpu/kernels/tiles.f90.in", "module cnn_cpu_kernels_tiles_@", "module cnn_kernels_tiles_@"),
    ("cuda/kernels/kernels.cuf", "module cnn_cuda_kernels_grid\n", "module cnn_cuda_grid\n"),
    ("cpu/kernels/levels_x86.f90", "module cnn_cpu_kernels_levels\n", "module cnn_cpu_kernels_levels_x86\n"),
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


def test_alternatives_of_a_module_have_the_same_face(root: Path) -> None:
    """Whichever of them is built, the rest finds what it uses."""
    files: dict[str, list[Path]] = {}
    for name, path in modules(root):
        files.setdefault(name, []).append(path)
    several = {name: paths for name, paths in files.items() if len(paths) > 1}
    assert set(several) == {"cnn_cpu_kernels_blas_threads", "cnn_cpu_kernels_levels", "cnn_oracle_deviation_levels"}
    for name, paths in several.items():
        faces = {tuple(sorted(re.findall(r"^ {3}public :: (.*)|:: (\w+) =", path.read_text(encoding="utf-8"),
                                         re.MULTILINE))) for path in paths}
        assert len(faces) == 1, name


def test_the_kernels_of_every_level_are_chosen_from(root: Path) -> None:
    """Every copy that meson makes is one that the table holds, and the other way round."""
    kernels = root / "fortran" / "cpu" / "kernels"
    made = set(re.findall(r"'(\w+)': \{'args'", (kernels / "meson.build").read_text(encoding="utf-8")))
    assert made == set(TEMPLATES["@LEVEL@"])
    assert set(uses(kernels / "levels_x86.f90")) >= set(expanded("cnn_cpu_kernels_all_@PRECISION@_@LEVEL@"))
    assert not [name for name in uses(kernels / "levels_other.f90") if name.endswith(("_avx2", "_avx512"))]
    oracle = root / "fortran" / "oracle"
    assert set(uses(oracle / "deviation_levels_x86.f90")) >= set(expanded("cnn_oracle_deviation_runs_@LEVEL@"))
    assert not [name for name in uses(oracle / "deviation_levels_other.f90") if name.endswith(("_avx2", "_avx512"))]


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


def test_only_the_engine_touches_the_extension(root: Path) -> None:
    for path in (root / "bridge").rglob("*.py"):
        touches = "cnn_fortran" in python_imports(path)
        assert touches == (path == root / "bridge/engine/library/extension.py"), path


def test_reference_and_bridge_meet_in_the_file_alone(root: Path) -> None:
    for path in (root / "reference").rglob("*.py"):
        assert not {name for name in python_imports(path) if name.split(".")[0] in ("bridge", "cnn_fortran")}, path
    for path in (root / "bridge").rglob("*.py"):
        assert not {name for name in python_imports(path) if name.split(".")[0] in ("reference", "tests")}, path


@pytest.mark.parametrize("package", ["bridge", "reference", "benchmarks"])
def test_python_modules_have_no_cycles(root: Path, package: str) -> None:
    files = {
        ".".join(p.relative_to(root).with_suffix("").parts): p
        for p in (root / package).rglob("*.py")
        if p.stem != "__init__"
    }
    graph = {name: python_imports(path, when_loaded=True) & set(files) for name, path in files.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(files)


def test_every_module_is_installed(root: Path) -> None:
    folders = {path.parent for package in ("bridge", "reference") for path in (root / package).rglob("*.py")}
    for folder in folders:
        listed = set(re.findall(r"'(\w+\.py)'", (folder / "meson.build").read_text(encoding="utf-8")))
        assert listed == {p.name for p in folder.glob("*.py")}, folder


def python_modules(root: Path, package: str) -> dict[str, Path]:
    """Every module of a package by its name; a package's ``__init__`` by the package's."""
    return {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
            for path in (root / package).rglob("*.py")}


def wrong_arrows(arrows: Iterable[tuple[str, str]]) -> list[str]:
    """Pairs (module, module that it imports) in which a room uses one that lies above it."""
    found = []
    for user, used in arrows:
        theirs, mine = used.split(".")[1:], user.split(".")[1:]
        order, place, there = ROOMS, *(part[0] if part else "__init__" for part in (mine, theirs))
        if place == there and place in INNER_ROOMS:
            # What lies in no inner room stands above all of them
            order = [*INNER_ROOMS[place], ""]
            place, there = (part[1] if len(part) > 1 and part[1] in order else "" for part in (mine, theirs))
        if there not in order or place not in order or order.index(there) > order.index(place):
            found.append(f"{user} uses {used}")
    return found


def test_the_rooms_of_bridge_are_those_that_were_decided_on(root: Path) -> None:
    """A new one is a sentence in the architecture: it has its place in `ROOMS`, and in CONTRIBUTING.md."""
    there = {path.stem for path in (root / "bridge").iterdir() if path.name != "__pycache__"}
    assert there == {*ROOMS, "__main__", "meson", "py"}
    assert len({*ROOMS} - {"__init__"}) <= 12
    for room, inner in INNER_ROOMS.items():
        assert {path.name for path in (root / "bridge" / room).iterdir() if path.is_dir()} - {"__pycache__"} == {*inner}


def test_bridge_arrows_go_one_way(root: Path) -> None:
    modules = python_modules(root, "bridge")
    arrows = [(user, used) for user, path in modules.items() if user != "bridge.__main__"
              for used in python_imports(path) & set(modules)]
    assert len(arrows) > 500
    assert not wrong_arrows(arrows)


@pytest.mark.parametrize(("user", "used", "wrong"), [
    ("bridge.common.errors", "bridge.exchange.file", True),
    ("bridge.judge.judge", "bridge.report.junit", True),
    ("bridge.judge.oracle.step", "bridge.judge.measure.findings", True),
    ("bridge.judge.measure.findings", "bridge.judge.verdict", True),
    ("bridge.engine.arrays.operand", "bridge.engine.network.network", True),
    ("bridge.exchange.file", "bridge", True),
    ("bridge.exchange.file", "bridge.novelty.file", True),
    ("bridge.judge.judge", "bridge.judge.oracle.step", False),
    ("bridge.report.junit", "bridge.judge.verdict", False),
    ("bridge.validate.run", "bridge.compare", False),
    ("bridge", "bridge.validate.run", True),
    ("bridge", "bridge.gradcheck", False),
    ("bridge.doctor.probe", "bridge", False),
])
def test_a_wrong_arrow_would_be_found(user: str, used: str, wrong: bool) -> None:
    assert bool(wrong_arrows([(user, used)])) == wrong


def wrong_benchmark_arrow(user: str, used: str) -> bool:
    """Whether a room of benchmarks/ may not use the other's; the commands themselves are used by nobody."""
    mine, theirs = ("".join(name.split(".")[1:2]) for name in (user, used))
    rooms = [one if one in BENCHMARK_ROOMS else "" for one in (mine, theirs)]
    return rooms[0] != rooms[1] and rooms[1] not in BENCHMARK_ROOMS[rooms[0]].split()


def test_the_rooms_of_benchmarks_are_those_that_were_decided_on(root: Path) -> None:
    """With a handful of commands above them."""
    there = {path.name for path in (root / "benchmarks").iterdir() if path.name != "__pycache__"}
    rooms = {*BENCHMARK_ROOMS, "results"} - {""}
    assert {name for name in there if "." not in name} == rooms
    assert there - rooms == {"__init__.py", "__main__.py", "fuzz.py", "gallery.py", "gpu_bench.py", "healthy.py"}


def test_benchmarks_arrows_go_one_way(root: Path) -> None:
    modules = python_modules(root, "benchmarks")
    arrows = [(user, used) for user, path in modules.items()
              for used in python_imports(path) & set(modules) - {"benchmarks"}]
    assert len(arrows) > 100
    assert not [f"{user} uses {used}" for user, used in arrows if wrong_benchmark_arrow(user, used)]


@pytest.mark.parametrize(("user", "used", "wrong"), [
    ("benchmarks.harness.tables", "benchmarks.frameworks.cpu", True),
    ("benchmarks.frameworks.gpu", "benchmarks.gpu.cells", True),
    ("benchmarks.gpu.bench", "benchmarks.gpu_check.plan", True),
    ("benchmarks.gpu.bench", "benchmarks.cpu.runs", True),
    ("benchmarks.gpu_check.plan", "benchmarks.frameworks.gpu", True),
    ("benchmarks.validator.fuzz", "benchmarks.gallery", True),
    ("benchmarks.gpu.bench", "benchmarks.frameworks.gpu", False),
    ("benchmarks.cpu.step", "benchmarks.cpu.runs", False),
    ("benchmarks.gpu_bench", "benchmarks.gpu.cli", False),
])
def test_a_wrong_benchmark_arrow_would_be_found(user: str, used: str, wrong: bool) -> None:
    assert wrong_benchmark_arrow(user, used) == wrong


def test_judging_needs_no_fortran() -> None:
    """A stranger's file is compared where nothing was compiled."""
    code = ("import sys; sys.modules['cnn_fortran'] = None\n"
            "import bridge.compare, bridge.engine.library.extension\n"
            "try:\n    bridge.engine.library.extension.api()\nexcept bridge.EngineError as error:\n    print(error)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("the Fortran extension cnn_fortran cannot be loaded")


def test_all_versions_agree(root: Path) -> None:
    build = (root / "meson.build").read_text(encoding="utf-8")
    (declared,) = re.findall(r"^ {2}version: '([^']+)'", build, re.MULTILINE)
    said = subprocess.run([cnn_step(), "--version"], capture_output=True, text=True, check=True).stdout
    newest = re.search(r"^## (?!Unreleased)(\S+)", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest
    assert {version("fortran-torch-bridge"), extension.fortran_version(), said.split()[1], newest[1]} == {declared}


def test_tracked_text_names_no_machine(root: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=False).stdout
    if not tracked:
        pytest.skip("this is not a git checkout")
    for name in filter(None, tracked.split("\0")):
        path = root / name
        if path.is_file():
            assert not MACHINE.search(path.read_text(encoding="utf-8", errors="replace")), name
