# SPDX-License-Identifier: MIT
"""Convolution and its three gradients, the same on every device, beside PyTorch in float64 and its rounding bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bridge.judge.oracle.error_model import UNIT_ROUNDOFF, rounding_factor, total_roundoff
from tests.helpers.cases import CASES, Array, Case, check, tensors, torch_convolution, truth
from tests.helpers.networks.parity_tools import LARGE, backward, convolution, forward, sized
from tests.helpers.tiers import few

#: Strides, paddings, dilations, groups and odd sizes; the long images of the others are for the CPU's blocks
GEOMETRY = [case for case in CASES if LARGE or math.prod(case.x) < 6000]
#: Sums over n; every other length is different from it and from each other
BATCHES = [Case(f"batch {n}", (n, *sized((3, 6, 5), (17, 61, 53))), (4, sized((3,), (17,))[0], 2, 4), padding=(1, 2))
           for n in (1, 7, 16, 64, 128)]
WIDE = Case("32 to 256", (2, 32, *sized((5, 7), (45, 67))), (256, 32, 3, 3), padding=(1, 1))
SMALL = (
    Case("plain", (2, 3, 4, 5), (4, 3, 3, 2)),
    Case("stride, padding", (2, 3, 6, 7), (4, 3, 2, 3), (3, 2), (1, 2)),
    Case("dilation, groups", (1, 4, 6, 5), (6, 2, 3, 2), (1, 2), (1, 2), (2, 1), 2),
    Case("depthwise", (2, 3, 5, 6), (3, 1, 4, 2), padding=(2, 0), groups=3),
)
NAMED = {"ids": lambda case: case.name}
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])


@pytest.mark.parametrize("case", few(GEOMETRY, 10), **NAMED)
@DTYPES
def test_geometry(case: Case, dtype: str, device: str) -> None:
    t = tensors(case, dtype)
    check(convolution(case, t, device), truth(case, t), dtype)


@pytest.mark.parametrize("case", few([*BATCHES, WIDE], 3), **NAMED)
def test_sizes(case: Case, device: str) -> None:
    """Batches from 1 to 128, and a layer that is wider than a warp on both sides."""
    t = tensors(case, "float32")
    check(convolution(case, t, device), truth(case, t), "float32")


@pytest.mark.parametrize("case", [BATCHES[1], WIDE], **NAMED)
@DTYPES
def test_the_bias_gradient_alone_is_the_sum(case: Case, dtype: str, device: str) -> None:
    t = tensors(case, dtype)
    found = backward(case, t, device, ["db"])
    assert list(found) == ["db"]
    factor = rounding_factor(t["dy"][:, 0].size, total_roundoff(dtype))
    for k, value in enumerate(found["db"]):
        terms = t["dy"][:, k].astype(np.float64).ravel()
        assert abs(value - math.fsum(terms)) <= factor * math.fsum(np.abs(terms)), k


@pytest.mark.parametrize("wanted", ["dx", "dw", "db"])
def test_a_gradient_alone_is_the_one_among_three(wanted: str, device: str) -> None:
    case = SMALL[1]
    t = tensors(case, "float32")
    (alone,) = backward(case, t, device, [wanted]).values()
    assert np.array_equal(alone, backward(case, t, device)[wanted])


@pytest.mark.parametrize("case", [BATCHES[2], SMALL[2]], **NAMED)
@DTYPES
def test_zero_gives_exact_zeros(case: Case, dtype: str, device: str) -> None:
    """No rounding, nothing left in memory: without an upstream gradient there is none."""
    t = tensors(case, dtype)
    t["dy"][...] = 0
    for name, array in backward(case, t, device).items():
        assert not array.any(), name


@pytest.mark.parametrize("case", [BATCHES[3], WIDE, SMALL[2]], **NAMED)
def test_gradients_overwrite_and_repeat_to_the_bit(case: Case, device: str) -> None:
    """Nothing is added to what an earlier call left, and no sum depends on the order of threads."""
    t = tensors(case, "float32")
    first = backward(case, t, device)
    backward(case, tensors(case, "float32", seed=1), device)
    for _ in range(3):
        for name, array in backward(case, t, device).items():
            assert np.array_equal(array, first[name]), name


@pytest.mark.parametrize("case", SMALL, **NAMED)
@pytest.mark.parametrize("name", ["x", "w", "b"])
def test_central_differences(case: Case, name: str, device: str) -> None:
    """Convolution is linear in x, w and b: (f(+1) - f(-1))/2 is the gradient of every element, to rounding."""
    t, u = tensors(case, "float64"), UNIT_ROUNDOFF["float64"]
    gradient = backward(case, t, device, [f"d{name}"])[f"d{name}"]
    reach = {one: np.abs(array) + (one == name) for one, array in t.items()}
    ones = torch_convolution(case, {one: np.ones_like(array) for one, array in t.items()})
    s = {one: float(rounding_factor(n.max(), u)) for one, n in ones.items()}
    limit = (s["y"] + s[f"d{name}"] + 6 * u) * dot(reach["dy"], torch_convolution(case, reach)["y"])
    assert limit < 1e-9
    for at in np.ndindex(gradient.shape):
        ends = []
        for move in (1, -1):
            moved = t[name].copy()
            moved[at] += move
            ends.append(dot(t["dy"], forward(case, t | {name: moved}, device)))
        assert abs((ends[0] - ends[1]) / 2 - gradient[at]) <= limit, (name, at)


@pytest.mark.parametrize("case", [*GEOMETRY[::5], BATCHES[1], WIDE], **NAMED)
def test_adjoint_identity(case: Case, device: str) -> None:
    """<dy, conv(x, w)> = <x, dx> = <w, dw>: all three are the same sum of products dy*w*x."""
    t, u = tensors(case, "float64"), UNIT_ROUNDOFF["float64"]
    t.pop("b", None)
    found = convolution(case, t, device)
    sums = [dot(t["dy"], found["y"]), dot(t["x"], found["dx"]), dot(t["w"], found["dw"])]
    sizes = {name: np.abs(array) for name, array in t.items()}
    products = torch_convolution(case, {name: np.ones_like(array) for name, array in t.items()})
    s = {name: float(rounding_factor(n.max(), u)) for name, n in products.items()}
    total = dot(sizes["dy"], torch_convolution(case, sizes)["y"])
    assert abs(sums[0] - sums[1]) <= (s["y"] + s["dx"] + 4 * u) * total
    assert abs(sums[0] - sums[2]) <= (s["y"] + s["dw"] + 4 * u) * total


@pytest.mark.parametrize("case", [BATCHES[1], WIDE, *SMALL], **NAMED)
@DTYPES
def test_convolution_with_relu(case: Case, dtype: str, device: str) -> None:
    """One call for three operations gives what they give one after the other."""
    t = tensors(case, dtype)
    value, bound = truth(case, t)["y"]
    y = forward(case, t, device, relu=True)
    assert y.dtype == dtype and (y == 0).any() and (y > 0).any()
    # Bounds do not grow: max(., 0) brings no two numbers further apart
    assert np.all(np.abs(y.astype(np.float64) - np.maximum(value, 0)) <= bound)


def dot(a: Array, b: Array) -> float:
    """Inner product, its sum without rounding."""
    return math.fsum((a * b).ravel())
