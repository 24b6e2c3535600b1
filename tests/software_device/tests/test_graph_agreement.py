# SPDX-License-Identifier: MIT
"""Where the real cuDNN answers without a GPU, the strict software device answers the same.

It refuses more: what is asked here is what both take, or both refuse.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.helpers.cuda import nvidia_packages

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep


def asked(libraries: list[Path]) -> dict[str, object]:
    """The answers of the last library, in a process of its own."""
    code = ("import json; from tests.software_device.graph_answers import tell; "
            f"print(json.dumps(tell({[str(p) for p in libraries]})))")
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_as_the_real_cudnn(folder: Path) -> None:
    """Statuses, counts, texts, and what may be destroyed when."""
    found = nvidia_packages.require("lib", "libcudnn.so.9")
    nvidia_packages.require("lib", "libcublasLt.so.*")
    nvidia_packages.require_cudnn(9, 8)
    both = ("libcublasLt.so.*", "libcudnn.so.9")
    real = asked([next(path for place in found for path in place.glob(name)) for name in both])
    device = asked([folder / "libcudnn.so.9"])
    if real["version"] != device["version"]:
        pytest.skip(f"the installed cuDNN is {real['version']}; the device's answers are those of {device['version']}")
    assert device == real
