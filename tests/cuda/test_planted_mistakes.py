# SPDX-License-Identifier: MIT
"""Mistakes planted in the CUDA sources end in the verdict "bug", in an error, or in a complaint of the software device.

Each is built, run on the strict software device (never on a GPU: some of them write beyond their memory), and judged
as any other program.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.judge.judge import judge
from bridge.judge.measure.outcome import Outcome
from reference.export import export
from reference.settings import ExportSettings
from tests import software_device
from tests.helpers.cuda.children import CUDNN
from tests.helpers.cuda.planted import PLANTS, Plant, model, plant
from tests.helpers.torch_graphs import Denoiser

# Each mistake is built and run
pytestmark = [pytest.mark.deep, pytest.mark.together]

SETTINGS = {"height": 13, "width": 17, "batch": 2, "steps": 3, "momentum": 0.8, "weight_decay": 0.05,
            "model": model}


@pytest.fixture(scope="module")
def device_folder() -> Path:
    """The libraries of the software device."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    return software_device.build()


@pytest.fixture(scope="module")
def copy(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the Fortran sources, and a folder that they are built in."""
    meson = shutil.which("meson", path=search_path())
    if meson is None:
        pytest.skip("meson is neither in this environment nor on the search path")
    folder = tmp_path_factory.mktemp("copy")
    for name in ("fortran", "bridge/operations/table"):
        shutil.copytree(root / name, folder / name)
    for name in ("meson.build", "meson_options.txt"):
        shutil.copy(root / name, folder / name)
    run(meson, "setup", folder / "build", folder, "-Dpython=false", "-Dlevels=machine", "-Doptimization=0")
    return folder


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """The data, with Nesterov momentum or with dampening."""
    folder = tmp_path_factory.mktemp("fixtures")

    def made(nesterov: bool) -> Path:
        path = folder / f"{nesterov}.h5"
        if not path.exists():
            export(path, ExportSettings(**SETTINGS, nesterov=nesterov, dampening=0.0 if nesterov else 0.3))
        return path

    return made


def search_path() -> str:
    return f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env=os.environ | {"PATH": search_path()})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def built(copy: Path, change: Plant, folder: Path) -> Path:
    """``cnn_step`` with the change; the copy is as before afterwards."""
    before = plant(copy / "fortran" / "cuda", change)
    try:
        run("ninja", "-C", copy / "build", "fortran/cnn_step")
        return Path(shutil.copy(copy / "build" / "fortran" / "cnn_step", folder))
    finally:
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("change", PLANTS, ids=lambda change: change.name)
def test_a_planted_mistake_is_caught(change: Plant, copy: Path, device_folder: Path, tmp_path: Path,
                                     fixture: Callable[[bool], Path]) -> None:
    program, data = built(copy, change, tmp_path), fixture(change.nesterov)
    done = subprocess.run(
        [program, data, tmp_path / "result.h5", "--device", CUDNN, "--precision", change.precision],
        timeout=120, capture_output=True, text=True, check=False,
        env=os.environ | {"CNN_CUDA_PATH": str(device_folder), "STRICT_AT_EXIT": "2"})
    if change.said:
        assert done.returncode != 0 and change.said in done.stderr, done.stderr
        return
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    _, verdict = judge(data, tmp_path / "result.h5", diagnosing=False)
    assert verdict.outcome is change.outcome, verdict.words
    assert change.outcome is not Outcome.ROUNDING or change.harmless


def test_an_operation_without_a_kernel_is_refused(copy: Path, device_folder: Path, tmp_path: Path) -> None:
    """By its name, and there is no result."""
    export(tmp_path / "f.h5", ExportSettings(**SETTINGS | {"model": Denoiser}))
    source = copy / "fortran/cuda/operations/primitives.f90"
    before, call = source.read_text(encoding="utf-8"), 'launch(device, "combine", '
    assert before.count(call) == 1
    source.write_text(before.replace(call, 'launch(device, "other", '), encoding="utf-8")
    try:
        run("ninja", "-C", copy / "build", "fortran/cnn_step")
    finally:
        source.write_text(before, encoding="utf-8")
    done = subprocess.run(
        [copy / "build/fortran/cnn_step", tmp_path / "f.h5", tmp_path / "r.h5", "--device", "cuda"], timeout=120,
        capture_output=True, text=True, check=False,
        env=os.environ | {"CNN_CUDA_PATH": str(device_folder), "STRICT_AT_EXIT": "2"})
    assert done.returncode == 2
    assert done.stderr.endswith("layer add (add): device cuda: no kernel other\n")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "r.h5").exists()
