# SPDX-License-Identifier: MIT
"""A fixture and a right result, of which copies are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.engine.library import extension
from reference.export import export
from reference.settings import ExportSettings


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small fixture and its right result."""
    fixture = export(
        tmp_path_factory.mktemp("files") / "fixture.h5",
        ExportSettings(height=9, width=12, batch=2, steps=2, momentum=0.5, threads=1),
    ).path
    extension.run_file(fixture, fixture.with_name("result.h5"))
    return fixture, fixture.with_name("result.h5")
