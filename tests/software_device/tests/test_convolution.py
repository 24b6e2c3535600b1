# SPDX-License-Identifier: MIT
"""The numbers of the strict software device against PyTorch in float64: convolutions, and cuDNN's small operations.

The device sums in float64 and rounds once, so the bound is half a unit in the last place of the stored type.
"""

from __future__ import annotations

from ctypes import byref, c_int, c_size_t

import pytest
import torch

from tests.helpers.loops import looped
from tests.software_device import build
from tests.software_device.calls import (
    BFLOAT16,
    CONVOLUTION,
    DEFAULT_MATH,
    DOUBLE,
    FLOAT,
    IDENTITY,
    NCHW,
    NHWC,
    RELU,
    Calls,
    Perf,
    scalar,
)
from tests.software_device.convolutions import CASES, PASSES, TYPES, Case, Run, get, is_rounded, put, truth

# The stand-in itself, which every fast test of CUDA uses
pytestmark = pytest.mark.deep

#: The algorithms that are not deterministic: their last bits are shaken on purpose
RANDOM = {("BackwardData", 0), ("BackwardFilter", 0), ("BackwardFilter", 3)}


@pytest.fixture(scope="module")
def cuda() -> Calls:
    """The device."""
    return Calls(build())


def supported(run: Run, name: str) -> list[int]:
    """The algorithms that take this convolution."""
    return [algo for algo in range(8) if run.space(name, algo)[0] == 0]


@looped("dtype", TYPES)
@looped("layout", [NCHW, NHWC])
@looped("case", CASES)
@pytest.mark.parametrize("name", PASSES)
def test_convolution_is_pytorchs_rounded(cuda: Calls, name: str, case: Case, layout: int, dtype: int) -> None:
    """Every pass, type, layout and algorithm."""
    if dtype == DOUBLE and layout == NHWC:
        assert Run(cuda, case, DOUBLE, NCHW).space(name, 1)[0] == 0
        assert Run(cuda, case, DOUBLE, NHWC).space(name, 1)[0] == 3004
        return
    run = Run(cuda, case, dtype, layout)
    exact = truth(case, *run.values)[PASSES.index(name)]
    algorithms = supported(run, name)
    assert {0, 1} <= set(algorithms)
    for algo in algorithms:
        run = Run(cuda, case, dtype, layout)
        units = 4 if (name, algo) in RANDOM else 1
        assert is_rounded(run.run(name, algo), exact, dtype, units), f"algorithm {algo}"


@pytest.mark.parametrize("name", PASSES)
def test_mode_is_honoured(cuda: Calls, name: str) -> None:
    """CONVOLUTION flips the filter; a wrong mode gives wrong values, not an error."""
    case = CASES[0]
    run = Run(cuda, case, mode=CONVOLUTION)
    x, w, dy = run.values
    exact = truth(case, x, w.flip(2, 3), dy)
    exact[2] = exact[2].flip(2, 3)
    got = run.run(name, 1)
    assert is_rounded(got, exact[PASSES.index(name)], FLOAT)
    assert not torch.allclose(got.double(), truth(case, x, w, dy)[PASSES.index(name)])


@pytest.mark.parametrize("name", PASSES)
def test_default_math_is_tf32(cuda: Calls, name: str) -> None:
    """Both operands with 10 mantissa bits; FMA_MATH with all 23."""
    run = Run(cuda, CASES[0], math=DEFAULT_MATH)
    short = [((t.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) for t in run.values]
    got, i = run.run(name, 1), PASSES.index(name)
    assert is_rounded(got, truth(CASES[0], *short)[i], FLOAT)
    assert not is_rounded(got, truth(CASES[0], *run.values)[i], FLOAT, units=100)


@pytest.mark.parametrize("name", PASSES)
def test_scaling_factors(cuda: Calls, name: str) -> None:
    """alpha times the convolution plus beta times what was there."""
    run = Run(cuda, CASES[1])
    i = PASSES.index(name)
    before = run.values[run.order(name)[2]].double()
    exact = 0.5 * truth(CASES[1], *run.values)[i] - 2 * before
    assert is_rounded(run.run(name, 1, alpha=0.5, beta=-2), exact, FLOAT, units=8)


def test_results_of_non_deterministic_algorithms_differ(cuda: Calls) -> None:
    """Two runs of filter gradient 0 differ in last bits; two of algorithm 1 do not."""
    first, second = (Run(cuda, CASES[0]).run("BackwardFilter", 0) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.allclose(first, second)
    assert torch.equal(*(Run(cuda, CASES[0]).run("BackwardFilter", 1) for _ in range(2)))


@pytest.mark.parametrize(("mode", "alpha2"), [(RELU, 0.0), (RELU, 0.5), (IDENTITY, 0.0), (IDENTITY, 0.5)])
def test_fused_forward(cuda: Calls, mode: int, alpha2: float) -> None:
    """y = act(conv + alpha2*z + bias), z in the place of y."""
    run = Run(cuda, CASES[0])
    bias = torch.randn(1, 4, 1, 1)
    b, d = put(cuda, bias), cuda.tensor((1, 4, 1, 1))
    size = run.space("Forward", 1)[1]
    cuda.ok("cudnnConvolutionBiasActivationForward", cuda.handle, scalar(1), run.d[0], run.at[0], run.d[1], run.at[1],
            run.conv, 1, cuda.malloc(size), c_size_t(size), scalar(alpha2), run.d[2], run.at[2], d, b,
            cuda.activation(mode), run.d[2], run.at[2])  # fmt: skip
    exact = truth(CASES[0], *run.values)[0] + alpha2 * run.values[2].double() + bias.double()
    exact = exact.clamp(min=0) if mode == RELU else exact
    assert is_rounded(get(cuda, run.at[2], run.shapes[2], FLOAT), exact, FLOAT)


@pytest.mark.parametrize("name", PASSES)
def test_list_of_algorithms_has_traps(cuda: Calls, name: str) -> None:
    """Sorted, with failures last; among them non-deterministic ones, transforms and large workspaces."""
    run = Run(cuda, CASES[0])
    got, n = (Perf * 8)(), c_int()
    cuda.ok(f"cudnnGetConvolution{name}Algorithm_v7", *run.described(name), 8, byref(n), got)
    results = got[: n.value]
    good = [r for r in results if r.status == 0]
    assert sorted(r.algo for r in results) == list(range(n.value))
    assert [r.time for r in good] == sorted(r.time for r in good)
    assert all(r.status == 0 for r in results[: len(good)])
    assert [r.memory for r in good] == [run.space(name, r.algo)[1] for r in good]
    if name != "BackwardData":
        assert results[-1].status == 3000 and run.space(name, results[-1].algo)[0] == 3000
    assert [r.algo for r in good] == {  # transforms are the first offer, then the non-deterministic
        "Forward": [7, 6, 1, 0, 5, 4, 2],
        "BackwardData": [5, 4, 0, 1, 3, 2],
        "BackwardFilter": [5, 0, 3, 1, 6, 2],
    }[name]
    assert {r.determinism for r in good} == ({1} if name == "Forward" else {0, 1})


@pytest.mark.parametrize("name", PASSES)
def test_trial_of_algorithms_overwrites_and_waits(cuda: Calls, name: str) -> None:
    """FindEx leaves a result in the output, reports what fits, and is a host synchronisation."""
    run = Run(cuda, CASES[0])
    a, b, c = run.order(name)
    got, n, room = (Perf * 8)(), c_int(), max(run.space(name, 1)[1], 65536)
    waits = cuda.counter("host synchronisations")
    cuda.ok(f"cudnnFindConvolution{name}AlgorithmEx", cuda.handle, run.d[a], run.at[a], run.d[b], run.at[b], run.conv,
            run.d[c], run.at[c], 8, byref(n), got, cuda.malloc(room), c_size_t(room))  # fmt: skip
    assert cuda.counter("host synchronisations") == waits + 1
    assert all(r.memory <= room for r in got[: n.value] if r.status == 0)
    assert any(r.memory > room and r.status == 4003 for r in got[: n.value])
    exact = truth(CASES[0], *run.values)[PASSES.index(name)]
    assert is_rounded(get(cuda, run.at[c], run.shapes[c], FLOAT), exact, FLOAT, units=4)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", [NCHW, NHWC])
def test_small_operations(cuda: Calls, layout: int, dtype: int) -> None:
    """Bias gradient, ReLU, AddTensor."""
    torch.manual_seed(1)
    z = torch.randn(2, 3, 4, 5, dtype=torch.float64).to(TYPES[dtype])
    bias = torch.randn(1, 3, 1, 1, dtype=torch.float64).to(TYPES[dtype])
    d, b = cuda.tensor((2, 3, 4, 5), dtype, layout), cuda.tensor((1, 3, 1, 1), dtype, layout)
    one, zero, h = scalar(1, dtype), scalar(0, dtype), cuda.handle
    z_at, bias_at, relu = put(cuda, z, layout), put(cuda, bias), cuda.activation()

    to = put(cuda, torch.zeros_like(bias))
    if dtype == BFLOAT16:
        assert cuda.status("cudnnConvolutionBackwardBias", h, one, d, z_at, zero, b, to) == 3000
    else:
        cuda.ok("cudnnConvolutionBackwardBias", h, one, d, z_at, zero, b, to)
        assert is_rounded(get(cuda, to, (1, 3, 1, 1), dtype), z.double().sum((0, 2, 3), keepdim=True), dtype)

    y = put(cuda, torch.zeros_like(z), layout)
    cuda.ok("cudnnActivationForward", h, relu, one, d, z_at, zero, d, y)
    assert torch.equal(get(cuda, y, z.shape, dtype, layout), z.clamp(min=0))

    cuda.ok("cudnnAddTensor", h, scalar(2, dtype), b, bias_at, one, d, z_at)
    exact = z.double() + 2 * bias.double()
    assert is_rounded(get(cuda, z_at, z.shape, dtype, layout), exact, dtype)


def test_relu_and_nan(cuda: Calls) -> None:
    """NaN passes with CUDNN_PROPAGATE_NAN and is lost without."""
    d, z = cuda.tensor((1, 1, 1, 4)), torch.tensor([float("nan"), -1.0, 0.0, 2.0]).reshape(1, 1, 1, 4)
    for nan in (0, 1):
        at = put(cuda, z)
        cuda.ok("cudnnActivationForward", cuda.handle, cuda.activation(RELU, nan), scalar(1), d, at, scalar(0), d, at)
        got = get(cuda, at, (1, 1, 1, 4), FLOAT).flatten()
        assert bool(got[0].isnan()) == bool(nan)
        assert got[1:].tolist() == [0, 0, 2]
