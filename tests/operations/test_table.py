# SPDX-License-Identifier: MIT
"""The table of operations beside the classes that are written by hand, and what is made of it."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bridge.operations import OPERATIONS
from bridge.operations.hyperparameters import fields
from bridge.operations.losses import LOSSES, settings
from bridge.operations.table import families, rows
from tests import ROOT

WRITER = ROOT / "fortran/from_table/write.py"
ROWS = {kind: row for family in families() for kind, row in rows(family).items()}


def plain(value: Any) -> Any:
    """As TOML has it."""
    return list(value) if isinstance(value, tuple) else value


def declared(found: list[dataclasses.Field[Any]]) -> dict[str, dict[str, Any]]:
    """The settings of a class as the table says them, in their order."""
    return {one.name: {"type": str(one.type), **(
        {} if one.default is dataclasses.MISSING else {"default": plain(one.default)})} for one in found}


def said(row: Any) -> dict[str, dict[str, Any]]:
    return {name: {key: one[key] for key in ("type", "default") if key in one}
            for name, one in row.get("settings", {}).items()}


def test_each_operation_and_loss_has_a_class_and_a_file() -> None:
    assert ROWS.keys() == OPERATIONS.keys()
    assert rows("losses").keys() == LOSSES.keys()


@pytest.mark.parametrize("kind", OPERATIONS)
def test_an_operation_has_the_settings_of_its_class(kind: str) -> None:
    found = said(ROWS[kind])
    assert (list(found), found) == (list(declared(fields(OPERATIONS[kind]))), declared(fields(OPERATIONS[kind])))


@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_has_the_settings_of_its_class(kind: str) -> None:
    found = said(rows("losses")[kind])
    assert (list(found), found) == (list(declared(settings(LOSSES[kind]))), declared(settings(LOSSES[kind])))


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    """Those of the writer, which is a script: its folder is on the path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(WRITER.parent))
        yield {path.stem: importlib.import_module(path.stem) for path in WRITER.parent.glob("*.py")}


@pytest.fixture
def writer(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["write"]


def test_the_examples_of_the_writer(modules: dict[str, ModuleType]) -> None:
    found = [doctest.testmod(one) for one in modules.values()]
    assert sum(one.failed for one in found) == 0 and sum(one.attempted for one in found) == 13


@pytest.mark.parametrize(("family", "row", "said"), [
    ("functions", {"value": "z", "gradient": "dy*(z + y)"}, "a gradient of z and of y, expected one of them"),
    ("functions", {"value": "z*alfa", "gradient": "dy"}, "value reads alfa, expected z"),
    ("functions", {"value": "z", "gradient": "dy", "settings": {"k": {}, "l": {}, "m": {}}}, "3 settings"),
    ("losses", {"value": "abs(d)", "gradient": "scale*z", "with": {"d": "y - t"}}, "gradient reads z, expected y, t"),
    ("losses", {"value": "y", "gradient": "scale", "settings": {"k": {"defualt": 1}}}, "k has the key 'defualt'"),
    ("joins", {"typ": "join_type"}, "the key 'typ'"),
    ("joins", {"primitives": {"join": {"x": ["tensr", "Input"], "y": ["tensor", "Output"]}}}, "x = ['tensr'"),
    ("joins", {"primitives": {"join": {"y": ["tensor", "Output"], "by": ["real", "Angle"]}}}, "argument is no tensor"),
])
def test_a_row_that_is_wrong_is_named(modules: dict[str, ModuleType], family: str, row: dict[str, Any],
                                      said: str) -> None:
    (found,) = modules["schema"].of_row(family, row)
    assert said in found


def test_nothing_is_written_from_a_table_that_is_wrong(tmp_path: Path) -> None:
    """The file, what was found and what was expected."""
    for name in ("fortran/from_table", "fortran/operations", "bridge/operations/table"):
        shutil.copytree(ROOT / name, tmp_path / name)
    path = tmp_path / "bridge/operations/table/functions/tanh.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("y*y", "y*x"), encoding="utf-8")
    done = subprocess.run([sys.executable, tmp_path / "fortran/from_table/write.py", tmp_path / "made"], text=True,
                          capture_output=True, check=False)
    assert done.returncode == 1 and not (tmp_path / "made").exists()
    assert done.stderr == (
        "write.py: bridge/operations/table/functions/tanh.toml: gradient reads x, expected z, y, dy, a setting, a "
        "constant or a name of [with]\n")


def test_the_build_knows_what_is_written(writer: ModuleType, tmp_path: Path) -> None:
    """Every file is an output of meson's target, and the depfile names every row."""
    subprocess.run([sys.executable, WRITER, tmp_path, "--depfile", tmp_path / "table.d"], check=True)
    build = (WRITER.parent / "meson.build").read_text(encoding="utf-8")
    (outputs,) = re.findall(r"from_table_names = \[(.*?)\]", build, re.DOTALL)
    names = sorted(Path(name).name for name in writer.FILES)
    assert re.findall(r"'(.*?)'", outputs) == names
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "table.d"])
    read = (tmp_path / "table.d").read_text(encoding="utf-8")
    assert all(f"/{kind}.toml" in read for kind in [*ROWS, *LOSSES])


def test_lines_are_as_long_as_they_may_be(writer: ModuleType) -> None:
    for make in writer.FILES.values():
        assert max(map(len, make().splitlines())) <= 120


def test_a_new_row_is_written_everywhere(modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """A function and a loss that are in the table alone; names of settings and locals stand for numbers."""
    more = {
        "functions": {"zz_scaled": {"value": "s*z", "gradient": "dy*s", "with": {"s": "2.0_wp*factor"},
                                 "settings": {"factor": {"type": "Real", "default": -1.5}}}},
        "losses": {"zz_cubic": {"value": "abs(d)**3", "gradient": "scale*d*abs(d)*power", "with": {"d": "y - t"},
                             "settings": {"power": {"type": "float", "default": 3.0, "positive": True}}}}}
    monkeypatch.setattr(modules["fortran_text"].table, "rows", lambda family: rows(family) | more.get(family, {}))
    writer = modules["write"]
    functions, losses = writer.functions(), writer.losses()
    assert "s = 2.0_wp*setting_1\n            y(i) = s*z(i)" in functions
    assert "s = 2.0_wp*setting_1\n            dx(i) = dy(i)*s" in functions
    assert "part = part + (abs(d)**3)\n            dy(i) = scale*d*abs(d)*setting_1" in losses
    count = {family: sum("value" in row for row in rows(family).values()) + 1 for family in more}
    assert f"f_zz_scaled = {count['functions']}\n" in writer.constants()
    assert f"loss_zz_cubic = {count['losses']}\n" in writer.constants()
    assert ('allocate (operation, source=function_type(number=f_zz_scaled, signed=.true., settings=[character(len=16) '
            ':: &\n            & "factor", ""], values=[-1.5_dp, 0.0_dp]))') in writer.registry()
    made = '& loss_type("zz_cubic", loss_zz_cubic, setting="power", default=3.0_dp, is_positive=.true.)'
    assert made in writer.loss_table()


#: One with every type of argument
TILT = {"x": ["tensor", "Input"], "sides": ["integer(2)", "Two"], "up": ["logical", "Whether"], "by": ["real", "Angle"],
        "y": ["tensor", "Output"]}


def test_a_primitive_is_declared_as_its_row_says(modules: dict[str, ModuleType],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record, its face, and who runs it."""
    row = {"tilt": {"primitives": {"tilt": TILT}}}
    monkeypatch.setattr(modules["fortran_text"].table, "rows", lambda family: row if family == "joins" else {})
    writer = modules["write"]
    records = writer.records()
    assert "type, extends(primitive_type), public :: tilt_call" in records
    assert "      !> Two\n      integer :: sides(2)\n" in records
    assert "tensors = [p%x, p%y]\n         integers = [p%sides, merge(1, 0, p%up)]\n         reals = [p%by]" in records
    assert "subroutine tilt_(x, sides, up, by, y)\n         import :: dp, tensor_type" in writer.interfaces()
    assert "table%tilt => tilt_loops" in writer.assignments()
    assert "type is (tilt_call)\n         call loops%tilt(p%x, p%sides, p%up, p%by, p%y)" in writer.runs()
