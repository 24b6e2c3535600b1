# SPDX-License-Identifier: MIT
"""Every check of gradients computes on one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits

from bridge.engine.library import extension


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Thousands of tiny operations: threads would only wait for each other. Loaded libraries alone can be told so."""
    extension.api()
    with threadpool_limits(1):
        yield
