# SPDX-License-Identifier: MIT
"""Libraries that are broken in one way each, for CNN_CUDA_PATH: made from a few lines of C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.cuda import signatures

#: What runs when a library is loaded
ABORTS = 'fputs("Invalid handle. Cannot load symbol cudnnCreate\\n", stderr); abort();'
CRASHES = "raise(SIGSEGV);"
EXITS = '_exit(3);'
HANGS = "for (;;) pause();"

HEAD = "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"


def make_library(path: Path, *, when_loaded: str = "", functions: str = "") -> Path:
    """A shared library that does `when_loaded` in its constructor, with `functions` in C."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not on the search path")
    source = path.parent / f"{path.name.partition('.')[0]}.c"
    constructor = f"__attribute__((constructor)) static void when_loaded(void) {{ {when_loaded} }}\n"
    source.write_text(HEAD + constructor + functions, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, source], check=True, capture_output=True)
    return path


def with_all_symbols(binding: str, **values: int) -> str:
    """Every function of a library of ours, returning 0 or the value given."""
    names = signatures.functions(binding)
    assert len(names) > 3
    return "".join(f"long {name}(void) {{ return {values.get(name, 0)}; }}\n" for name in names)
