# SPDX-License-Identifier: MIT
"""Where NVIDIA's packages are, for tests that look at them. No GPU is needed for any of this.

The packages come with PyTorch for CUDA, or by ``pip install nvidia-cudnn-cu13 nvidia-cuda-runtime nvidia-cublas``.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

PACKAGES = "NVIDIA's packages are not installed (nvidia-cudnn-cu13, nvidia-cuda-runtime, nvidia-cublas)"


def folders(kind: str) -> list[Path]:
    """The folders ``include`` or ``lib`` of all packages of NVIDIA in this Python; none when there are none."""
    found = importlib.util.find_spec("nvidia")
    roots = [Path(place) for place in found.submodule_search_locations or []] if found else []
    return sorted(folder for root in roots for folder in root.glob(f"*/{kind}"))


def require(kind: str, name: str) -> list[Path]:
    """The folders as above; skips the test, with the reason, when none has a file of this name (or pattern)."""
    found = folders(kind)
    if not any(True for folder in found for _ in folder.glob(name)):
        pytest.skip(f"{PACKAGES}: no {name}")
    return found


def require_cudnn(major: int, minor: int) -> None:
    """Skips the test, with the reason, where the packages' cuDNN is older than this."""
    found = tuple(_defined("cudnn_version.h", f"CUDNN_{name}") for name in ("MAJOR", "MINOR"))
    if found < (major, minor):
        pytest.skip(f"NVIDIA's packages have cuDNN {found[0]}.{found[1]}, the test needs {major}.{minor} or newer")


def require_cuda(major: int) -> None:
    """Skips the test, with the reason, where the packages' CUDA runtime is older than this."""
    found = _defined("cuda_runtime_api.h", "CUDART_VERSION") // 1000
    if found < major:
        pytest.skip(f"NVIDIA's packages are of CUDA {found}, the test needs {major} or newer")


def _defined(header: str, name: str) -> int:
    """A number that one of the packages' headers defines; a skipped test without it."""
    (file, *_) = [folder / header for folder in require("include", header) if (folder / header).is_file()]
    (number,) = re.findall(rf"^#define {name}\s+(\d+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return int(number)
