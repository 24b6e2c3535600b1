# SPDX-License-Identifier: MIT
"""The architecture of the Python packages, checked: which room may use which; one version; no machine's name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from graphlib import TopologicalSorter
from importlib.metadata import files, version
from pathlib import Path

import pytest

from bridge.engine.library import extension
from bridge.engine.library.programs import cnn_step

#: What `bridge` consists of; ``__init__`` is its public face. Each uses only itself and those before it.
ROOMS = ["common", "data", "operations", "exchange", "engine", "judge", "report", "step", "compare", "testing",
         "identities", "gradcheck", "train", "apply", "__init__", "validate", "doctor"]

#: The same inside a room; what else lies in it may use all of them
INNER_ROOMS = {"data": ["sources"], "engine": ["library", "arrays", "network"],
               "judge": ["oracle", "measure", "diagnosis", "arithmetic"], "train": ["ranks"]}

#: What `benchmarks` consists of, each with those that it may use beside its own; the files above them are the commands
BENCHMARK_ROOMS = {
    "harness": "",
    "frameworks": "harness",
    "cpu": "harness frameworks",
    "gpu": "harness frameworks",
    "gpu_check": "harness",
    "validator": "harness",
    "zoo": "harness",
    "": "harness frameworks cpu gpu gpu_check validator zoo",
}

#: Built from two parts, so that this file does not contain what it looks for
MACHINE = re.compile("|".join(f"/{a}{b}/" for a, b in (("wo", "rk"), ("ro", "ot"), ("ho", "me"))))


def python_imports(path: Path) -> set[str]:
    """Names of imported modules, wherever in the file, and for types alone, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_only_the_engine_touches_the_extension(root: Path) -> None:
    for path in (root / "bridge").rglob("*.py"):
        touches = "cnn_fortran" in python_imports(path)
        assert touches == (path == root / "bridge/engine/library/extension.py"), path


def test_reference_and_bridge_meet_in_the_file_alone(root: Path) -> None:
    for path in (root / "reference").rglob("*.py"):
        assert not {name for name in python_imports(path) if name.split(".")[0] in ("bridge", "cnn_fortran")}, path
    for path in (root / "bridge").rglob("*.py"):
        found = {name.split(".")[0] for name in python_imports(path)} & {"reference", "tests"}
        # Torch's modules are read in one place, for fixtures and for networks
        assert found == ({"reference"} if path == root / "bridge/engine/network/torch_graph.py" else set()), path


@pytest.mark.parametrize("package", ["bridge", "reference", "benchmarks"])
def test_python_modules_have_no_cycles(root: Path, package: str) -> None:
    files = {
        ".".join(p.relative_to(root).with_suffix("").parts): p
        for p in (root / package).rglob("*.py")
        if p.stem != "__init__"
    }
    graph = {name: python_imports(path) & set(files) for name, path in files.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(files)


@pytest.mark.parametrize("line", ["import a.b", "def f():\n    import a.b", "from a import b",
                                  "if TYPE_CHECKING:\n    from a.b import C", "try:\n    import a.b\nfinally:\n    f"])
def test_an_import_is_seen_wherever_it_stands(line: str, tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(line)
    assert "a.b" in python_imports(tmp_path / "c.py")


def test_every_file_of_the_packages_is_installed(root: Path) -> None:
    installed = {path.as_posix() for path in files("fortran-torch-bridge") or ()}
    for package in ("bridge", "reference"):
        there = {path.relative_to(root).as_posix() for path in (root / package).rglob("*.*") if path.suffix != ".pyc"}
        assert there == {path for path in installed if path.startswith(f"{package}/") and not path.endswith(".pyc")}


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
    assert there == {*ROOMS, "__main__", "py"}
    assert len({*ROOMS} - {"__init__"}) <= 16
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
    ("benchmarks.gpu.bench", "benchmarks.cpu.tools.runs", True),
    ("benchmarks.gpu_check.plan", "benchmarks.frameworks.gpu", True),
    ("benchmarks.validator.fuzz", "benchmarks.gallery", True),
    ("benchmarks.gpu.bench", "benchmarks.frameworks.gpu", False),
    ("benchmarks.cpu.step", "benchmarks.cpu.tools.runs", False),
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
    (cited,) = re.findall(r"^version: (.*)", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    found = {version("fortran-torch-bridge"), extension.fortran_version(), said.split()[1], newest[1], cited}
    assert found == {declared}
    for name in ("CMakeLists.txt", "meson.build"):
        (wanted,) = re.findall(r"\bcnn\b.*?(\d+\.\d+)", (root / "examples" / name).read_text(encoding="utf-8"))
        assert declared.startswith(f"{wanted}."), name


def test_tracked_text_names_no_machine(root: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=False).stdout
    if not tracked:
        pytest.skip("this is not a git checkout")
    for name in filter(None, tracked.split("\0")):
        path = root / name
        if path.is_file():
            assert not MACHINE.search(path.read_text(encoding="utf-8", errors="replace")), name
