# SPDX-License-Identifier: MIT
"""What .ci/setup installs into an environment that has something already; its Python is one that only takes notes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NOTES = """#!/usr/bin/env bash
[ "$1" = -c ] && { cat "$PWD/installed" 2>/dev/null; exit; }
[ "$1" = - ] && { shift; printf 'packages-of-%s\\n' "$@"; exit; }
[ "$2" = venv ] && { mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; }
printf '%s\\n' "$*" >>"$PWD/notes"
"""


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """A checkout with an environment, and with nothing to build."""
    (tmp_path / ".ci").mkdir()
    for name in ("setup", "constraints.txt"):
        shutil.copy(root / ".ci" / name, tmp_path / ".ci")
    for name in ("bridge", "fortran", "reference"):
        (tmp_path / name).mkdir()
    for name in ("meson.build", "meson_options.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(NOTES, encoding="utf-8")
    python.chmod(0o755)
    return tmp_path


def run(checkout: Path, *arguments: str, torch: str | None = None) -> tuple[str, list[str]]:
    """What it says, and what it has pip install."""
    environment = {name: value for name, value in os.environ.items() if name not in ("TORCH", "PYTHON")}
    if torch is not None:
        environment["TORCH"] = torch
    (checkout / "notes").write_text("", encoding="utf-8")
    done = subprocess.run([checkout / ".ci" / "setup", *arguments], env=environment, capture_output=True, text=True,
                          check=True)
    notes = (checkout / "notes").read_text(encoding="utf-8").splitlines()
    return done.stdout, [note.partition("install --quiet ")[2].removeprefix("--no-compile ") for note in notes]


def pinned(checkout: Path) -> str:
    """The torch that the project is developed with."""
    lines = (checkout / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def test_an_empty_environment_gets_the_pinned_torch(checkout: Path) -> None:
    (checkout / "installed").unlink(missing_ok=True)
    assert pinned(checkout) in run(checkout)[1]


@pytest.mark.parametrize("version", ["torch==2.99.1", None])
def test_a_torch_that_is_there_stays(checkout: Path, version: str | None) -> None:
    """A build for the GPU of who installed it, say; that another is pinned is said, and no more."""
    (checkout / "installed").write_text(version or pinned(checkout), encoding="utf-8")
    said, installed = run(checkout)
    assert not [words for words in installed if "torch==" in words]
    assert ("torch==2.99.1 stays; TORCH=" + pinned(checkout) in said) == (version is not None)


def test_another_torch_is_chosen(checkout: Path) -> None:
    """By name, also where one is installed, and also when nothing else has changed."""
    (checkout / "installed").write_text(pinned(checkout), encoding="utf-8")
    run(checkout)
    assert "torch==2.99.1 --index-url https://example.org/cpu" in run(
        checkout, torch="torch==2.99.1 --index-url https://example.org/cpu")[1]


def test_nvidias_libraries_of_a_torch_stay(checkout: Path) -> None:
    """Packages for CUDA 12 have other names than those for CUDA 13, and some put files in the same place."""
    package = "--no-deps -c .ci/constraints.txt nvidia-cudnn-cu13 nvidia-cuda-runtime nvidia-cublas"
    if os.uname().sysname != "Linux" or os.uname().machine != "x86_64":
        pytest.skip("NVIDIA's libraries are installed on Linux for x86-64 only")
    # Not asked for flang and MPI, which apt would install
    for name in ("flang", "mpirun", "mpifort"):
        (checkout / ".venv" / "bin" / name).touch(0o755)
    assert package in run(checkout, "tests")[1]
    for name in ("cudnn/lib/libcudnn.so.9", "cuda_runtime/lib/libcudart.so.12", "cublas/lib/libcublas.so.12"):
        file = checkout / ".venv" / "lib" / "python3.11" / "site-packages" / "nvidia" / name
        file.parent.mkdir(parents=True)
        file.touch()
    with (checkout / ".ci" / "setup").open("a", encoding="utf-8") as script:
        script.write("# so that every step is done again\n")
    assert not [words for words in run(checkout, "tests")[1] if "nvidia" in words]


def test_the_site_has_its_packages(checkout: Path) -> None:
    """FORD's in an environment of its own; once, and for nobody who does not ask."""
    assert not [words for words in run(checkout)[1] if "packages-of-docs" in words]
    assert run(checkout, "docs")[1] == ["packages-of-docs", "packages-of-docs-fortran"]
    assert (checkout / ".venv" / "ford" / "bin" / "python").is_file()
    assert run(checkout, "docs")[1] == []


def test_validate_builds_and_installs_less(checkout: Path) -> None:
    """One instruction set beside the baseline, and no linter; who has all of them once keeps them."""
    def levels(asked: list[str]) -> list[str]:
        return [word.rpartition("=")[2] for note in asked for word in note.split() if "-Dlevels=" in word]

    def packages(asked: list[str]) -> list[str]:
        return [word.removeprefix("packages-of-") for note in asked for word in note.split() if "packages-of-" in word]

    (checkout / "installed").unlink(missing_ok=True)
    said, found = run(checkout, "validate")
    assert levels(found) == ["machine"] and packages(found) == ["dependencies", "torch"]
    assert "source .venv/bin/activate" in said
    assert run(checkout, "validate")[1] == []
    said, found = run(checkout)
    assert levels(found) == ["all"]
    assert packages(found) == ["dependencies", "torch", "images", "train", "mpi", "plots", "test", "lint"]
    assert "source .venv/bin/activate" in said
    assert levels(run(checkout, "validate")[1]) == []


def test_a_build_with_other_options_begins_anew(checkout: Path) -> None:
    """meson takes no new option into a folder that was configured without it."""
    old = checkout / "build" / "python" / "build.ninja"
    old.parent.mkdir(parents=True)
    run(checkout)
    old.parent.mkdir(parents=True, exist_ok=True)
    old.touch()
    (checkout / "meson.build").write_text("# changed\n", encoding="utf-8")
    run(checkout)
    assert old.exists()
    (checkout / "meson_options.txt").write_text("option('new', type: 'boolean')\n", encoding="utf-8")
    run(checkout)
    assert not old.exists()


def test_packages_that_cannot_be_installed_end_it(checkout: Path) -> None:
    """Also those that are installed beside the build."""
    (checkout / "installed").unlink(missing_ok=True)
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(NOTES + '[[ "$*" != *packages-of-torch* ]]\n', encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError):
        run(checkout, "validate")
    python.write_text(NOTES, encoding="utf-8")
    assert [words for words in run(checkout, "validate")[1] if "packages-of-torch" in words]
