# SPDX-License-Identifier: MIT
"""Child processes on the strict software device, and what of it they may ask for."""

from __future__ import annotations

import functools
import os
import re
import sys

from tests import ROOT, software_device

#: A device whose convolutions are all cuDNN's
CUDNN = "cuda,direct=no"
#: A function of our copy of the interface that gives a status
STATUS_FUNCTION = re.compile(r"^(?:cudaError_t|CUresult|st|cudnnStatus_t) (cu\w+)\(", re.M)


@functools.cache
def functions() -> tuple[str, ...]:
    """All functions that the software device has, and that can fail."""
    headers = ("cuda_api.h", "cudnn_api.h", "cudnn_graph_api.h")
    return tuple(sorted(name for header in headers for name in STATUS_FUNCTION.findall(
        software_device.source(header).read_text(encoding="utf-8"))))


def environment(**more: str) -> dict[str, str]:
    """Of a child on the software device."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    folder = str(software_device.build())
    return os.environ | {"CNN_CUDA_PATH": folder, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | more
