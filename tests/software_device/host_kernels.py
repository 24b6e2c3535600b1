# SPDX-License-Identifier: MIT
"""The CUDA Fortran kernels on a CPU, in two ways: compiled for it from the source, and by way of the PTX.

``source`` compiles kernels.cuf for this machine, which needs flang; ``ptx`` translates the PTX that the project ships,
which a GPU gets, into C. Both go into a shared library with the launcher host_kernels.c. Neither says anything about a
GPU's timing or its memory system, and each thread runs to its end before the next begins.

The software device links what ``ptx`` gives.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np

from tests import ROOT
from tests.software_device.ptx_as_c import ptx_as_c, table_as_c

KERNELS = ROOT / "fortran" / "cuda" / "kernels"
PTX = KERNELS / "kernels.ptx"
LAUNCHER = Path(__file__).with_name("host_kernels.c")
BLOCK = 256
ROUTES = ("source", "ptx")


def flang() -> str | None:
    """The flang that compiles the kernels, or None."""
    return next(filter(None, map(shutil.which, ("flang-22", "flang-23", "flang"))), None)


def builder() -> ModuleType:
    """fortran/cuda/kernels/build_kernels.py as a module."""
    spec = importlib.util.spec_from_file_location("build_kernels", KERNELS / "build_kernels.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def translate(folder: Path, header: str = "", parts: int = 1) -> list[Path]:
    """The PTX of the project as C files in `folder`, so many that can be compiled side by side; see `ptx_as_c`."""
    text, files = PTX.read_text(encoding="utf-8"), [folder / f"kernels_ptx_as_c_{i}.c" for i in range(parts)]
    for i, file in enumerate(files):
        file.write_text(ptx_as_c(text, header, slice(i, None, parts)), encoding="utf-8")
    return files


def table(folder: Path) -> Path:
    """The table of kernels as a C file in `folder`."""
    part = folder / "kernels_table.c"
    part.write_text(table_as_c(PTX.read_text(encoding="utf-8")), encoding="utf-8")
    return part


def build(folder: Path, route: str) -> Path:
    """Shared library in `folder` with the kernels and ``cnn_host_launch``.

    Parameters
    ----------
    folder : where it may write
    route : "source", or "ptx" for the PTX by way of C

    Raises
    ------
    FileNotFoundError
        If there is no flang, which "source" needs.
    """
    if route == "ptx":
        (part,) = translate(folder)
    else:
        compiler, part = flang(), folder / "kernels.o"
        if compiler is None:
            raise FileNotFoundError("no flang (flang-22, flang-23 or flang)")
        builder().compile_kernels(compiler, KERNELS / "kernels.cuf", part, target=None)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-o",
                    library(folder, route), LAUNCHER, table(folder), part, "-lm"], check=True)
    return library(folder, route)


def library(folder: Path, route: str) -> Path:
    """The file that `build` makes."""
    return folder / f"libkernels_{route}.so"


class HostKernels:
    """Launches kernels as the device would, with numpy arrays for its memory.

    Examples
    --------
    ``HostKernels(build(folder)).launch("cnn_narrow_f32", 2, np.int64(x.size), x, y)``
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._backwards = ctypes.c_int.in_dll(self._library, "cnn_host_backwards")

    def launch(self, name: str, blocks: int | tuple[int, int], *arguments: np.ndarray | np.generic | None,
               backwards: bool = False) -> None:
        """Run one kernel over its whole grid; arrays go by address (None is the null address), scalars by value."""
        grid = (*blocks, 1) if isinstance(blocks, tuple) else (blocks, 1, 1)
        kept = [np.array(0 if a is None else a.ctypes.data, np.uint64) if a is None or isinstance(a, np.ndarray)
                else np.array(a) for a in arguments]
        addresses = (ctypes.c_void_p * len(kept))(*(a.ctypes.data for a in kept))
        self._backwards.value = backwards
        status = self._library.cnn_host_launch(
            name.encode(), (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(BLOCK, 1, 1), addresses)
        if status != 0:
            raise KeyError(name)

    def one_thread(self, name: str, block: tuple[int, int], thread: int, blocks: tuple[int, int],
                   *arguments: ctypes.c_int64 | ctypes.c_void_p) -> None:
        """Run one thread of a grid that may be too large to run: `thread` of `block`, zero-based, among `blocks`."""
        for array, values in {"tid": (thread, 0, 0), "ntid": (BLOCK, 1, 1), "ctaid": (*block, 0),
                              "nctaid": (*blocks, 1)}.items():
            (ctypes.c_int * 3).in_dll(self._library, f"cnn_host_{array}")[:] = values
        kernel = self._library[name]
        kernel.restype = None
        kernel(*arguments)
