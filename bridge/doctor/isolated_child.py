# SPDX-License-Identifier: MIT
"""``python -m bridge.doctor.isolated_child FILE QUESTION ...``, the child of `isolated`, appends the answers to
FILE."""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from bridge.doctor import cpu, plans
from bridge.doctor.probe import probe
from bridge.engine.library import extension


def main(arguments: Sequence[str]) -> int:
    """Answer one after the other; what a question raises is its answer."""
    _no_core_file()
    path, *questions = arguments
    with open(path, "a", encoding="utf-8") as file:
        for question in questions:
            name, _, argument = question.partition(":")
            value, error = None, ""
            try:
                value = ANSWERS[name](argument)
            except Exception as raised:
                error = " ".join(str(raised).split()) or type(raised).__name__
            print(json.dumps({"question": question, "value": value, "error": error}), file=file, flush=True)
    return 0


def _facts(part: str) -> dict[str, str]:
    """A part of what ``fortran/cuda/info/report.f90`` says."""
    text = extension.call("cuda_facts", part)
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    lines = (line.partition(": ") for line in text.strip().splitlines())
    return {name.strip(): value.strip() for name, _, value in lines if name.strip()}


def _library(_: str) -> dict[str, Any]:
    """The Fortran library and what it was linked with, as it is in this process."""
    from threadpoolctl import threadpool_info

    version = extension.fortran_version()
    pools = [{name: pool.get(name) for name in ("user_api", "internal_api", "version", "num_threads", "filepath")}
             for pool in threadpool_info()]
    return {"version": version, "threads": pools, "hdf5": _hdf5(), "path": _extension()}


def _extension() -> str:
    return str(getattr(sys.modules.get("_cnn_fortran"), "__file__", ""))


def _hdf5() -> dict[str, str]:
    """Version of every HDF5 library in this process, by path: h5py brings its own."""
    found: dict[str, str] = {}
    with suppress(OSError):
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        for path in sorted(set(re.findall(r"/\S*/libhdf5(?:_serial)?[-.][^\s_]*$", maps, re.MULTILINE))):
            with suppress(OSError, AttributeError):
                numbers = [ctypes.c_uint() for _ in range(3)]
                ctypes.CDLL(path).H5get_libversion(*(ctypes.byref(one) for one in numbers))
                found[path] = ".".join(str(one.value) for one in numbers)
    return found


def _no_core_file() -> None:
    """Of a crash that is expected."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


ANSWERS: dict[str, Callable[[str], Any]] = {
    "cpu": cpu.facts,
    "echo": str,
    "facts": _facts,
    "library": _library,
    "numpy": lambda _: np.__version__,
    "plans": plans.facts,
    "probe": probe,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
