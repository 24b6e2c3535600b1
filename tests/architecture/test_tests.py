# SPDX-License-Identifier: MIT
"""The rules of the tests themselves: who imports whom, that loops name their cases, that tiers leave nothing out."""

from __future__ import annotations

import ast
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.helpers import tiers
from tests.helpers.built_once import built_once
from tests.helpers.loops import CasesError, looped


def test_no_file_of_tests_imports_from_another(root: Path) -> None:
    for path in (root / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            assert not [name for name in modules if (name.rpartition(".")[2].startswith("test_")
                        and name.split(".")[0] == "tests") or name.startswith("conftest")], path


def test_a_loop_runs_every_case_and_names_those_that_fail() -> None:
    seen: list[tuple[int, int, int]] = []

    @looped("a", (1, 2))
    @looped(("b", "c"), [(0, 0), (1, 0), (1, 1)])
    def check(given: str, a: int, b: int, c: int) -> None:
        seen.append((a, b, c))
        if (a, b, c) == (1, 1, 0):
            pytest.skip("a case may not be skipped")
        assert a > b + c, given

    with pytest.raises(CasesError, match=r"^failed: a=1, b=1, c=0; a=1, b=1, c=1; a=2, b=1, c=1$"):
        check("given")
    assert seen == [(a, *rest) for a in (1, 2) for rest in ((0, 0), (1, 0), (1, 1))]
    with pytest.raises(AssertionError, match="a loop over nothing"):
        looped("a", ())


def test_tiers_leave_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "wanted", "")

    def values(given: list[object]) -> list[object]:
        return [one.values[0] if hasattr(one, "marks") else one for one in given]

    def fast(given: list[object]) -> list[object]:
        return [one for one in given if not hasattr(one, "marks")]

    for number in (1, 2, 3, 7):
        assert values(tiers.few(range(7), number)) == list(range(7))
        assert len(fast(tiers.few(range(7), number))) == number
    assert fast(tiers.few("abc", "b".__eq__)) == ["b"]
    rows = tiers.few_rows([(1, "a"), (2, "b"), (3, "c")], 2)
    assert fast(rows) == [(1, "a"), (3, "c")] and rows[1].values == (2, "b")
    assert [one.id for one in tiers.few_rows([(1, "a")], 0, name=lambda row: row[1])] == ["a"]
    both = []
    for wanted in ("not deep", "deep"):
        monkeypatch.setattr(tiers, "wanted", wanted)
        both += tiers.few(range(7), 3)
    assert fast(both) == [0, 3, 6] and sorted(values(both)) == list(range(7))


def test_a_sample_is_the_same_in_every_process_and_another_for_each_commit() -> None:
    names = [f"tests/test_a.py::test_{i}" for i in range(2000)]
    first, again, second = ({name for name in names if tiers.is_drawn(name, 0.4, seed)} for seed in ("a", "a", "b"))
    assert first == again and 700 < len(first) < 900 and 200 < len(first & second) < 440
    assert first <= {name for name in names if tiers.is_drawn(name, 0.5, "a")}


def test_what_takes_minutes_is_drawn_together(request: pytest.FixtureRequest) -> None:
    """All tests of a file that is marked so, or none; of another one each by itself."""
    names = []
    for name in ("a", "b"):
        item = pytest.Function.from_parent(request.node.parent, name=name, callobj=lambda: None)
        names.append(tiers.drawn_by(item))
        item.add_marker("together")
        names.append(tiers.drawn_by(item))
    file = request.node.nodeid.partition("::")[0]
    assert names == [f"{file}::a", file, f"{file}::b", file]


def test_what_takes_minutes_is_built_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In each folder of its name, and again where it has failed; by one of two threads as by one of two processes."""
    begun: list[Path] = []

    def build(folder: Path) -> None:
        begun.append(folder)
        assert not list(folder.iterdir())
        (folder / "half").touch()
        if len(begun) == 1:
            raise OSError("no room")
        time.sleep(0.05)

    with pytest.raises(OSError, match="no room"):
        built_once(tmp_path_factory, "a test's own", build)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: built_once(tmp_path_factory, "a test's own", build), range(2)))
    assert len(begun) == 2 and found == [begun[1]] * 2
    assert built_once(tmp_path_factory, "another", lambda folder: None) != found[0]
