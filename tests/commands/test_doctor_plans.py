# SPDX-License-Identifier: MIT
"""``bridge.doctor --plans``: with the real cuDNN for a GPU that need not be here, and on the software device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.doctor.__main__ import main
from tests import software_device
from tests.helpers.cuda import nvidia_packages

FORWARD, MASKED = "forward with bias and ReLU", "data gradient with the mask"


@pytest.fixture
def cudnn() -> None:
    """The real one, or a skipped test."""
    nvidia_packages.require("lib", "libcudnn.so.9")
    nvidia_packages.require("lib", "libcublasLt.so.*")
    # The first that takes the description of a device
    nvidia_packages.require_cudnn(9, 8)


def plans(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[tuple[str, str], dict[str, str]]:
    """By layer and operation: the plan in each layout."""
    assert main(["--plans", *arguments, "--json", "-"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {(one["layer"], one["operation"]): one["plans"] for one in document["plans"]}


@pytest.mark.deep
def test_a_gpu_that_is_not_here(cudnn: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Each operation of the step once; float32 without tensor cores, TF32 with them."""
    strict = plans(capsys, "cuda,direct=no", "--gpu", "h200")
    loose = plans(capsys, "cuda,direct=no,math=tf32", "--gpu", "h200", "--size", "256")
    assert list(strict) == list(loose)
    assert [layer for layer, _ in strict] == ["conv1"] * 3 + ["conv2"] * 5 + ["conv3"] * 5
    assert ("conv3", "forward with bias") in strict and ("conv3", FORWARD) not in strict
    assert strict["conv2", FORWARD]["NCHW"].startswith("engine ") and "tensor cores" not in str(strict)
    assert loose["conv2", FORWARD]["NHWC"].endswith(", tensor cores")
    assert strict["conv2", MASKED] == {"NCHW": "", "NHWC": ""}


@pytest.mark.deep
def test_the_plans_are_those_that_are_used(cudnn: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Of operands rounded to 16 bits those of 16 bits, fused in chains only; within the limit."""
    rounded = plans(capsys, "cuda,direct=no,math=bf16", "--gpu", "h200")
    stored = plans(capsys, "cuda,direct=no,math=bf16", "--gpu", "h200", "--dtype", "bfloat16")
    assert rounded["conv2", "data gradient"] == stored["conv2", "data gradient"]
    assert rounded["conv2", FORWARD] == {"NCHW": "", "NHWC": stored["conv2", FORWARD]["NHWC"]}
    assert all(stored["conv2", FORWARD].values())
    small = plans(capsys, "cuda,direct=no,math=bf16,workspace=1", "--gpu", "h200")["conv2", "data gradient"]["NCHW"]
    assert small != rounded["conv2", "data gradient"]["NCHW"]
    assert int(small.split("workspace ")[1].split()[0]) <= 1 << 20


@pytest.mark.deep
@pytest.mark.parametrize(("math", "size"), [("tf32", "64"), ("fp16", "256"), ("bf16", "1024"), ("tf32", "4096")])
def test_a_chain_with_channels_last_has_all_plans(cudnn: None, capsys: pytest.CaptureFixture[str], math: str,
                                                  size: str) -> None:
    """On an H200, whatever a driver could add: so that a memory-efficient network is one.

    See `find_form` of fortran/cuda/operations/fused.f90.
    """
    found = plans(capsys, f"cuda,direct=no,math={math}", "--gpu", "h200", "--size", size)
    needed = {key: one["NHWC"] for key, one in found.items() if key[1] not in (MASKED, "bias gradient")}
    assert len(needed) == 8 and all(needed.values()), needed
    assert needed["conv2", FORWARD].endswith("tensor cores")


@pytest.mark.deep
def test_the_table(cudnn: None, capsys: pytest.CaptureFixture[str], tmp_path: Path,
                   monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed, and the JSON beside it."""
    monkeypatch.setenv("COLUMNS", "160")
    path = tmp_path / "plans.json"
    assert main(["--plans", "--gpu", "h200", "--batch", "3", "--dtype", "float64", "--json", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("cuDNN's plans on cuda for h200, which need not be here: 3 x 1024 x 1024, float64")
    assert "bias gradient                none  " in said and "none: cuDNN offers no engine" in said
    assert json.loads(path.read_text())["asked"]["batch"] == 3


@pytest.mark.deep
def test_the_gpu_that_is_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The software device has the mask in NHWC alone, compiled when it is made; unless asked nothing is."""
    monkeypatch.setenv("CNN_CUDA_PATH", str(software_device.build()))
    assert plans(capsys, "cuda,direct=no", "--size", "32")["conv2", MASKED] == {"NCHW": "", "NHWC": ""}
    assert plans(capsys, "cuda", "--size", "32")["conv2", MASKED] == {"NCHW": "our own kernel", "NHWC": ""}
    found = plans(capsys, "cuda,direct=no,compile=yes", "--size", "32")
    assert found["conv2", MASKED]["NCHW"] == "" and found["conv2", MASKED]["NHWC"].endswith("compiled when it is made")
    for option, words in (("deterministic=no", "not deterministic"), ("transforms=yes", "transforms"),
                          ("math=tf32", "tensor cores"), ("deterministic=yes", "bytes")):
        found = plans(capsys, f"cuda,direct=no,{option}", "--size", "32")
        assert found["conv2", "data gradient"]["NCHW"].endswith(words), option


def test_an_error_of_the_graph_api_is_said(capsys: pytest.CaptureFixture[str],
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """A network goes on by cuDNN's calls; who asks for plans is told why there are none."""
    monkeypatch.setenv("CNN_CUDA_PATH", str(software_device.build()))
    monkeypatch.setenv("STRICT_FAIL", "cudnnBackendFinalize:0:4000")
    assert main(["--plans", "cuda", "--size", "16"]) != 0
    assert "CUDNN_STATUS_INTERNAL_ERROR (4000)" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "words"), [
    (["cpu"], "--plans cpu: has no plans of cuDNN, expected cuda"),
    (["cuda,math=fp8"], 'device cuda,math=fp8: math is "fp8", expected fp32, tf32, fp16 or bf16'),
    (["cuda", "--gpu", "toaster"], "--gpu toaster: No such file or directory, expected h200 or a file")])
def test_what_cannot_be_asked(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plans", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"bridge.doctor: {words}")


@pytest.mark.parametrize("option", ["--gpu=h200", "--size=64", "--batch=3", "--dtype=float64"])
def test_options_of_plans_go_with_them(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main([option])
    assert done.value.code == 2
    assert f"{option.partition('=')[0]} goes with --plans" in capsys.readouterr().err


@pytest.mark.deep
def test_descriptions_that_are_none(cudnn: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No JSON is told from JSON that cuDNN does not take, in its words."""
    path = tmp_path / "gpu.json"
    for text, words in (("{", f"--gpu {path}: "), ('{"deviceName": "a toaster"}', "cuDNN: graph: device properties: ")):
        path.write_text(text, encoding="utf-8")
        assert main(["--plans", "--gpu", str(path)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"bridge.doctor: {words}") and said.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--gpu", "h200"], ["--plans", "--size", "0"], ["--plans", "--batch", "many"]])
def test_bad_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2 and "bridge.doctor: error: " in capsys.readouterr().err
