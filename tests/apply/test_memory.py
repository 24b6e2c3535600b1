# SPDX-License-Identifier: MIT
"""A micrograph of 4096 x 4096 needs what its tiles need, in every format; a folder of them no more than one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mrcfile
import numpy as np
import pytest

from bridge.data import Images
from tests import ROOT
from tests.helpers.files.image_files import write
from tests.helpers.networks.tiled_networks import conv, network, unet
from tests.helpers.tiers import deep

#: VmHWM is the most that a process ever had
PROGRAM = """
import os, sys
from bridge.apply.__main__ import main
def most():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
def run(name, output):
    assert main(["net.h5", name, "--output", output, "--normalization", "image", *sys.argv[2:]]) == 0
run("small" + os.path.splitext(sys.argv[1])[1], "first")
before = most()
run(sys.argv[1], "out")
print(most() - before)
"""
SIZE = 4096
#: Of --memory
LIMIT = 40_000_000


def growth(folder: Path, name: str, *options: str) -> int:
    """Bytes by which a process grows with a large image, once it has done a small one."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the peak is read from /proc, which is Linux's")
    done = subprocess.run([sys.executable, "-c", PROGRAM, name, *options], cwd=folder, capture_output=True, text=True,
                          check=False, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("ending", [".mrc", deep(".npy"), deep(".tif"), deep(".h5")])
def test_memory_is_that_of_a_tile(tmp_path: Path, ending: str) -> None:
    """The whole image in the network's layers would be 738 MB, its own numbers 67 MB."""
    network([conv("1", 1, 8), conv("2", 8, 1)]).save(tmp_path / "net.h5")
    rng = np.random.default_rng(0)
    write(tmp_path / f"small{ending}", rng.standard_normal((64, 64), dtype=np.float32))
    write(tmp_path / f"large{ending}", rng.integers(0, 200, (SIZE, SIZE)).astype(np.uint16))
    found = growth(tmp_path, f"large{ending}", "--memory", str(LIMIT))
    assert found < LIMIT
    with Images(str(tmp_path / "out" / f"large{ending}")) as images:
        assert images.shape(0) == (1, SIZE, SIZE)
        assert np.ptp(images.read(0, slice(SIZE - 3, SIZE))) > 1
    if ending == ".mrc":
        assert mrcfile.validate(tmp_path / "out" / "large.mrc")


@pytest.mark.deep
def test_memory_of_a_unet(tmp_path: Path) -> None:
    network(unet()).save(tmp_path / "net.h5")
    rng = np.random.default_rng(0)
    for name, size in (("small", 64), ("large", SIZE)):
        write(tmp_path / f"{name}.mrc", rng.standard_normal((size, size), dtype=np.float32))
    assert growth(tmp_path, "large.mrc", "--memory", str(LIMIT)) < LIMIT
