# SPDX-License-Identifier: MIT
"""Every test here runs on the CPU and on the software device, or with CNN_TEST_CUDA=real on a GPU alone."""

from __future__ import annotations

import pytest

from tests.helpers.networks.parity_tools import LARGE


@pytest.fixture(params=["cuda"] if LARGE else ["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """A device's text."""
    return request.getfixturevalue("cuda") if request.param == "cuda" else request.param
