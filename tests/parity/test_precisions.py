# SPDX-License-Identifier: MIT
"""Convolutions of float32 operands that are multiplied in a lower precision lose what docs/cuda.md says, no more.

Bounds. Operands are rounded (o each), sums are float32 (s(n)), and a 16-bit result is rounded once more (u).
"""

from __future__ import annotations

import numpy as np
import pytest

import bridge
from bridge.engine.arrays.transfer import to_device
from tests.helpers.cases import Array, Case, tensors, torch_convolution, truth
from tests.helpers.networks.parity_tools import LARGE, convolution, sized

CASE = Case("groups", (3, 6, *sized((9, 8), (73, 86))), (4, 3, 2, 5), (1, 2), (2, 1), groups=2, bias=False)
#: Largest relative error of an operand; tensor cores may cut the fraction instead of rounding it
OPERAND = {"tf32": 2.0**-10, "fp16": 2.0**-11, "bf16": 2.0**-8}
#: Half of the smallest number
SMALLEST = {"float16": 2.0**-25, "bfloat16": 2.0**-134}
SIXTEEN_BITS = pytest.mark.parametrize(("dtype", "u"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])


@pytest.fixture
def kernels(cuda: str) -> str:
    """The CUDA device, where the build has the kernels that convert element types."""
    try:
        to_device(np.zeros(1, np.float32), cuda).astype("float16")
    except bridge.EngineError as error:
        if "needs the CUDA Fortran kernels" not in str(error):
            raise
        pytest.skip(f"skipped, because of the build: {error}")
    return cuda


def absolute_sums(case: Case, t: dict[str, Array]) -> dict[str, Array]:
    """Of the products of every element."""
    return torch_convolution(case, {name: np.abs(array) for name, array in t.items()})


def shows(error: Array, full: Array, value: Array) -> bool:
    """Whether errors are such as float32 has not: of long sums its bound may be wider than a 16-bit rounding."""
    return bool(error.max() > 16 * np.abs(full.astype(np.float64) - value).max())


@pytest.mark.parametrize("math", OPERAND)
def test_math_modes(math: str, kernels: str) -> None:
    t = tensors(CASE, "float32")
    found, sums = convolution(CASE, t, f"{kernels},direct=no,math={math}"), absolute_sums(CASE, t)
    full = convolution(CASE, t, f"{kernels},direct=no,math=fp32")
    o, u, lost = OPERAND[math], 0.0 if math == "tf32" else OPERAND[math], []
    for name, (value, bound) in truth(CASE, t).items():
        error = np.abs(found[name].astype(np.float64) - value)
        before = (2 * o + o * o) * sums[name] + bound * (1 + o) ** 2
        assert found[name].dtype == np.float32 and np.all(error <= before + u * (np.abs(value) + before)), name
        lost.append(shows(error, full[name], value))
    # A GPU may choose an algorithm without tensor cores for tf32
    assert all(lost) or (math == "tf32" and LARGE)


def test_double_precision_stays_double(cuda: str) -> None:
    """math= is about float32."""
    t = tensors(CASE, "float64")
    for name, (value, bound) in truth(CASE, t).items():
        assert np.all(np.abs(convolution(CASE, t, f"{cuda},direct=no,math=bf16")[name] - value) <= bound), name


@SIXTEEN_BITS
def test_sixteen_bit_arrays(dtype: str, u: float, kernels: str) -> None:
    """Operands are exact, sums float32, results rounded."""
    moved = {name: to_device(array, kernels).astype(dtype) for name, array in tensors(CASE, "float32").items()}
    t = {name: array.numpy().astype(np.float32) for name, array in moved.items()}
    y = bridge.conv2d(moved["x"], moved["w"], **CASE.settings, device=kernels)
    dx, dw, _ = bridge.conv2d_backward(moved["dy"], moved["x"], moved["w"], **CASE.settings, device=kernels)
    judged, full = truth(CASE, t), convolution(CASE, t, f"{kernels},direct=no,math=fp32")
    for name, array in {"y": y, "dx": dx, "dw": dw}.items():
        assert array.dtype == dtype
        value, before = judged[name]
        error = np.abs(array.numpy().astype(np.float64) - value)
        assert np.all(error <= before * (1 + u) + u * np.abs(value) + SMALLEST[dtype]), name
        assert shows(error, full[name], value), name
