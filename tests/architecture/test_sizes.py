# SPDX-License-Identifier: MIT
"""Sizes of what a reader meets: folders, files and procedures are small, and no two public classes share a name.

What is larger stands in a list by name. A list may only become shorter: what has become small enough fails the test
until it is taken out.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Files of a folder, lines of a file, lines and arguments of a Fortran procedure, at most
FILES, LINES, PROCEDURE, ARGUMENTS = 20, 400, 60, 12
SOURCES = {".py", ".f90", ".inc", ".in", ".c", ".h", ".cpp", ".cuf"}
PLACES = ("bridge", "fortran", "reference", "tests", "benchmarks", "docs/tools", "examples")

FULL_FOLDERS: set[str] = set()
LONG_FILES = {
    "benchmarks/validator/healthy.py", "bridge/engine/network/network.py", "bridge/exchange/file.py",
    "bridge/judge/diagnosis/evidence/describe.py", "bridge/judge/diagnosis/evidence/operands.py",
    "bridge/judge/diagnosis/search.py", "bridge/judge/oracle/bounded.py", "bridge/operations/losses.py",
    "bridge/operations/pointwise.py", "bridge/validate/self_test/healthy.py", "fortran/core/backend.f90",
    "fortran/cpu/backend.f90", "fortran/cuda/backend.f90", "fortran/io/fixture.f90",
    "fortran/library/array_network.f90", "fortran/library/states.f90",
    "fortran/model/graph.f90", "fortran/model/graph_memory.f90", "fortran/model/network.f90",
    "tests/helpers/cuda/stream_checks.py", "tests/judge/oracle/test_bounds.py", "tests/reference/test_reference.py",
}
#: Kernels, whose arguments are what a launch takes; tiles, whose sizes are constants of each call; faces that a caller
#: sees argument by argument, as cuDNN has them
MANY_ARGUMENTS = {
    "adam", "avg_pool", "avg_pool_backward", "box_sums", "combine_backward", "combine_broadcast", "combine_sums",
    "complex_product", "convolve_column", "convolve_line", "direct", "direct_arrange", "direct_filter",
    "direct_filter_quads", "direct_masked", "extreme", "extreme_backward", "gru_cell_backward",
    "matmul_of_all", "max_pool", "max_pool_backward", "move", "nhwc_filter_tile", "nhwc_tile",
    "normalize_backward", "row_normalize_backward", "row_sums", "spline", "spline_backward",
}
#: Kernels that keep tiles in registers
LONG_PROCEDURES = {
    "arrange_panel", "class_entropy", "combine_sums", "convolve_nhwc_bands", "convolve_nhwc_panel", "correlate",
    "correlate_channels_last", "correlate_outer", "depthwise_tile", "direct_filter", "direct_filter_quads",
    "direct_masked", "im2col_backward_filter", "max_pool_backward", "multiply_rows", "nhwc_filter_tile",
    "nhwc_tile", "normalize_backward", "plan_nhwc_filter", "prepare_nhwc", "resample", "sum_tile",
}
#: The public answer of a gradient check and that of the judge, each the word of its own module
SAME_NAMES = {"Verdict"}

START = re.compile(
    r"^\s*(?:(?:pure|elemental|recursive|impure|module|attributes\(\w+\)|(?:integer|real|logical|type|character|class)"
    r"(?:\([^)]*\))?)\s+)*(?:subroutine|function)\s+(?P<name>\w+)\s*(?:\((?P<arguments>[^)]*)\))?", re.I)
END = re.compile(r"^\s*end\s*(?:subroutine|function)\b", re.I)


def tracked(root: Path) -> list[Path]:
    """All sources in git."""
    found = subprocess.run(["git", "ls-files", "--", *PLACES], cwd=root, capture_output=True, text=True, check=True)
    return [Path(line) for line in found.stdout.splitlines() if Path(line).suffix in SOURCES and (root / line).exists()]


def procedures(text: str) -> Iterator[tuple[str, int, int]]:
    """Names of a Fortran source's procedures, with their lines (without those of inner ones) and numbers of arguments.

    >>> list(procedures("pure function f(a, &\\n      b)\\nend function f"))
    [('f', 3, 2)]
    """
    lines, begun, inner = text.split("\n"), list[tuple[str, int, int]](), [0]
    for at, line in enumerate(lines):
        whole, more = line, at
        while whole.rstrip().endswith("&") and more + 1 < len(lines):
            more += 1
            whole = whole.rstrip()[:-1] + lines[more].strip().lstrip("&")
        if END.match(line) and begun:
            name, first, arguments = begun.pop()
            own = inner.pop()
            inner[-1] += at - first + 1
            yield name, at - first + 1 - own, arguments
        elif (found := START.match(whole)) and not line.lstrip().lower().startswith("end"):
            listed = [one for one in (found["arguments"] or "").split(",") if one.strip()]
            begun.append((found["name"], at, len(listed)))
            inner.append(0)


def test_no_folder_is_full(root: Path) -> None:
    counts = Counter(path.parent.as_posix() for path in tracked(root))
    assert {folder for folder, n in counts.items() if n > FILES} == FULL_FOLDERS


def test_no_file_is_long(root: Path) -> None:
    long = {path.as_posix() for path in tracked(root)
            if len((root / path).read_text(encoding="utf-8").splitlines()) > LINES}
    assert long == LONG_FILES


def test_no_procedure_is_long_or_has_many_arguments(root: Path) -> None:
    sources = [(root / path).read_text(encoding="utf-8") for path in tracked(root)
               if path.suffix in (".f90", ".inc", ".in", ".cuf") and path.parts[0] == "fortran"]
    every = [one for text in sources for one in procedures(text)]
    assert {name for name, lines, _ in every if lines > PROCEDURE} == LONG_PROCEDURES
    assert {name for name, _, arguments in every if arguments > ARGUMENTS} == MANY_ARGUMENTS
    assert len(every) > 1500


def test_no_public_class_name_is_there_twice(root: Path) -> None:
    places = defaultdict(set)
    for path in (root / "bridge").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path.relative_to(root).as_posix())
    assert {name for name, found in places.items() if len(found) > 1} == SAME_NAMES


@pytest.mark.parametrize(("text", "found"), [
    ("subroutine s(" + ", ".join(f"a{i}" for i in range(13)) + ")\nend subroutine s", [("s", 2, 13)]),
    ("   subroutine s\n" + "   x = 1\n" * 60 + "   end subroutine s", [("s", 62, 0)]),
    ("real(sp) function f(x)\nend function", [("f", 2, 1)]),
])
def test_a_long_procedure_would_be_found(text: str, found: list[tuple[str, int, int]]) -> None:
    assert list(procedures(text)) == found
