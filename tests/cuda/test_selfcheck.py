# SPDX-License-Identifier: MIT
"""The self-check for other compilers of CUDA Fortran: flang accepts it, and on a CPU it finds what is wrong."""

from __future__ import annotations

import doctest
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.helpers.cuda import selfcheck_on_x86
from tests.helpers.cuda.selfcheck_on_x86 import PROGRAM, build
from tests.software_device.host_kernels import flang

pytestmark = pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")

CHECKS = {"fold", "fold, twice", "mse, gradient", "mse, loss", "relu_backward_bias", "relu_backward_bias, narrow",
          "sgd, momenta", "sgd, parameters", "matmul"}  # fmt: skip
#: A fault in a file of the kernels: what stands there, what is put in its place, and the checks that then fail
FAULTS: dict[str, tuple[str, str, str, set[str]]] = {
    "a row too short": ("fold.inc", "i + (l - 1)*m <= n", "i + (l - 1)*m < n",
                        {"fold", "fold, twice", "relu_backward_bias, narrow"}),
    "the first row for all": ("fold.inc", "n), row)", "n), 1_i8)",
                              {"fold", "fold, twice", "relu_backward_bias, narrow"}),
    "blocks that overlap": ("grid.inc", "int(blockIdx%x - 1, i8)*blockDim%x", "0", CHECKS - {"fold"}),
    "t - y": ("kernels.inc", "slope*(y(i) - t(i))", "slope*(t(i) - y(i))", {"mse, gradient"}),
    "no square": ("kernels.inc", "total + d*d", "total + d", {"mse, loss"}),
    "zero passes": ("kernels.inc", "da(pixel, channel, image), z(pixel, channel, image) <= 0.0_wp",
                    "da(pixel, channel, image), z(pixel, channel, image) < 0.0_wp",
                    {"relu_backward_bias", "relu_backward_bias, narrow"}),
    "no decay": ("kernels.inc", "d + decay*w(i)", "d", {"sgd, momenta", "sgd, parameters"}),
    "the gradient, not the momentum": ("kernels.inc", "               d = v(i)\n", "", {"sgd, parameters"}),
    "a transposed": ("products.inc", "a(in_a + l*a_inner)", "a(in_a + l*a_row)", {"matmul"}),
}


def report(program: Path) -> tuple[int, dict[str, Any]]:
    """Exit status, and what it printed."""
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def test_right_kernels_pass(tmp_path: Path) -> None:
    status, found = report(build(tmp_path))
    assert status == 0 and found.pop("failed") == 0
    assert found.pop("compiler").startswith("GCC") and "-fcheck=all" in found.pop("options")
    assert (found.pop("device"), found.pop("capability")) == ("a  software  CPU", "0.1")
    assert found == dict.fromkeys(CHECKS, "right")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_reported(fault: str, tmp_path: Path) -> None:
    """By the checks of that kernel, with the first wrong element, and by none of the others."""
    name, before, after, caught = FAULTS[fault]

    def planted(file: str, text: str) -> str:
        assert file != name or before in text
        return text.replace(before, after) if file == name else text

    status, found = report(build(tmp_path, planted))
    assert status == 1 and found["failed"] == len(caught)
    assert {check for check in CHECKS if found[check] != "right"} == caught
    assert all(found[check].startswith("element ") for check in caught)


def test_a_launch_that_fails_is_no_right_kernel(tmp_path: Path) -> None:
    status, found = report(build(tmp_path, status=700))
    assert status == 1 and {found[check] for check in CHECKS} == {"CUDA status 700"}


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    status, found = report(build(tmp_path, devices=0))
    assert (status, found["error"]) == (1, "no GPU, CUDA status 0")


@pytest.mark.skipif(flang() is None, reason="no flang")
def test_flang_takes_it_for_cuda_fortran(tmp_path: Path) -> None:
    """As `make lint` asks it, with what the program takes of NVIDIA's module `cudafor`, which flang has not."""
    for source in (ROOT / ".ci" / "cudafor.f90", PROGRAM):
        done = subprocess.run([str(flang()), "-fc1", "-fsyntax-only", "-module-dir", tmp_path, source],
                              capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_docs_have_its_command() -> None:
    """The one that stands in the program."""
    text = (PROGRAM).read_text(encoding="utf-8")
    command = next(line for line in text.splitlines() if "nvfortran -cuda" in line).removeprefix("!>").strip()
    assert command.partition(" &&")[0] in (ROOT / "docs/cuda.md").read_text(encoding="utf-8")


def test_the_examples_of_the_rewriting() -> None:
    assert doctest.testmod(selfcheck_on_x86) == doctest.TestResults(failed=0, attempted=1)
