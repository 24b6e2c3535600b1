# SPDX-License-Identifier: MIT
"""Python, its packages, compilers, and the environment variables that matter."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import h5py

from bridge.doctor.cpu import LANES_WAYS, LEVELS
from bridge.doctor.records import Row, Section, State

#: Distributions, and what they are for
NEEDED = {"numpy": "", "h5py": "", "rich": "", "threadpoolctl": "", "f90wrap": ""}
OPTIONAL = {
    "torch": "the reference of validate: pip install 'torch>=2.5'",
    "cupy": "arrays on the GPU",
    "matplotlib": "--plot",
    "mrcfile": "--image of a micrograph",
    "pillow": "--image of a picture",
    "meson": "to build",
}
#: What a compiler's program may be called on the search path
COMPILERS = {"gfortran": r"gfortran(-\d+)?", "flang": r"flang(-new)?(-\d+)?", "nvfortran": r"nvfortran",
             "ifx": r"ifx"}
#: Seconds for a program to say its version
PATIENCE = 10.0


def python_section() -> Section:
    """Return the section on Python and the packages that are used."""
    rows = [Row("python", f"{platform.python_version()}, {sys.executable}", State.GOOD),
            Row("machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores")]
    for name in NEEDED:
        found = version(name)
        rows.append(Row(name, found or "missing", State.GOOD if found else State.BAD, _note(name)))
    for name, use in OPTIONAL.items():
        found = version(name)
        rows.append(Row(name, found or "not installed", State.GOOD if found else State.ABSENT,
                        _note(name) if found else use))
    return Section("Python", rows)


def version(name: str) -> str | None:
    """Return the version of a distribution; for cupy also those made for one CUDA version."""
    names = ["cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"] if name == "cupy" else [name]
    for one in names:
        try:
            return metadata.version(one)
        except metadata.PackageNotFoundError:
            continue
    return None


def _note(name: str) -> str:
    if name == "h5py":
        return f"HDF5 {h5py.version.hdf5_version}"
    return torch_build() if name == "torch" else ""


def torch_build() -> str:
    """Return which CUDA torch was built for, read from its version file: importing torch takes seconds.

    Examples
    --------
    >>> torch_build() in ("", "built without CUDA") or torch_build().startswith("built for CUDA ")
    True
    """
    try:
        file = next((one for one in metadata.files("torch") or () if str(one) == "torch/version.py"), None)
        text = file.read_text() if file else ""
    except (metadata.PackageNotFoundError, OSError):
        return ""
    found = re.search(r"^cuda\b[^=]*=\s*(?:'([^']*)'|None)", text, re.MULTILINE)
    if found is None:
        return ""
    return f"built for CUDA {found[1]}" if found[1] else "built without CUDA"


def compilers_section() -> Section:
    """Return the section on every Fortran compiler on the search path."""
    rows = []
    for name, pattern in COMPILERS.items():
        found = programs(pattern)
        rows += [Row(path.name, first_line(path, "--version"), State.GOOD, str(path)) for path in found]
        if not found:
            rows.append(Row(name, "not on the search path", State.ABSENT))
    return Section("Fortran compilers", rows)


def programs(pattern: str) -> list[Path]:
    """Return programs on the search path whose whole name matches; each file once, under its first name."""
    found: dict[Path, Path] = {}
    for folder in os.get_exec_path():
        try:
            names = sorted(os.listdir(folder or "."))
        except OSError:
            continue
        for name in names:
            path = Path(folder or ".", name)
            if re.fullmatch(pattern, name) and os.access(path, os.X_OK) and path.is_file():
                found.setdefault(path.resolve(), path)
    return list(found.values())


def first_line(program: Path, *arguments: str) -> str:
    """Return the first line that a program prints that is not empty."""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, errors="replace", check=False,
                              timeout=PATIENCE, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return f"no answer within {PATIENCE:g} s"
    except OSError as error:
        return f"cannot be run: {error.strerror}"
    lines = [line.strip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    return lines[0] if lines else f"exit status {done.returncode}"


def _folders(value: str) -> str:
    missing = [one for one in value.split(":") if one and not Path(one).is_dir()]
    return f"no such folder: {', '.join(missing)}" if missing else ""


def _visible(value: str) -> str:
    return "" if value.strip() and not value.strip().startswith("-") else "hides every GPU"


def _tf32(value: str) -> str:
    return "forbids TF32 in cuDNN and cuBLAS, whatever math= says" if value == "0" else "no effect: only 0 forbids TF32"


def _level(value: str) -> str:
    return "" if value in ("", *LEVELS) else f"unknown, expected {', '.join(LEVELS)}"


def _lanes(value: str) -> str:
    return "" if value in ("", *LANES_WAYS) else f"unknown, expected {' or '.join(LANES_WAYS)}"


#: What a variable does; and what is to be said of its value
VARIABLES: dict[str, tuple[str, Callable[[str], str]]] = {
    "CNN_CUDA_PATH": ("CUDA libraries: looked in first", _folders),
    "CNN_CUDA_WHEELS": ("NVIDIA's wheels, second; Python finds them", _folders),
    "LD_LIBRARY_PATH": ("folders of the loader, last", lambda value: ""),
    "CUDA_VISIBLE_DEVICES": ("which GPUs CUDA shows; not set: all", _visible),
    "NVIDIA_TF32_OVERRIDE": ("0 forbids TF32", _tf32),
    "CNN_CPU_LEVEL": ("instruction set of the cpu device; not set: the best", _level),
    "CNN_CPU_CAP": ("the highest instruction set that this processor is said to have, for tests", _level),
    "CNN_CPU_LANES": ("what is in the vector lanes of the cpu device; not set: what is faster", _lanes),
    "OMP_NUM_THREADS": ("threads of the cpu device", lambda value: ""),
}


def variables_section() -> Section:
    """Return the section on environment variables, as the user has set them."""
    rows = []
    for name, (about, judge) in VARIABLES.items():
        value = os.environ.get(name)
        if value is None:
            rows.append(Row(name, "not set", State.ABSENT, about))
        else:
            remark = judge(value)
            rows.append(Row(name, value or "empty", State.BAD if remark and name != "NVIDIA_TF32_OVERRIDE" else
                            State.FACT, remark or about))
    return Section("Environment variables", rows)
