# SPDX-License-Identifier: MIT
"""A fixture that the tests of the CUDA device share."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference.export import export
from reference.settings import ExportSettings


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps with momentum and weight decay, small."""
    path = tmp_path_factory.mktemp("failures") / "fixture.h5"
    export(path, ExportSettings(height=8, width=10, batch=3, steps=2, momentum=0.9, weight_decay=0.01))
    return path
