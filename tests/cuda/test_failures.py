# SPDX-License-Identifier: MIT
"""Every CUDA and cuDNN function that a training step calls fails: one clear error, nothing left, no leak.

On the strict software device. `FAILS` says for every function how the message names what failed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.engine.library.programs import cnn_step
from tests.helpers.cuda.children import CUDNN, environment, functions
from tests.helpers.cuda.failing_runs import status_of
from tests.helpers.tiers import deep, few

#: The part of the message that names what failed
FAILS = {
    "cudaRuntimeGetVersion": "version of the runtime",
    "cudaGetDeviceCount": "no usable GPU or driver .*; CUDA: cudaGetDeviceCount",
    "cudaGetDevice": "cuda:[01]: cudaGetDevice",
    "cudaDeviceGetAttribute": "cuda:[01]: counting multiprocessors",
    "cudaSetDevice": "cuda:0: cudaSetDevice",
    "cuInit": "(cuda:1: )?cuInit",
    "cuDeviceGet": "cuda:1: cuDeviceGet",
    "cuDevicePrimaryCtxRetain": "cuda:1: cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2": "cuda:1: cuCtxPushCurrent",
    "cuCtxPopCurrent_v2": "cuda:1: cuCtxPopCurrent",
    "cudaMalloc": r"no memory for a (b?float\d+ tensor \(.*\)|workspace of \d+ bytes) \(cudaMalloc\)|"
                  "memory for the device's buffers",
    "cudaMallocHost": r"memory for the device's buffers|no pinned memory for a batch of \d+ bytes \(cudaMallocHost\)",
    "cudaMemcpyAsync": r"cuda:0: (copy (to|from) a tensor \(.*\)|copy inside the device|reading the loss)",
    "cudaMemsetAsync": r"cuda:0: cudaMemsetAsync of a tensor \(.*\)",
    "cudaStreamCreateWithFlags": "cuda:0: making a stream",
    "cudaStreamSynchronize": "cuda:0: cudaStreamSynchronize",
    "cudaEventCreateWithFlags": "cuda:0: making an event",
    "cuModuleLoadData": r"loading our kernels \(cuModuleLoadData\), which are for compute capability 7\.5 and newer",
    "cuModuleGetFunction": "kernel cnn_[a-z0-9_]+",
    "cuLaunchKernel": "launching the kernel cnn_[a-z0-9_]+",
    "cudaEventSynchronize": "cuda:0: cudaEventSynchronize",
    "cudaStreamWaitEvent": "cuda:0: cudaStreamWaitEvent",
    "cudaEventRecord": "cuda:0: cudaEventRecord",
    "cudaGraphLaunch": r"cuda:0: a captured step \(cudaGraphLaunch\)",
    "cudnnCreate": "cudnnCreate",
    "cudnnSetStream": "cudnnSetStream",
    "cudnnBackendCreateDescriptor": "cuDNN: graph: make .*",
    "cudnnBackendSetAttribute": r"cuDNN: graph: .*, attribute \d+",
    "cudnnBackendGetAttribute": r"cuDNN: graph: .*, reading attribute \d+",
    "cudnnBackendFinalize": "cuDNN: graph: (an?|the|adding) .*",
    "cudnnBackendExecute": "cuDNN: graph: run a plan",
}
#: Nobody is told when these fail: there is nothing more to be done
FREES = {"cudaFree", "cudaFreeHost", "cudaStreamDestroy", "cudaEventDestroy", "cuModuleUnload", "cudnnDestroy",
         "cudnnBackendDestroyDescriptor", "cudaGraphDestroy", "cudaGraphExecDestroy",
         "cuDevicePrimaryCtxRelease_v2"}  # fmt: skip
#: What cannot be captured is run call by call
RECORDS = {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"}
#: Used on the way to a free, where their failures stop nothing either
ON_THE_WAY = {"cudaGetDevice", "cudaSetDevice", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cudaStreamSynchronize"}
#: Where a fused plan cannot be made its parts are done, and where one engine's notes cannot be read another is taken:
#: the same to rounding
MAKE_GRAPHS = {f"cudnnBackend{name}" for name in ("CreateDescriptor", "SetAttribute", "GetAttribute", "Finalize")}
#: What no training step calls
NOT_IN_A_STEP = {
    "cudaPointerGetAttributes", "cudaGetLastError",
    "cudaMemGetInfo", "cuDriverGetVersion", "cuDeviceGetName",
    # Of the device's own tests
    "cudaStreamIsCapturing",
}  # fmt: skip
#: A status that stays, as after an access to a wrong address
STICKY = dict.fromkeys(("cudaMemcpyAsync", "cudaMemsetAsync", "cudaStreamSynchronize"), 700)


#: Run, device, and the functions that it is about; none: all
SCENARIOS = {
    "graphs": ("file", CUDNN, ()),
    "graphs, measured": ("file", f"{CUDNN},algorithm=measured,workspace=1", ("cudnnBackend",)),
    "graphs, fused": ("step", f"{CUDNN},capture=no", ("cudnnBackend",)),
    "graphs, captured": ("step", CUDNN, (
        "cudaStream.*Capture", "cudaGraph", "cudaMemcpyAsync", "cudaMalloc$", "cuLaunchKernel", "cudnnSetStream",
        "cudnnBackendExecute", "cudnnBackendFinalize", "cudaGetDevice$", "cudaSetDevice")),
    "graphs, channels last": ("memory-efficient step", f"{CUDNN},math=bf16,capture=no", (
        "cudnnBackendExecute", "cudnnBackendFinalize", "cudaMalloc$", "cuLaunchKernel")),
    "direct": ("memory-efficient step", "cuda,capture=no", ("cudaMalloc$", "cuLaunchKernel")),
    "in place": ("memory-efficient step", f"{CUDNN},capture=no", ("cudaMalloc$", "cuLaunchKernel")),
    "rounded": ("step", f"{CUDNN},math=bf16,capture=no", ("cuLaunchKernel", "cudaMalloc$")),
    # Where the stream changes: cuda/test_streams.py
    "fed": ("fed step", f"{CUDNN},capture=no", (
        "cudaEventSynchronize", "cudaStreamWaitEvent", "cudaEventRecord", "cudaEventCreate", "cudaStreamCreate",
        "cudaMallocHost", "cudaMemcpyAsync", "cudaMalloc$", "cudaFreeHost", "cudaEventDestroy", "cudaStreamDestroy")),
    "graphs, captured, fed": ("fed step", CUDNN, ("cudaStreamWaitEvent", "cudaEventRecord", "cudaGraph")),
    "second device": ("step", "cuda:1", (
        "cudaGetDevice$", "cuInit", "cuDeviceGet$", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease", "cuCtx")),
}  # fmt: skip


def chosen(patterns: tuple[str, ...]) -> Iterator[str]:
    """The functions of a scenario."""
    return (name for name in functions() if not patterns or any(re.match(one, name) for one in patterns))


@pytest.mark.parametrize("scenario", few(SCENARIOS, ("rounded", "second device").__contains__))
def test_each_call_may_fail(scenario: str, fixture: Path, tmp_path: Path) -> None:
    """A failed call is an error that names it, or harms nothing; the next run on the device is right; all goes back."""
    run, device, patterns = SCENARIOS[scenario]
    command = [sys.executable, "-m", "tests.helpers.cuda.failing_runs", run, device, fixture, tmp_path,
               *chosen(patterns)]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=300,
                          env=environment(STRICT_DEVICES="2"))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    # A plan that cannot be made, or fails when it is measured, is not taken, and nothing else happens
    may_go_on = ("cudnnBackend",) if scenario.startswith("graphs") else ()
    if scenario.startswith("graphs, captured"):
        # While a step is captured any failure means that it is run call by call
        may_go_on = ("",)
    problems = [problem for one in found for problem in problems_of(one, may_go_on=may_go_on)]
    assert not problems, "\n".join(problems)
    met = {one["function"] for one in found}
    if patterns:
        unused = [pattern for pattern in patterns if not any(re.match(pattern, name) for name in met)]
        assert not unused
    else:
        assert len(met) > 25


def problems_of(one: dict[str, object], *, may_go_on: tuple[str, ...]) -> Iterator[str]:
    """What is wrong with an attempt of failing_runs.py."""
    name, error = str(one["function"]), one["error"]
    what = f"call {one['call']} of {one['calls']} of {name}: "
    if one["left"]:
        yield f"{what}left {one['left']}"
    by_parts = name in MAKE_GRAPHS
    if not one["recovered_close" if by_parts else "recovered"]:
        yield f"{what}the next run was not right"
    if one["report"]:
        yield f"{what}{one['report']}"
    if error is None:
        if not one["close" if by_parts else "right"]:
            yield f"{what}a wrong result, and no error"
        if name in FAILS and not name.startswith(may_go_on) and not (name in ON_THE_WAY and one["call"] != 1):
            yield f"{what}no error"
    elif name not in FAILS or not re.search(rf"({FAILS[name]}): .*\b{status_of(name)}\b", str(error)):
        yield f"{what}the message is {error!r}"
    elif "\n" in str(error):
        yield f"{what}more than a line: {error!r}"


def test_every_function_is_in_the_table() -> None:
    parts: list[set[str]] = [set(FAILS), FREES, RECORDS, NOT_IN_A_STEP]
    assert sorted(name for part in parts for name in part) == list(functions())
    assert set(FAILS) >= ON_THE_WAY | MAKE_GRAPHS


def run_program(fixture: Path, result: Path, device: str = CUDNN,
                **more: str) -> subprocess.CompletedProcess[str]:
    """`cnn_step` on the software device, which ends it with 99 if anything leaks."""
    return subprocess.run([cnn_step(), fixture, result, "--device", device], capture_output=True, text=True, timeout=60,
                          check=False, env=environment(STRICT_AT_EXIT="2", **more))


@pytest.mark.parametrize("device", [CUDNN, deep(f"{CUDNN},algorithm=measured")])
def test_the_program_gives_all_back(fixture: Path, tmp_path: Path, device: str) -> None:
    done = run_program(fixture, tmp_path / "result.h5", device)
    assert (done.returncode, done.stderr) == (0, "") and os.listdir(tmp_path) == ["result.h5"]


@pytest.mark.parametrize("every", [False, True], ids=["first call", "every call"])
@pytest.mark.parametrize("name", few([*FAILS, *sorted(FREES)], 6))
def test_the_program_survives(fixture: Path, tmp_path: Path, name: str, every: bool) -> None:
    """Exit status 2, one line that names what failed, no file, no leak; a failed free, or one fused graph, is none."""
    status = STICKY.get(name, status_of(name))
    result = tmp_path / "result.h5"
    done = run_program(fixture, result, STRICT_FAIL=f"{name}:{0 if every else 1}:{status}")
    if name in FREES or (name in MAKE_GRAPHS and not every):
        assert (done.returncode, done.stderr) == (0, "") and result.exists()
        return
    if name in {"cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
                "cudaGraphLaunch", "cudaEventSynchronize", "cudaStreamWaitEvent", "cudaEventRecord"}:
        # cnn_step does without
        assert done.returncode == 0
        return
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(rf"cnn_step: .*({FAILS[name]}): .*\b{status}\b.*\n", done.stderr), done.stderr
    assert not os.listdir(tmp_path)
