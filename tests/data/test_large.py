# SPDX-License-Identifier: MIT
"""Stacks of 259 GB, which take no room on the disk: memory does not grow with them, nor with the number of batches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge.data import Images
from tests import ROOT

#: Images of 2048 x 2048 float32: 259 GB
COUNT, SIZE = 15440, 2048
#: What a process may grow by once it has seen a few batches, of 1 MiB each
MOST_MIB = 16

PROGRAM = """
import sys
from bridge.data import Batches, Consecutive
def now():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))
batches = Batches(Consecutive(sys.argv[1]), 2, (256, 256), block=4, normalization=sys.argv[2] or None)
seen, images = [], set()
for batch in batches.stream(0, 80):
    seen.append(now())
    images.update(batch.images.tolist())
    assert batch.input.shape == (2, 1, 256, 256) and not batch.input.any()
assert len(images) == 160
print(max(seen[20:]) - max(seen[:20]))
"""


def sparse_npy(path: Path) -> None:
    """Only its header is written."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False,
                                                    "shape": (COUNT, SIZE, SIZE)})
        file.truncate(file.tell() + COUNT * SIZE * SIZE * 4)


def unallocated_h5(path: Path) -> None:
    """No chunk is written: all is the fill value."""
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (COUNT, SIZE, SIZE), np.float32, chunks=(1, 512, 512), compression="gzip")


@pytest.mark.parametrize(("name", "normalization"), [("a.npy", "image"), ("a.h5", "")])
def test_memory_is_flat(tmp_path: Path, name: str, normalization: str) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("resident memory is read from /proc, which is Linux's")
    path = tmp_path / name
    (sparse_npy if path.suffix == ".npy" else unallocated_h5)(path)
    assert os.stat(path).st_blocks * 512 < 2**20
    assert len(Images(path)) * SIZE * SIZE * 4 > 259e9
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path), normalization], cwd=ROOT, capture_output=True,
                          text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < MOST_MIB
