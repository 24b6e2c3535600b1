# SPDX-License-Identifier: MIT
"""What others install: wheels that need nothing beside, and the recipes of conda and spack."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

#: What manylinux allows a wheel to take from the system, and ours does (PEP 600)
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libmvec.so.1", "libdl.so.2", "libpthread.so.0", "libz.so.1",
                 "libgcc_s.so.1", "ld-linux-x86-64.so.2"}

#: The extension and h5py have an HDF5 each: a network is saved by ours, changed by h5py's and read again by ours
BOTH = """
import re, bridge, h5py, numpy as np
net = bridge.Network(bridge.Model((bridge.Conv2d("a", 2, 3, (3, 3)),)))
net.parameters["a.weight"][...] = np.arange(54).reshape(3, 2, 3, 3)
net.save("network.h5")
with h5py.File("network.h5", "r+") as file:
    weight = next(one for name, one in file["steps/0"]["weights"].items() if name == "a")["weight"]
    weight[...] = 2*weight[...]
again = bridge.Network.from_file("network.h5").parameters["a.weight"]
assert np.array_equal(again, 2*net.parameters["a.weight"])
maps = open("/proc/self/maps", encoding="utf-8").read()
print(len(set(re.findall(r"/[^ \\n]*/libhdf5-[^ \\n]*", maps))))
"""


@pytest.fixture(scope="module")
def wheels() -> ModuleType:
    """The script ``distribution/wheels.py``."""
    path = Path(__file__).parents[2] / "distribution/wheels.py"
    spec = importlib.util.spec_from_file_location("distribution_wheels", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made(folder: Path, *, libraries: tuple[str, ...], texts: tuple[str, ...], extension: bytes) -> Path:
    """A wheel with files of these names."""
    path = folder / "fortran_torch_bridge-0-cp311-cp311-manylinux_2_34_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_cnn_fortran.cpython-311-x86_64-linux-gnu.so", extension)
        for name in libraries:
            archive.writestr(f"fortran_torch_bridge.libs/{name}", "")
        for name in texts:
            archive.writestr(f"fortran_torch_bridge-0.dist-info/licenses/bundled/{name}", "")
    return path


def test_what_is_wrong_with_a_wheel_is_told(wheels: ModuleType, tmp_path: Path) -> None:
    ptx = b"..".join(wheels.PTX)
    good = ("libhdf5-9e18f0c6.so.320.0.0", "libgomp-24e2ab19.so.1.0.0")
    assert wheels.faults(made(tmp_path, libraries=good, texts=("hdf5.txt", "gcc-runtime.txt"), extension=ptx)) == []
    bad = made(tmp_path, libraries=("libcurl-1.so.4", good[1]), texts=("hdf5.txt",), extension=b"")
    assert sorted(wheels.faults(bad)) == [
        "HDF5 is not in it", "libcurl is in it, which nothing of ours needs",
        "libgomp is in it without its licence text gcc-runtime.txt", "the extension has no PTX of the CUDA kernels"]
    for name in wheels.LIBRARIES.values():
        assert (wheels.LICENSES / name).stat().st_size > 1000


def test_recipes_name_what_the_package_needs(root: Path) -> None:
    """And its version; conda's own names are the same."""
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    recipe = (root / "distribution/conda/recipe.yaml").read_text(encoding="utf-8")
    spack = (root / "distribution/spack/package.py").read_text(encoding="utf-8")
    build = (root / "meson.build").read_text(encoding="utf-8")
    (version,) = re.findall(r"^ {2}version: '([^']+)'", build, re.MULTILINE)
    assert re.findall(r"^ {2}version: ([\d.]+)$", recipe, re.MULTILINE) == [version]
    compile(spack, "package.py", "exec")
    assert re.findall(r'version\("([\d.]+)"', spack) == [version]
    assert f">={re.findall(r'meson@([.0-9]+):', spack)[0]}" in build
    (needed,) = re.findall(r"^dependencies = \[(.*?)\]$", project, re.MULTILINE | re.DOTALL)
    run = recipe.partition("\n  run:\n")[2].partition("\n\n")[0]
    assert {line.strip("- ").replace(" >=", ">=") for line in run.splitlines()} - {"python"} == \
        {one.partition(";")[0] for one in re.findall(r'"([^"]+)"', needed)}
    (built,) = re.findall(r"^requires = \[(.*)\]$", project, re.MULTILINE)
    for name in re.findall(r'"([^"]+)"', built):
        assert f"- {name.partition(';')[0].replace('>=', ' >=')}\n" in recipe


def clean(*command: str | Path, folder: Path, **variables: str) -> str:
    """What a command prints that finds nothing of ours, and no library, but where it lies itself; it must end well."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    done = subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(distribution: str) -> bool:
    """Whether a package is there."""
    return any(importlib.metadata.distributions(name=distribution))


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is for Linux")
def test_a_wheel_works_wherever_it_is_put(root: Path, tmp_path: Path, wheels: ModuleType) -> None:
    """In an environment of its own, with ``pip install --target``, and beside h5py's HDF5 in one process."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # To look for the module pip warns, where another test has imported distutils
    missing = [name for name in ("auditwheel", "meson-python", "pip") if not installed(name)]
    missing += [name for name in ("patchelf",) if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    # Most objects are those of the build for the tests: in a folder as deep the paths to the sources are the same
    ours = root / "build/meson-0"
    shutil.rmtree(ours, ignore_errors=True)
    if (root / "build/python").is_dir():
        shutil.copytree(root / "build/python", ours, symlinks=True)
    said = clean(sys.executable, root / "distribution/wheels.py", "--output", tmp_path, "--build", root / "build",
                 folder=root, PATH=path)
    (wheel,) = tmp_path.glob("*.whl")
    assert re.search(r"manylinux_2_\d+_x86_64.whl: [\d.]+ MiB, complete\n", said), said

    clean(sys.executable, "-m", "venv", tmp_path / "venv", folder=tmp_path)
    python = tmp_path / "venv/bin/python"
    clean(python, "-m", "pip", "install", "--quiet", wheel, folder=tmp_path)
    (packages,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
    binaries = [*packages.glob("_cnn_fortran*.so"), packages / "cnn_programs/cnn_step",
                *(packages / "fortran_torch_bridge.libs").iterdir()]
    ours = {file.name for file in binaries}
    for file in binaries:
        needed = re.findall(r"NEEDED.*\[(.*)\]", clean("readelf", "-d", file, folder=tmp_path))
        assert needed and {*needed} <= ours | OF_THE_SYSTEM, file

    version = re.findall(r"-([\d.]+)-cp", wheel.name)[0]
    assert clean(tmp_path / "venv/bin/cnn_step", "--version", folder=tmp_path) == f"cnn_step {version}\n"
    for first in ("h5py", "cnn_fortran"):
        assert clean(python, "-c", f"import {first}\n{BOTH}", folder=tmp_path) == "2\n"
    assert "cnn_fortran" in clean(python, "-m", "bridge.doctor", folder=tmp_path)

    target = tmp_path / "target"
    clean(python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, wheel, folder=tmp_path)
    found = clean(target / "bin/cnn_step", "--version", folder=tmp_path, PYTHONPATH=str(target))
    assert found == f"cnn_step {version}\n"

