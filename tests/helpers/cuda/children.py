# SPDX-License-Identifier: MIT
"""Child processes on the strict software device, and what of it they may ask for."""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest

from tests import ROOT, software_device

#: A function of our copy of the interface that gives a status
STATUS_FUNCTION = re.compile(r"^(?:cudaError_t|CUresult|st|cudnnStatus_t|cublasStatus_t) (cu\w+)\(", re.M)


@functools.cache
def functions() -> tuple[str, ...]:
    """All functions that the software device has, and that can fail."""
    headers = ("cuda_api.h", "cudnn_api.h", "cudnn_graph_api.h")
    return tuple(sorted(name for header in headers for name in STATUS_FUNCTION.findall(
        software_device.source(header).read_text(encoding="utf-8"))))


@functools.cache
def device_of(cudart: str) -> Path:
    """The software device: "new", or "old" without the functions that load kernels, as before CUDA 12.8."""
    if cudart == "new":
        return software_device.build()
    with tempfile.TemporaryDirectory() as folder:
        for file in software_device.SOURCES.rglob("*.*"):
            text = file.read_text(encoding="utf-8").replace("cudaLibrary", "notYetLibrary")
            (Path(folder) / file.name).write_text(text, encoding="utf-8")
        return software_device.build(sources=Path(folder), kernels=False)


def skip_without_kernels(cudart: str) -> None:
    """Without flang the "new" device refuses to load our kernels."""
    if cudart == "new" and not software_device.SoftwareDevice(device_of("new")).has_kernels:
        pytest.skip("skipped, because there is no flang to compile the kernels for the software device")


def environment(cudart: str = "new", **more: str) -> dict[str, str]:
    """Of a child on the software device."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    return os.environ | {"CNN_CUDA_PATH": str(device_of(cudart)), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | more
