# SPDX-License-Identifier: MIT
"""Flags of whoever builds the library do not make its numbers wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.deep
def test_fast_math_is_taken_back(root: Path, tmp_path: Path) -> None:
    """With it an exponential was a fifth away: its argument is split by a number that is added and taken away."""
    environment = os.environ | {"FFLAGS": "-ffast-math", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run([sys.executable, "-m", "mesonbuild.mesonmain", "setup", tmp_path / "build", root, "-Dpython=false"],
                   env=environment, check=True, capture_output=True)
    commands = json.loads((tmp_path / "build" / "compile_commands.json").read_text(encoding="utf-8"))
    fortran = [one["command"].split() for one in commands if one["file"].endswith(".f90")]
    assert len(fortran) > 100
    for words in fortran:
        assert words.index("-ffast-math") < words.index("-fno-fast-math")
