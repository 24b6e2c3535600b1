# SPDX-License-Identifier: MIT
"""The library as it is installed: programs outside the project find it, and the examples do what they say."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from bridge.compare import main as compare
from tests import ROOT
from tests.helpers.built_once import built_once
from tests.helpers.library.documents import blocks
from tests.helpers.library.fortran_ranks import ENVIRONMENT, skip_without_mpi

# Builds everything once more
pytestmark = [pytest.mark.deep, pytest.mark.together]

EXAMPLES = ROOT / "examples"
#: Those that `use cnn`
NAMES = {path.stem: path for path in EXAMPLES.glob("*/*.f90") if "use cnn" in path.read_text(encoding="utf-8")}
#: This one needs CUDA's runtime, and is compiled and run in test_network.py
del NAMES["gpu_arrays"]
#: This one needs MPI
MPI = NAMES.pop("mpi")
#: These print losses step by step, which are those of the Python program beside each
CURVES = ("gpt", "emulator", "tomogram", "vit", "heat")
#: What programs are given
ARGUMENTS = {"gpt": (str(ROOT / "README.md"), "60"), "emulator": ("60",), "tomogram": ("60",), "vit": ("60",),
             "heat": ("60",)}
#: Where meson and ninja are
PATH = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
DOCUMENT = blocks((ROOT / "docs/fortran.md").read_text(encoding="utf-8"))
#: What Debian's packages bring that docs/fortran.md asks for, cmake and git not among them; and MPI, for its tests
ASKED_FOR = ("gfortran", "gcc", "cc", "as", "ld", "ar", "meson", "ninja", "pkg-config", "python3", "sh", "cp", "rm",
             "mpifort")


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """What it prints; it must end well."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                          env=os.environ | {"PATH": PATH} | environment)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def typed(beginning: str) -> str:
    """The block of docs/fortran.md that begins so."""
    (found,) = (block.text for block in DOCUMENT if block.text.startswith(beginning))
    return found


def copy_library(folder: Path) -> None:
    """The sources that the library is built from."""
    for name in ("fortran", "bridge/operations/table"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("meson.build", "meson_options.txt"):
        shutil.copy(ROOT / name, folder)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By the commands and programs of docs/fortran.md, without a warning; then moved, as a package is."""
    for program in ("meson", "gfortran", "pkg-config"):
        if shutil.which(program, path=PATH) is None:
            pytest.skip(f"skipped, because {program} is not on the search path")

    def build(folder: Path) -> None:
        sources, programs = folder / "sources", folder / "programs"
        copy_library(sources)
        programs.mkdir()
        for program in ASKED_FOR:
            if found := shutil.which(program, path=PATH):
                (programs / program).symlink_to(found)
        setup, install = typed("meson setup").splitlines()
        run("/bin/bash", "-ec", f"{setup} -Dmpi=auto -Dlevels=machine -Dwerror=true --libdir=lib\n"
            f"{install} --destdir {folder / 'stage'}", folder=sources, HOME=str(folder), PATH=str(programs))
        shutil.copytree(folder / "stage" / (folder / "cnn").relative_to("/"), folder / "prefix", symlinks=True)

    return built_once(tmp_path_factory, "library", build) / "prefix"


def by_pkg_config(prefix: Path, folder: Path) -> None:
    """As docs/fortran.md has it, with every warning; that with MPI by mpifort, where that is."""
    path = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    flags = run("pkg-config", f"--define-variable=prefix={prefix}", "--cflags", "--libs", "cnn", folder=folder, **path)
    for name, source in {**NAMES, "mpi": MPI}.items():
        compiler = "mpifort" if name == "mpi" else "gfortran"
        if shutil.which(compiler):
            run(compiler, "-std=f2018", "-Wall", "-Wextra", "-Werror", source, *flags.split(), "-o", name,
                folder=folder)


def by_cmake(prefix: Path, folder: Path) -> None:
    run("cmake", "-S", EXAMPLES, "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", folder=folder)
    run("cmake", "--build", "build", folder=folder)


def describe(prefix: Path, folder: Path) -> None:
    """The file for pkg-config, of the folder that the library was moved to."""
    written = (prefix / "lib/pkgconfig/cnn.pc").read_text(encoding="utf-8")
    (folder / "cnn.pc").write_text(re.sub(r"^prefix=.*", f"prefix={prefix}", written, flags=re.MULTILINE), "utf-8")


def by_meson(prefix: Path, folder: Path) -> None:
    shutil.copytree(EXAMPLES, folder / "examples")
    describe(prefix, folder)
    run("meson", "setup", "build", "examples", f"--pkg-config-path={folder}", folder=folder)
    run("meson", "compile", "-C", "build", folder=folder)


def by_fpm(prefix: Path, folder: Path) -> None:
    """As the first line of examples/fpm.toml has it."""
    shutil.copytree(EXAMPLES, folder / "examples")
    path = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    flags = [run("pkg-config", f"--define-variable=prefix={prefix}", which, "cnn", folder=folder, **path).strip()
             for which in ("--cflags", "--libs")]
    run("fpm", "install", "--prefix", folder / "installed", "--flag", flags[0], "--link-flag", flags[1],
        folder=folder / "examples")


#: How programs are built, and where they are then
BUILDS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "pkg-config": (by_pkg_config, "."), "cmake": (by_cmake, "build"), "meson": (by_meson, "build"),
    "fpm": (by_fpm, "installed/bin")}


@pytest.fixture(scope="module")
def programs(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of the examples' programs, which a way to build has made; skips where its program is missing."""
    def made(build: str) -> Path:
        if shutil.which(build, path=PATH) is None:
            pytest.skip(f"skipped, because {build} is not on the search path")
        how, place = BUILDS[build]
        return built_once(tmp_path_factory, f"examples-by-{build}", lambda folder: how(prefix, folder)) / place

    return made


@pytest.fixture(scope="module")
def in_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the Python program beside each example ran: what they wrote, and what they printed (.txt)."""
    def build(folder: Path) -> None:
        for name, path in NAMES.items():
            said = run(sys.executable, path.with_suffix(".py"), *ARGUMENTS.get(name, ()), folder=folder,
                       PYTHONPATH=str(ROOT))
            (folder / f"{name}.txt").write_text(said, encoding="utf-8")

    return built_once(tmp_path_factory, "examples-in-python", build)


def test_the_first_program(prefix: Path, tmp_path: Path) -> None:
    """Typed as docs/fortran.md has it."""
    commands = typed("export PKG_CONFIG_PATH")
    (tmp_path / "first.f90").write_text(typed("program first"), encoding="utf-8")
    described = tmp_path / re.findall(r"=\$HOME/(.*)", commands)[0]
    described.mkdir(parents=True)
    describe(prefix, described)
    said = run("bash", "-ec", commands, folder=tmp_path, HOME=str(tmp_path))
    assert said.startswith("loss ") and float(said.split()[-1]) < 0.01


@pytest.mark.parametrize("build", BUILDS)
def test_examples(build: str, programs: Callable[[str], Path], in_python: Path, tmp_path: Path) -> None:
    """Compiled in an empty folder; each prints what the Python program beside it prints, where that does not draw."""
    folder = programs(build)
    python = {name: (in_python / f"{name}.txt").read_text(encoding="utf-8") for name in NAMES}
    # Not what Python has trained, from which a training would go on
    for network in ("denoiser.h5", *(f"{name}.h5" for name in CURVES)):
        shutil.copy(in_python / network, tmp_path)
    assert set(NAMES) == {"inference", "training", "adjoint", "checkpoint", *CURVES}
    fortran = {name: run(folder / name, *ARGUMENTS.get(name, ()), folder=tmp_path) for name in NAMES}
    assert fortran["inference"].split() == python["inference"].split()
    for said in (fortran["training"], python["training"]):
        losses = [float(line.split()[-1]) for line in said.splitlines()]
        # The noise is 1/12
        assert len(losses) == 3 and losses[-1] < losses[0] < 0.25 / 12
    if build == "pkg-config":
        check_resumed(folder / "training", tmp_path)
    for said in (fortran["adjoint"], python["adjoint"]):
        assert float(said.split()[-1]) < 1e-7
    for name in CURVES:
        ours, theirs = ([float(line.split()[-1]) for line in said.splitlines() if line.startswith("step")]
                        for said in (fortran[name], python[name]))
        assert len(theirs) == 4 and theirs[-1] < 0.8 * theirs[0] and ours == pytest.approx(theirs, rel=1e-3)
    before, after = map(float, re.findall(r"\d\.\d+", fortran["tomogram"].splitlines()[-1]))
    assert after < 0.1 * before
    right, of = map(int, re.findall(r"\d+", fortran["vit"].splitlines()[-1]))
    assert right > 0.9 * of
    for said in (fortran["checkpoint"], python["checkpoint"]):
        assert re.fullmatch(r"step 40, loss 0\.\d+, the same to the bit: T", said.strip())


def check_resumed(program: Path, whole: Path) -> None:
    """Killed after its first checkpoint and started again, it has the bits of the training that was not."""
    folder = whole / "killed"
    folder.mkdir()
    with subprocess.Popen([program], cwd=folder, stdout=subprocess.DEVNULL) as process:
        while not (folder / "trained.h5").exists():
            assert process.poll() is None
        process.kill()
    with h5py.File(folder / "trained.h5") as file:
        assert file.attrs["first_step"] < 300
    run(program, folder=folder)
    names: list[str] = []
    with h5py.File(folder / "trained.h5") as ours, h5py.File(whole / "trained.h5") as theirs:
        assert ours.attrs["first_step"] == theirs.attrs["first_step"] == 300
        ours["steps"].visititems(lambda name, one: names.append(name) if isinstance(one, h5py.Dataset) else None)
        assert len(names) == 18
        assert all(ours["steps"][name][()].tobytes() == theirs["steps"][name][()].tobytes() for name in names)


@pytest.mark.parametrize("build", ["pkg-config", "cmake", "meson"])
def test_the_example_with_mpi(build: str, programs: Callable[[str], Path], tmp_path: Path) -> None:
    """Any number of ranks trains the same network; how it was built says nothing of more than one."""
    skip_without_mpi()
    program = programs(build) / "mpi"
    losses = [check_losses("mpirun", "-n", str(ranks), program, folder=tmp_path)
              for ranks in ((1, 2, 3, 4) if build == "meson" else (2,))]
    for found in losses:
        # Sums in another order
        assert found == pytest.approx(losses[0], rel=1e-3)


def test_the_example_with_mpi_in_python(prefix: Path, tmp_path: Path) -> None:
    skip_without_mpi()
    pytest.importorskip("mpi4py", reason="skipped, because mpi4py is not installed")
    losses = [check_losses("mpirun", "-n", ranks, sys.executable, MPI.with_suffix(".py"), folder=tmp_path)
              for ranks in ("1", "2")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def check_losses(*command: str | Path, folder: Path) -> list[float]:
    """What the example prints: the first rank alone, and the network learns."""
    said = run(*command, folder=folder, PYTHONPATH=str(ROOT), **ENVIRONMENT)
    losses = [float(line.split()[-1]) for line in said.splitlines()]
    assert len(losses) == 5 and losses[-1] < 0.25 * losses[0]
    return losses


def test_the_program_for_many_ranks_is_built_where_it_is_asked_for(prefix: Path) -> None:
    skip_without_mpi()
    assert "usage: mpirun" in run(prefix / "bin/cnn_train", "--help", folder=prefix)
    # The library knows nothing of MPI
    assert "mpi" not in run("readelf", "-d", prefix / "lib/libcnn.so", folder=prefix).lower().replace("compil", "")


SUBPROJECT = """
project('mine', 'fortran', 'c')
cnn = dependency('cnn', fallback: ['fortran-torch-bridge', 'cnn_dep'],
                 default_options: ['python=false', 'levels=machine'])
executable('checkpoint', 'checkpoint.f90', dependencies: cnn)
"""
FETCHED = """
cmake_minimum_required(VERSION 3.18)
project(mine Fortran)
include(FetchContent)
FetchContent_Declare(cnn SOURCE_DIR "${CMAKE_SOURCE_DIR}/subprojects/fortran-torch-bridge"
                     SOURCE_SUBDIR fortran/installed)
FetchContent_MakeAvailable(cnn)
add_executable(checkpoint checkpoint.f90)
target_link_libraries(checkpoint PRIVATE cnn::cnn)
"""


@pytest.mark.parametrize("build", ["meson", "cmake"])
def test_as_a_part_of_another_project(build: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed: a meson subproject, and CMake's FetchContent, which starts meson.

    How fast it is matters nowhere here: to optimise takes most of the time.
    """
    for language in ("CFLAGS", "FFLAGS"):
        monkeypatch.setenv(language, "-O0")
    for program in (build, "meson", "gfortran"):
        if shutil.which(program, path=PATH) is None:
            pytest.skip(f"skipped, because {program} is not on the search path")
    copy = tmp_path / "subprojects/fortran-torch-bridge"
    copy_library(copy)
    shutil.copy(NAMES["checkpoint"], tmp_path)
    if build == "meson":
        (tmp_path / "meson.build").write_text(SUBPROJECT, encoding="utf-8")
        run("meson", "setup", "build", folder=tmp_path)
        run("meson", "compile", "-C", "build", folder=tmp_path)
    else:
        (tmp_path / "CMakeLists.txt").write_text(FETCHED, encoding="utf-8")
        run("cmake", "-B", "build", folder=tmp_path)
        run("cmake", "--build", "build", folder=tmp_path)
    assert "the same to the bit: T" in run(tmp_path / "build/checkpoint", folder=tmp_path)


def test_the_example_for_ci(tmp_path: Path) -> None:
    """It passes, and with a program that writes no result it fails."""
    shutil.copy(EXAMPLES / "4_ci/test_step.py", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_step.py"]
    assert "1 passed" in run(*command, folder=tmp_path, PYTHONPATH=str(ROOT))
    source = (tmp_path / "test_step.py").read_text(encoding="utf-8")
    (tmp_path / "test_step.py").write_text(source.replace('"cnn_step"', '"true"'), encoding="utf-8")
    with pytest.raises(AssertionError, match="1 failed"):
        run(*command, folder=tmp_path, PYTHONPATH=str(ROOT))


def test_what_is_installed(prefix: Path) -> None:
    """A library that finds its own libraries and no others, one module, and programs that run."""
    assert [path.name for path in (prefix / "include/cnn").iterdir()] == ["cnn.mod"]
    assert (prefix / "lib/libcnn.a").stat().st_size > 1_000_000
    needed = re.findall(r"NEEDED.*\[(.*?)\.so", run("readelf", "-d", prefix / "lib/libcnn.so", folder=prefix))
    # the loader itself is glibc's, and has what each thread keeps for itself in a shared library
    assert {name for name in needed if not name.startswith(("libc", "libm", "libgfortran", "libgomp", "libquadmath",
                                                            "libhdf5", "libgcc", "libdl", "ld-linux"))} == set()
    assert "usage" in run(prefix / "bin/cnn_step", "--help", folder=prefix).lower()


@pytest.fixture(scope="module")
def by_flang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of a second compiler, whose linker and modules are others."""
    if shutil.which("flang-22") is None:
        pytest.skip("skipped, because flang-22 is not on the search path")

    def build(folder: Path) -> None:
        # To optimise more takes twice as long, and this one is not measured
        run("meson", "setup", folder / "build", ROOT, "-Dpython=false", "-Dlevels=machine", "--libdir=lib",
            f"--prefix={folder / 'prefix'}", folder=folder, FC="flang-22", FFLAGS="-O1")
        run("meson", "install", "-C", folder / "build", folder=folder)

    return built_once(tmp_path_factory, "flang", build) / "prefix"


def test_flang_makes_a_program_that_is_right(by_flang: Path, small_fixture: Path, tmp_path: Path) -> None:
    run(by_flang / "bin/cnn_step", small_fixture, "result.h5", folder=tmp_path)
    assert compare([str(small_fixture), str(tmp_path / "result.h5")]) == 0


def test_programs_of_flang_use_it(by_flang: Path, in_python: Path, tmp_path: Path) -> None:
    """As docs/fortran.md has it, and its first program; their results are those of gfortran's."""
    flags = run("pkg-config", "--cflags", "--libs", "cnn", folder=tmp_path,
                PKG_CONFIG_PATH=str(by_flang / "lib/pkgconfig")).split()
    for name in ("inference", "adjoint"):
        run("flang-22", NAMES[name], *flags, "-o", name, folder=tmp_path)
    shutil.copy(in_python / "denoiser.h5", tmp_path)
    said = (in_python / "inference.txt").read_text(encoding="utf-8")
    assert run(tmp_path / "inference", folder=tmp_path).split() == said.split()
    assert float(run(tmp_path / "adjoint", folder=tmp_path).split()[-1]) < 1e-7


MAJOR, MINOR, PATCH = (int(number) for number in importlib.metadata.version("fortran-torch-bridge").split("."))


@pytest.mark.parametrize(("asked", "fits"), [
    ("", True), (f"{MAJOR}.{MINOR}", True), (f"{MAJOR}.{MINOR}.{PATCH} EXACT", True),
    (f"{MAJOR}.{MINOR}.{PATCH + 1}", False), (f"{MAJOR}.{MINOR} EXACT", False), (f"{MAJOR}.{MINOR + 1}", False),
    (f"{MAJOR}.{max(MINOR - 1, 0)}", MINOR == 0), (f"{MAJOR + 1}.{MINOR}", False)])
def test_cmake_is_told_which_versions_fit(asked: str, fits: bool, prefix: Path, tmp_path: Path) -> None:
    """Those of one minor number, from the asked one on."""
    if shutil.which("cmake") is None:
        pytest.skip("skipped, because cmake is not on the search path")
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.18)\nproject(mine NONE)\nfind_package(cnn {asked})\n"
        'file(WRITE "${CMAKE_BINARY_DIR}/found" "${cnn_FOUND}")\n', encoding="utf-8")
    run("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", folder=tmp_path)
    assert (tmp_path / "build/found").read_text(encoding="utf-8") == str(int(fits))
