# SPDX-License-Identifier: MIT
"""The graphs of a training step, made into plans by the real cuDNN for an H200 that need not be there.

cuDNN takes the GPU's properties from JSON, so heuristics and plans are what they would be on it, but for engines that
are compiled when the plan is made: those need the driver, and without one cuDNN does not offer them. Nothing is run.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.cases import CASES, Case
from tests.helpers.cuda import nvidia_packages
from tests.helpers.cuda.graph_requests import DEVICE, LAYERS, LAYOUTS, Request, all_passes
from tests.helpers.library import fortran_program

# What cuDNN offers changes with its version, not with a change here
pytestmark = pytest.mark.deep


@dataclass(frozen=True)
class Answer:
    """How many engines were offered, allowed by the options, and made into plans; their least workspace; the first."""

    offered: int
    allowed: int
    plans: int
    least: int = -1
    engine: int = -1
    workspace: int = 0
    tensor_cores: bool = False
    transforms: bool = False
    deterministic: bool = True
    compiled_later: bool = False


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``graph_program``."""
    return fortran_program.build(fortran_program.PROGRAMS / "graph_program.f90", tmp_path_factory.mktemp("graphs"))


def say(program: Path, lines: Sequence[str], device: Path = DEVICE) -> list[str]:
    """What it prints; it must end in order."""
    folders = nvidia_packages.require("lib", "libcudnn.so.9")
    nvidia_packages.require("lib", "libcublasLt.so.*")
    # The first that takes the description of a device
    nvidia_packages.require_cudnn(9, 8)
    environment = {name: value for name, value in os.environ.items()
                   if name != "LD_LIBRARY_PATH" and not name.startswith("CNN_CUDA")}
    environment["CNN_CUDA_WHEELS"] = ":".join(map(str, folders))
    done = subprocess.run([program, device], input="\n".join([*lines, ""]), env=environment, check=False,
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()


def ask(program: Path, requests: Sequence[Request]) -> list[Answer]:
    """An answer for each request; a line that is none is an error."""
    said = say(program, [request.line for request in requests])
    assert len(said) == len(requests), said
    answers = []
    for line in said:
        assert not line.startswith("error"), line
        numbers = [int(word) for word in line.split() if word not in "TF"]
        answers.append(Answer(*numbers, *(word == "T" for word in line.split() if word in "TF")))
    return answers


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "math"), [("float32", "fp32"), ("float32", "tf32"), ("float16", "fp16"),
                                             ("bfloat16", "bf16"), ("float64", "fp32")])
def test_every_pass_of_the_missions_net_has_plans(program: Path, dtype: str, math: str, layout: str) -> None:
    """For an H200, in both layouts; every allowed engine becomes a plan. float64 in NHWC has fewer, but has some."""
    requests = [request for case in LAYERS for request in all_passes(case, dtype=dtype, math=math, layout=layout)]
    for request, answer in zip(requests, ask(program, requests), strict=True):
        assert answer.plans == answer.allowed >= 1, request
        assert answer.deterministic and not answer.transforms, request
        assert answer.allowed <= answer.offered


def test_float32_is_float32(program: Path) -> None:
    """Of what is offered first nearly all is TF32. math=fp32 takes none of it, math=tf32 takes it."""
    strict = ask(program, [request for case in LAYERS for request in all_passes(case)])
    loose = ask(program, [request for case in LAYERS for request in all_passes(case, math="tf32")])
    assert not any(answer.tensor_cores for answer in strict)
    assert sum(answer.tensor_cores for answer in loose) >= 8
    assert all(a.offered == b.offered and 0 < a.allowed < b.allowed for a, b in zip(strict, loose, strict=True))


def test_the_layout_is_what_cudnn_is_told(program: Path) -> None:
    """TF32 in NCHW asks for room to turn both tensors around, in NHWC for none; float32 the other way round."""
    middle = LAYERS[1]
    requests = [Request("data", middle, layout=layout, math=math) for math in ("tf32", "fp32") for layout in LAYOUTS]
    tf32_nchw, tf32_nhwc, fp32_nchw, fp32_nhwc = (answer.workspace for answer in ask(program, requests))
    tensor = 2 * 16 * 1024 * 1024 * 4
    assert tf32_nhwc < 1e6 < 2 * tensor <= tf32_nchw
    assert fp32_nchw < 1e6 < 2 * tensor <= fp32_nhwc


def test_what_needs_a_compiler_is_not_offered_without_a_driver(program: Path) -> None:
    """The mask of a ReLU in a data gradient, and the bias gradient: no plan here, and no error either."""
    requests = [Request("data", LAYERS[1], layout=layout, math="tf32", mask=True) for layout in LAYOUTS]
    requests += [Request("bias", LAYERS[1], layout=layout, math="tf32") for layout in LAYOUTS]
    for request, answer in zip(requests, ask(program, requests), strict=True):
        assert answer.plans == answer.allowed
        # With a driver there are some, all of them of that kind, in NHWC
        assert answer.plans == 0 or (answer.compiled_later and request.layout == "nhwc"), request


#: Beside those of the tests: what networks have, and what nobody would, (x, w, and what is not the default)
GEOMETRIES = [Case(str(i), x, w, **more) for i, (x, w, more) in enumerate((
    ((4, 64, 56, 56), (128, 64, 1, 1), {"stride": (2, 2)}),
    ((4, 3, 224, 224), (64, 3, 7, 7), {"stride": (2, 2), "padding": (3, 3)}),
    ((4, 32, 40, 40), (32, 1, 3, 3), {"padding": (1, 1), "groups": 32}),
    ((4, 48, 40, 40), (48, 1, 5, 5), {"padding": (2, 2), "stride": (2, 2), "groups": 48}),
    ((2, 8, 20, 20), (24, 1, 3, 3), {"padding": (1, 1), "groups": 8}),
    ((2, 16, 33, 31), (32, 4, 3, 3), {"padding": (2, 2), "stride": (2, 2), "dilation": (2, 2), "groups": 4}),
    ((2, 5, 23, 19), (7, 5, 3, 2), {"padding": (2, 1), "dilation": (2, 3), "stride": (2, 1)}),
    ((2, 3, 64, 64), (8, 3, 11, 11), {"padding": (5, 5)}), ((2, 4, 64, 64), (4, 4, 31, 1), {"padding": (15, 0)}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}), ((64, 512, 1, 1), (1000, 512, 1, 1), {}),
    ((1, 2, 4, 4), (3, 2, 3, 3), {"padding": (5, 6)}), ((2, 64, 32, 32), (32, 64, 2, 2), {"stride": (2, 2)}),
    ((2, 3, 40, 40), (4, 3, 3, 3), {"stride": (5, 5)}), ((1, 2048, 7, 7), (512, 2048, 1, 1), {}),
    ((1, 16, 4096, 4096), (16, 16, 3, 3), {"padding": (1, 1)}), ((1, 2, 1, 100000), (2, 2, 1, 9), {"padding": (0, 4)}),
    ((1, 70000, 2, 2), (3, 70000, 1, 1), {}), ((1, 3, 2, 2), (70000, 3, 1, 1), {}),
    ((70000, 2, 3, 3), (3, 2, 3, 3), {}),
))]


@pytest.mark.parametrize(("dtype", "math"), [
    ("float32", "fp32"), ("float32", "tf32"), ("float64", "fp32"), ("float16", "fp32"), ("float16", "fp16"),
    ("bfloat16", "fp32"), ("bfloat16", "bf16")])
def test_every_convolution_has_plans(program: Path, dtype: str, math: str) -> None:
    """Forward and both gradients, deterministic, no transforms, and one of them without a workspace."""
    requests = [Request(operation, case, dtype=dtype, math=math) for case in (*CASES, *GEOMETRIES)
                for operation in ("forward", "data", "filter")]
    wrong = [(request.case.name, request.operation, answer)
             for request, answer in zip(requests, ask(program, requests), strict=True)
             if answer.least != 0 or answer.transforms or not answer.deterministic]
    assert wrong == []


def test_an_error_says_what_cudnn_says(program: Path) -> None:
    """A convolution that cannot be: the descriptor, and cuDNN's own words; the next request is answered."""
    good = Request("forward", LAYERS[0]).line
    words = good.split()
    words[14] = "0"  # stride in height
    bad, after = say(program, [" ".join(words), good])
    assert bad.startswith("error: ") and "stride" in bad
    assert not after.startswith("error")


def test_a_device_that_is_none(program: Path, tmp_path: Path) -> None:
    """A description that cuDNN does not take is one error."""
    wrong = tmp_path / "device.json"
    wrong.write_text('{"deviceName": "a toaster"}', encoding="utf-8")
    said, = say(program, [Request("forward", LAYERS[0]).line], wrong)
    assert said.startswith("error: cuDNN: graph: device properties"), said
