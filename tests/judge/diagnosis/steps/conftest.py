# SPDX-License-Identifier: MIT
"""Fixtures and right results, by the optimiser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.judged.diagnosed import make
from tests.helpers.judged.runs import SETTINGS


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """A fixture and a right result for each optimiser."""
    return {name: make(tmp_path_factory.mktemp(name), **given) for name, given in SETTINGS.items()}
