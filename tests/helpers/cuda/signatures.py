# SPDX-License-Identifier: MIT
"""The signatures of NVIDIA's functions, and the Fortran that the build writes of them and of operations."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bridge.operations.table import tomllib
from tests import ROOT

WRITER = ROOT / "fortran/from_table/write.py"
SIGNATURES = WRITER.parent / "cuda/bindings/signatures.toml"
#: Of this process, which removes it in the end
_folder = tempfile.TemporaryDirectory(prefix="from_table")


def functions(library: str, text: str = "") -> Mapping[str, str]:
    """The functions of a library, of the file or of another text.

    >>> functions("cudart")["cudaMalloc"]
    'dev_ptr pointer*, size size'
    """
    found: Mapping[str, str] = tomllib.loads(text or SIGNATURES.read_text(encoding="utf-8"))[library]
    return found


def interfaces(library: str, text: str) -> str:
    """The Fortran of a library's signatures in this text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(WRITER.parent))
        bindings: Any = importlib.import_module("bindings")
        patch.setattr(bindings, "signatures", lambda _: {library: functions(library, text)})
        written: str = bindings.nvidia()
    return written


@cache
def written() -> dict[str, Path]:
    """The files that the build writes, by the names of their modules; they are there as long as the process."""
    folder = Path(_folder.name)
    subprocess.run([sys.executable, WRITER, folder], check=True)
    templates = [path.relative_to(WRITER.parent) for path in WRITER.parent.rglob("*.f90.in")]
    return {"_".join(("cnn", *path.parent.parts, path.name.partition(".")[0])): folder / path.stem
            for path in templates}
