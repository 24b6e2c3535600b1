# SPDX-License-Identifier: MIT
"""The example in CUDA C++: judged by its kernels in threads of the CPU, compiled by nvcc, run where a GPU is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bridge.compare import main as compare
from reference.cli import main
from tests import ROOT

SOURCE = ROOT / "examples/3_judge/train_cuda.cu"
#: A mistake of one line, and what the judge says of it
MISTAKES = [
    ("1 - std::pow(beta1, t)", "1", "Without the correction of the average of the gradient, 1 - beta1**t."),
    ("1 - std::pow(beta2, t)", "1", "Without the correction of the average of its square, 1 - beta2**t."),
    ("x[i] > 0 ? d_y[i] : 0", "(void(x), d_y[i])", "ReLU mask missing"),
    ("2 * difference / size", "2 * difference", "Times 60 (N, N = 60)."),
]


def library() -> list[str]:
    """Options for HDF5."""
    for name in ("hdf5-serial", "hdf5"):
        done = subprocess.run(["pkg-config", "--cflags", "--libs", name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return [*done.stdout.split(), "-lhdf5_hl"]
    pytest.skip("skipped, because pkg-config does not know HDF5")


def on_host(source: Path) -> None:
    """Compile it with the threads of on_host.h, into `program` of this folder."""
    if shutil.which("g++") is None:
        pytest.skip("skipped, because there is no g++")
    subprocess.run(["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SOURCE.parent}", "-x", "c++",
                    source, "-o", "program", *library()], check=True)


def by_nvcc(source: Path) -> None:
    """Compile it for a GPU."""
    if shutil.which("nvcc") is None:
        pytest.skip("skipped, because there is no nvcc")
    subprocess.run(["nvcc", "-std=c++17", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra", source,
                    "-o", "program", *library()], check=True)


@pytest.fixture
def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps of the MLP by Adam in an empty folder, with tiles of the kernels that are not full."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(SOURCE.parent))
    rng = np.random.default_rng(5)
    np.save("x.npy", rng.standard_normal((20, 12), dtype=np.float32))
    np.save("y.npy", rng.standard_normal((20, 3), dtype=np.float32))
    assert main(["fixture.h5", "--model", "mlp:network", "--input", "x.npy", "--target", "y.npy", "--optimizer", "adam",
                 "--steps", "3"]) == 0


def judged(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run `program`; the exit code of the comparison, and what it says in one line."""
    subprocess.run(["./program"], check=True)
    capsys.readouterr()
    code = compare(["fixture.h5", "result.h5"])
    return code, " ".join(capsys.readouterr().out.split())


@pytest.mark.deep
@pytest.mark.usefixtures("fixture")
def test_its_kernels_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    """Every tensor that the numpy program has is in the file, and is judged."""
    on_host(SOURCE)
    code, said = judged(capsys)
    assert code == 0 and said.startswith("RIGHT: every difference is rounding. 57 tensors of 3 steps"), said


@pytest.mark.deep
@pytest.mark.usefixtures("fixture")
@pytest.mark.parametrize(("right", "wrong", "named"), MISTAKES)
def test_a_mistake_is_named(right: str, wrong: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = SOURCE.read_text("utf-8")
    assert text.count(right) == 1
    Path("wrong.cu").write_text(text.replace(right, wrong), "utf-8")
    on_host(Path("wrong.cu"))
    code, said = judged(capsys)
    assert code == 1 and said.startswith("BUG: ") and named in said, said


@pytest.mark.deep
@pytest.mark.usefixtures("fixture")
@pytest.mark.parametrize("compiled", [on_host, by_nvcc])
def test_what_fails_is_named(compiled: Callable[[Path], None]) -> None:
    """A file that is not there, by its call; on the way nvcc compiles and links, with or without a GPU."""
    compiled(SOURCE)
    Path("fixture.h5").unlink()
    done = subprocess.run(["./program"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith('train_cuda: H5Fopen("fixture.h5", H5F_ACC_RDONLY, H5P_DEFAULT) failed\n')


@pytest.mark.deep
@pytest.mark.usefixtures("fixture")
def test_on_a_gpu_it_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    by_nvcc(SOURCE)
    if shutil.which("nvidia-smi") is None or subprocess.run(["nvidia-smi", "-L"], check=False).returncode:
        done = subprocess.run(["./program"], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "train_cuda: cudaMalloc(&data, bytes()): " in done.stderr
        pytest.skip("skipped, because there is no GPU")
    code, said = judged(capsys)
    assert code == 0 and said.startswith("RIGHT: "), said
