# SPDX-License-Identifier: MIT
"""Fixtures that several test files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge import engine
from reference.export import export
from reference.settings import ExportSettings

ROOT = Path(__file__).resolve().parents[1]

#: All dimensions different, so that no permutation survives
SMALL = {"height": 20, "width": 24, "batch": 3}


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project."""
    return ROOT


@pytest.fixture(scope="session")
def small_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fixture of three steps with momentum and weight decay."""
    path = tmp_path_factory.mktemp("small") / "fixture.h5"
    export(path, ExportSettings(**SMALL, momentum=0.9, weight_decay=0.01))
    return path


@pytest.fixture(scope="session")
def small_result(small_fixture: Path) -> Path:
    """What the Fortran library makes of it."""
    path = small_fixture.with_name("result.h5")
    engine.run_file(small_fixture, path)
    return path


@pytest.fixture(scope="session")
def micrograph() -> Iterator[Path]:
    """The real micrograph, where it is."""
    path = ROOT.parent / "shared" / "data" / "micrograph_4096.mrc"
    if not path.is_file():
        pytest.skip("the optional real micrograph is not there")
    yield path
