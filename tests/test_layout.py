# SPDX-License-Identifier: MIT
"""The architecture, checked: which folder may use which, one version, names that lead to files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from graphlib import TopologicalSorter
from importlib.metadata import version
from pathlib import Path

import pytest

from bridge.engine.library import extension
from bridge.engine.library.programs import cnn_step

#: Fortran folders; each uses only itself and those before it. app and api do not use each other.
FOLDERS = ["core", "cuda", "backend", "oracle", "model", "io", "app", "api"]

#: What `bridge` consists of; ``__init__`` is its public face. Each uses only itself and those before it.
ROOMS = ["common", "exchange", "engine", "judge", "report", "step", "compare", "testing", "identities", "gradcheck",
         "__init__", "validate", "doctor"]

#: The same inside a room; what else lies in it may use all of them
INNER_ROOMS = {"engine": ["library", "arrays", "network"], "judge": ["oracle", "measure", "diagnosis"]}

#: Files that hold one module of two machines, or of a build with and without a library
ALTERNATIVES = ["openblas", "none", "x86", "other"]

#: What meson writes into the gaps of a template, see fortran/backend/meson.build
TEMPLATES = {"@PRECISION@": ["f32", "f64"], "@LEVEL@": ["baseline", "avx2", "avx512"]}

#: Built from two parts, so that this file does not contain what it looks for
MACHINE = re.compile("|".join(f"/{a}{b}/" for a, b in (("wo", "rk"), ("ro", "ot"), ("ho", "me"))))


def fortran_sources(root: Path) -> list[Path]:
    return [p for folder in FOLDERS for p in sorted((root / "fortran" / folder).glob("*.f90*"))]


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
    """Every Fortran module with the file that has it, or the template that it is made from."""
    return [(name, path) for path in fortran_sources(root)
            for text in re.findall(r"^module ([\w@]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
            for name in expanded(text)]


def uses(path: Path) -> list[str]:
    """Our modules that a file uses."""
    found = re.findall(r"^\s*use (cnn_[\w@]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [name for text in found for name in expanded(text)]


def test_fortran_arrows_go_one_way(root: Path) -> None:
    where = dict(modules(root))
    for path in fortran_sources(root):
        mine = FOLDERS.index(path.parent.name)
        for used in uses(path):
            theirs = FOLDERS.index(where[used].parent.name)
            assert theirs <= mine, f"{path.name} uses {used}, which lies above it"
            both = (path.parent.name, where[used].parent.name)
            assert both != ("api", "app"), f"{path.name} uses the program's {used}"


def test_a_fortran_file_has_the_name_of_its_module(root: Path) -> None:
    """Without what tells alternatives of one module, or copies of a template, from each other."""
    for name, path in modules(root):
        stem = path.name.partition(".")[0]
        if path.suffix == ".in":
            name = re.sub(f"(_f32|_f64)?_({'|'.join(TEMPLATES['@LEVEL@'])})$", "", name)
        alternatives = {f"cnn_{stem}", stem, re.sub(f"_({'|'.join(ALTERNATIVES)})$", "", f"cnn_{stem}")}
        assert name in alternatives, f"{path} holds the module {name}"


def test_alternatives_of_a_module_have_the_same_face(root: Path) -> None:
    """Whichever of them is built, the rest finds what it uses."""
    files: dict[str, list[Path]] = {}
    for name, path in modules(root):
        files.setdefault(name, []).append(path)
    several = {name: paths for name, paths in files.items() if len(paths) > 1}
    assert set(several) == {"cnn_blas_threads", "cnn_cpu_kernels", "cnn_deviation_levels"}
    for name, paths in several.items():
        faces = {tuple(sorted(re.findall(r"^ {3}public :: (.*)|:: (\w+) =", path.read_text(encoding="utf-8"),
                                         re.MULTILINE))) for path in paths}
        assert len(faces) == 1, name


def test_the_kernels_of_every_level_are_chosen_from(root: Path) -> None:
    """Every copy that meson makes is one that the table holds, and the other way round."""
    backend = root / "fortran" / "backend"
    made = set(re.findall(r"'(\w+)': \{'args'", (backend / "meson.build").read_text(encoding="utf-8")))
    assert made == set(TEMPLATES["@LEVEL@"])
    assert set(uses(backend / "cpu_kernels_x86.f90")) >= set(expanded("cnn_kernels_@PRECISION@_@LEVEL@"))
    assert not [name for name in uses(backend / "cpu_kernels_other.f90") if name.endswith(("_avx2", "_avx512"))]
    oracle = root / "fortran" / "oracle"
    assert set(uses(oracle / "deviation_levels_x86.f90")) >= set(expanded("cnn_deviation_runs_@LEVEL@"))
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


@pytest.mark.parametrize("package", ["bridge", "reference"])
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
