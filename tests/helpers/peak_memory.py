# SPDX-License-Identifier: MIT
"""How much a process grows by two steps of a network."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: VmHWM is the most that the process ever had
PROGRAM = """
import numpy as np, bridge
def most():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
{network}
small = np.ones((1, 1, 8, 8), np.float32)
net.step(small, small, lr=0.1)
x = np.ones((2, 1, {size}, {size}), np.float32)
before = most()
for _ in range(2):
    net.step(x, x, lr=0.0)
print(most() - before)
"""


def growth(network: str, size: int = 512) -> int:
    """Bytes, for two images.

    Parameters
    ----------
    network : lines of Python that make ``net``, of which input and target have one shape
    size : pixels of a row and of a column
    """
    if not sys.platform.startswith("linux"):
        pytest.skip("the peak is read from /proc, which is Linux's")
    command = [sys.executable, "-c", PROGRAM.format(network=network, size=size)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout)
