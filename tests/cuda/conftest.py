# SPDX-License-Identifier: MIT
"""Fixtures that the tests of the CUDA device share."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.built_once import built_once
from tests.helpers.tiers import few
from tests.software_device.host_kernels import ROUTES, HostKernels, build, flang, library


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps with momentum and weight decay, small."""
    path = tmp_path_factory.mktemp("failures") / "fixture.h5"
    export(path, ExportSettings(height=8, width=10, batch=3, steps=2, momentum=0.9, weight_decay=0.01))
    return path


@pytest.fixture(scope="session", params=few(ROUTES, "source".__eq__))
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HostKernels:
    """The kernels for this processor, of their sources or of the PTX."""
    route = request.param
    if route == "source" and flang() is None:
        pytest.skip("skipped, because there is no flang to compile the CUDA Fortran kernels")
    folder = built_once(tmp_path_factory, f"kernels of {route}", lambda folder: build(folder, route))
    return HostKernels(library(folder, route))
