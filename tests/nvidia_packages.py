# SPDX-License-Identifier: MIT
"""Where NVIDIA's packages are, for tests that look at them. No GPU is needed for any of this.

The packages come with PyTorch for CUDA, or by ``pip install nvidia-cudnn-cu13 nvidia-cuda-runtime nvidia-cublas``.
"""

from __future__ import annotations

import importlib.util
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
