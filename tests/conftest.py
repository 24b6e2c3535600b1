# SPDX-License-Identifier: MIT
"""Fixtures that several test files share."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from bridge.common.errors import EngineError
from bridge.engine.library import extension
from bridge.validate import run as validation
from reference.export import export
from reference.settings import ExportSettings
from tests import ROOT, software_device
from tests.helpers import tiers
from tests.helpers.cuda import REAL_CUDA
from tests.helpers.exports import export_here
from tests.helpers.tiers import drawn_by, is_drawn

# Compiled modules are kept, whatever the environment says: to import torch without them, as many a test's own process
# does, takes twice as long, and to collect the tests four times
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Small work on busy cores is fastest with one thread; torch and the library share OpenMP's setting
if "OMP_NUM_THREADS" not in os.environ:
    torch.set_num_threads(1)

#: All dimensions different, so that no permutation survives
SMALL = {"height": 20, "width": 24, "batch": 3}


@dataclass(frozen=True)
class CudaLibraries:
    """What this process has opened.

    Attributes
    ----------
    folder : value of CNN_CUDA_PATH for child processes
    missing : what this machine lacks to build the software device; such tests are skipped
    broken : what the library says of the device; such tests fail
    """

    folder: str
    missing: str = ""
    broken: str = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", type=float, default=1.0, metavar="SHARE",
                     help="run this share of the tests, drawn at random: another one for each commit (default: all)")
    parser.addoption("--sample-seed", default=None, metavar="TEXT",
                     help="what the tests are drawn by (default: the commit that is checked out)")


def pytest_configure(config: pytest.Config) -> None:
    marks = config.getoption("markexpr")
    tiers.wanted = marks if marks in ("deep", "not deep") else ""


def _seed(config: pytest.Config) -> str:
    given = config.getoption("--sample-seed")
    if given is not None:
        return str(given)
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def pytest_report_header(config: pytest.Config) -> str | None:
    """A run that failed can be had again."""
    share = config.getoption("--sample")
    return None if share >= 1 else f'sample: {share:.0%} of the tests, --sample-seed "{_seed(config)}"'


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """No test is called by an address: several processes would disagree about its name, and run nothing."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid} has an address in its name")
    share = config.getoption("--sample")
    if share < 1:
        seed = _seed(config)
        left = [item for item in items if not is_drawn(drawn_by(item), share, seed)]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if is_drawn(drawn_by(item), share, seed)]


@pytest.fixture(scope="session", autouse=True)
def cuda_libraries() -> CudaLibraries:
    """Let this process open its CUDA libraries, which happens once, before a test opens others.

    These are the software device's, or with CNN_TEST_CUDA=real those of the machine.
    """
    folder = os.environ.get("CNN_CUDA_PATH", "")
    with pytest.MonkeyPatch.context() as environment:
        if not REAL_CUDA:
            try:
                folder = str(software_device.build())
            except FileNotFoundError as error:
                return CudaLibraries("", missing=f"the software device cannot be built: {error}")
            environment.setenv("CNN_CUDA_PATH", folder)
        try:
            extension.check_device("cuda")
        except EngineError as error:
            return CudaLibraries(folder, broken=str(error))
    return CudaLibraries(folder)


@pytest.fixture
def cuda(cuda_libraries: CudaLibraries, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device's text; programs that a test starts find the same libraries."""
    if cuda_libraries.missing:
        pytest.skip(cuda_libraries.missing)
    assert not cuda_libraries.broken
    if not REAL_CUDA:
        monkeypatch.setenv("CNN_CUDA_PATH", cuda_libraries.folder)
    return "cuda"


@pytest.fixture(scope="session", autouse=True)
def fixtures_are_written_in_this_process() -> Iterator[None]:
    """By validations that a test runs here: another process would import torch. Those in a process of their own do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "export_fixture", export_here)
        yield


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
    extension.run_file(small_fixture, path)
    return path


@pytest.fixture(scope="session")
def micrograph() -> Iterator[Path]:
    """The real micrograph, where it is."""
    path = ROOT.parent / "shared" / "data" / "micrograph_4096.mrc"
    if not path.is_file():
        pytest.skip("the optional real micrograph is not there")
    yield path


def _freeze() -> None:
    """What is there now stays: a later search for garbage, as many tests make one, does not look at it."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests are objects that stay."""
    _freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """So do modules that a file was the first to need, torch's thousands of objects among them."""
    if nextitem is not None and nextitem.path != item.path:
        _freeze()
