# SPDX-License-Identifier: MIT
"""Started by a Python without our packages, every command says so in one line, and what would help."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import bridge.common.requirements
import reference.requirements
from tests import ROOT
from tests.helpers.commands import command_names


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with nothing but its own library."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "python", with_pip=False, symlinks=True)
    return folder / "python" / "bin" / "python"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The sources in a folder with blanks, without an environment."""
    for name in ("bridge", "reference", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / "a clone" / name,
                        ignore=shutil.ignore_patterns("__pycache__", "results"))
    return tmp_path / "a clone"


def start(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, *arguments], cwd=folder, capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/bin:/bin"})


@pytest.mark.deep
def test_every_command_says_what_is_missing(bare: Path, clone: Path) -> None:
    """By its name; with the environment's, where there is one."""
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "activate").touch()
    for name in command_names():
        done = start(bare, clone, "-m", name)
        assert (done.returncode, done.stdout) == (2, ""), name
        said = rf"\w+: the package numpy is missing in {re.escape(str(bare))}; activate the environment: source " \
               r"\.venv/bin/activate \(or pip install .*\)\n"
        assert re.fullmatch(said, done.stderr), done.stderr


def test_without_an_environment_the_way_to_one(bare: Path, clone: Path) -> None:
    done = start(bare, clone, "-m", "bridge.compare", "f.h5", "r.h5")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.endswith("; make setup prepares an environment (then: source .venv/bin/activate); "
                                "by hand: pip install .\n")


@pytest.mark.parametrize("package", ["bridge", "reference", "benchmarks"])
def test_an_import_is_an_exception(package: str, bare: Path, clone: Path) -> None:
    """Who imports us may catch it."""
    code = f"try:\n    import {package}\nexcept ModuleNotFoundError as error:\n    print(error.name, '|', error)"
    done = start(bare, clone, "-c", code)
    assert done.stdout.startswith("numpy | ") and "is missing in" in done.stdout, done.stderr


def test_a_module_of_ours_that_is_missing_is_our_fault(clone: Path) -> None:
    (clone / "bridge" / "exchange" / "file.py").unlink()
    done = start(Path(sys.executable), clone, "-m", "bridge.compare")
    assert done.returncode == 1 and "ModuleNotFoundError: No module named 'bridge.exchange.file'" in done.stderr


def test_what_is_needed_is_what_is_installed() -> None:
    """f90wrap is the extension's, without which files are still compared."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^dependencies = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    # What all Pythons need
    names = set(re.findall(r'"([\w-]+)[^";]*"', listed))
    assert {*bridge.common.requirements.NEEDED, "f90wrap"} == names
    assert set(reference.requirements.NEEDED) <= names | {"torch"}
