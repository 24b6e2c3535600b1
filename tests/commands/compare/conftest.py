# SPDX-License-Identifier: MIT
"""A fixture and a right result, for all comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.engine.library import extension
from reference.export import export
from tests.helpers.judged.compared import PLAIN


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A fixture of plain SGD and its right result."""
    fixture = export(tmp_path_factory.mktemp("compare") / "fixture.h5", PLAIN).path
    extension.run_file(fixture, fixture.with_name("result.h5"))
    return fixture, fixture.with_name("result.h5")
