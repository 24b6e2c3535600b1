# SPDX-License-Identifier: MIT
"""The HDF5 library that a program finds when it starts may be another than the one that it was built with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.engine.library.programs import cnn_step

#: Answers in the library's place
VERSION = """int H5get_libversion(unsigned *major, unsigned *minor, unsigned *release)
{{ *major = {}; *minor = {}; *release = {}; return 0; }}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is for Linux")
@pytest.mark.parametrize(("version", "said"), [
    ((1, 8, 23), "the HDF5 library is of version 1.8.23, expected 1.10 or newer"),
    ((1, 10, 0), "fixture.h5: no such file"),
    ((2, 0, 0), "fixture.h5: no such file"),
])
def test_an_old_library_is_refused(tmp_path: Path, version: tuple[int, int, int], said: str) -> None:
    """Its numbers of objects have 32 bits, so nothing else may be asked of it."""
    source, library = tmp_path / "version.c", tmp_path / "version.so"
    source.write_text(VERSION.format(*version), encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    done = subprocess.run([cnn_step(), "fixture.h5", "result.h5"], env=os.environ | {"LD_PRELOAD": str(library)},
                          cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
