# SPDX-License-Identifier: MIT
"""The Fortran side of cuDNN's graph API on the strict software device: what test_cudnn_graphs.py asks the real one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.helpers import fortran_program
from tests.helpers.cases import CASES
from tests.helpers.cuda.graph_requests import DEVICE, DTYPES, LAYERS, LAYOUTS, MATHS, Request, all_passes

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``graph_program``."""
    return fortran_program.build(fortran_program.PROGRAMS / "graph_program.f90", tmp_path_factory.mktemp("graphs"))


def fortran(program: Path, folder: Path, lines: list[str], device: Path = DEVICE) -> list[str]:
    """What it says with the software device's cuDNN; nothing is left, nothing complained of."""
    done = subprocess.run([program, device], input="\n".join([*lines, ""]), capture_output=True, text=True, check=False,
                          env=os.environ | {"CNN_CUDA_PATH": str(folder), "STRICT_AT_EXIT": "2"})  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr + done.stdout[-1000:]
    return done.stdout.splitlines()


def test_fortran_is_answered(program: Path, folder: Path) -> None:
    """Every pass of the mission's net in each layout, type and math, and every convolution of the tests."""
    requests = [request for case in LAYERS for layout in LAYOUTS for dtype in DTYPES for math in MATHS
                for request in [*all_passes(case, dtype=dtype, math=math, layout=layout),
                                Request("data", case, mask=True, dtype=dtype, math=math, layout=layout),
                                Request("bias", case, dtype=dtype, math=math, layout=layout)]]  # fmt: skip
    requests += [Request(operation, case, dtype=dtype) for case in CASES for dtype in ("float32", "float64")
                 for operation in ("forward", "data", "filter")]  # fmt: skip
    answers = fortran(program, folder, [request.line for request in requests])
    for request, answer in zip(requests, answers, strict=True):
        offered, allowed, plans, *first = answer.split()
        either = request.operation == "bias" and request.case.w[0] == 1  # one channel lies the same in both layouts
        nhwc = request.layout == "nhwc" or either
        none = (request.mask or request.operation == "bias") and (not nhwc or request.dtype == "float64")
        assert (int(plans) == 0) == none, (request, answer)
        assert int(offered) >= int(allowed) >= int(plans)
        if plans != "0":
            assert first[0] != "0" or request.math != "fp32", (request, answer)


def test_fortran_is_told_what_is_wrong(program: Path, folder: Path, tmp_path: Path) -> None:
    """A convolution that cannot be, and a device that is none."""
    good = Request("forward", LAYERS[0]).line
    words = good.split()
    words[14] = "0"  # stride in height
    bad, after = fortran(program, folder, [" ".join(words), good])
    assert bad.startswith("error: ") and "stride" in bad and not after.startswith("error")
    wrong = tmp_path / "device.json"
    wrong.write_text('{"deviceName": "a toaster"}', encoding="utf-8")
    said, = fortran(program, folder, [good], wrong)
    assert said.startswith("error: cuDNN: graph: device properties") and "maxGridSize" in said


@pytest.mark.parametrize(("setting", "fused", "single"), [("STRICT_GRAPHS", False, False),
                                                          ("STRICT_GRAPH_FUSION", False, True)])
def test_fortran_finds_no_engine(program: Path, folder: Path, setting: str, fused: bool, single: bool,
                                 monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """What is switched off is not there, which is no error."""
    monkeypatch.setenv(setting, "0")
    requests = [Request("forward", LAYERS[1], relu=True), Request("filter", LAYERS[1])]
    answers = fortran(program, folder, [request.line for request in requests])
    assert [answer.split()[0] != "0" for answer in answers] == [fused, single]
