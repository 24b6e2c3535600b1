# SPDX-License-Identifier: MIT
"""The doctor's tests know nothing of the cuDNN that PyTorch brings."""

from __future__ import annotations

import shutil

import pytest

from bridge.doctor import advice
from tests import software_device


@pytest.fixture(autouse=True)
def no_other_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the PyTorch of this machine brings."""
    monkeypatch.setattr(advice, "torch_build", lambda: "built without CUDA")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The strict software device in place of a GPU."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not on the search path")
    monkeypatch.setenv("CNN_CUDA_PATH", str(software_device.build()))
