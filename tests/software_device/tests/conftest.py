# SPDX-License-Identifier: MIT
"""Tests of the strict software device itself, called as CUDA and cuDNN are, without our library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.software_device import SoftwareDevice, build
from tests.software_device.calls import Calls


@pytest.fixture(scope="session")
def folder() -> Path:
    """Where the device is."""
    return build()


@pytest.fixture
def cuda(folder: Path) -> Iterator[Calls]:
    """The device, nothing complained of yet."""
    SoftwareDevice(folder).forget()
    calls = Calls(folder)
    yield calls
    SoftwareDevice(folder).fail_no_more()
    calls.give_streams_back()
