# SPDX-License-Identifier: MIT
"""A fixture and a right result, for all descriptions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.judged.diagnosed import Lab, make


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(*make(tmp_path_factory.mktemp("evidence")))
    yield lab
    lab.close()
