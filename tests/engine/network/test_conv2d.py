# SPDX-License-Identifier: MIT
"""The Fortran convolution against PyTorch in float64, against integers, and against itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812

import bridge
from tests.helpers.cases import CASES, Array, Case, check, fortran_convolution, tensors, truth
from tests.helpers.loops import looped

DTYPES = ("float32", "float64")
DEVICES = ("cpu", "naive")


@looped("case", CASES)
@looped("dtype", DTYPES)
def test_all_variants_lie_within_their_bound(case: Case, dtype: str) -> None:
    """y, dx, dw, db of both devices lie within rounding of torch float64."""
    t = tensors(case, dtype)
    expected = truth(case, t)
    for device in DEVICES:
        check(fortran_convolution(case, t, device), expected, dtype)


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    """Any small convolution that has an output."""
    number = st.integers
    groups, taps = draw(number(1, 3)), (draw(number(1, 4)), draw(number(1, 4)))
    pad, dilation = (draw(number(0, 4)), draw(number(0, 4))), (draw(number(1, 3)), draw(number(1, 3)))
    least = [max(1, d * (t - 1) + 1 - 2 * p) for d, t, p in zip(dilation, taps, pad, strict=True)]
    size = [low + draw(number(0, 6)) for low in least]
    c, k = draw(number(1, 3)), draw(number(1, 3))
    return Case("random", (draw(number(1, 3)), c * groups, *size), (k * groups, c, *taps),
                (draw(number(1, 4)), draw(number(1, 4))), pad, dilation, groups, draw(st.booleans()))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(random_cases(), st.sampled_from(DTYPES), st.integers(0, 99))
def test_random_shapes_lie_within_their_bound(case: Case, dtype: str, seed: int) -> None:
    """The same for shapes that nobody chose."""
    t = tensors(case, dtype, seed)
    expected = truth(case, t)
    for device in DEVICES:
        check(fortran_convolution(case, t, device), expected, dtype)


def integer_convolution(case: Case, t: dict[str, Array]) -> dict[str, Array]:
    """y, dx, dw, db in the integers, tap by tap."""
    g, (n, _, h, w), (k, cg, r, s), (_, _, p, q) = case.groups, case.x, case.w, case.y
    x = np.pad(t["x"], ((0, 0), (0, 0), *((pad, pad) for pad in case.padding)))
    x = x.reshape(n, g, cg, *x.shape[2:])
    dx, dw = np.zeros_like(x), np.zeros((g, k // g, cg, r, s), np.int64)
    kernels, dy = t["w"].reshape(dw.shape), t["dy"].reshape(n, g, k // g, p, q)
    y = np.zeros_like(dy) + t["b"].reshape(g, k // g, 1, 1)
    for i, j in itertools.product(range(r), range(s)):
        rows, cols = (slice(tap * d, tap * d + step * (count - 1) + 1, step) for tap, d, step, count in zip(
            (i, j), case.dilation, case.stride, (p, q), strict=True))
        y += np.einsum("ngcpq,gkc->ngkpq", x[..., rows, cols], kernels[..., i, j])
        dw[..., i, j] = np.einsum("ngcpq,ngkpq->gkc", x[..., rows, cols], dy)
        dx[..., rows, cols] += np.einsum("ngkpq,gkc->ngcpq", dy, kernels[..., i, j])
    inside = dx[..., case.padding[0]:case.padding[0] + h, case.padding[1]:case.padding[1] + w]
    return {"y": y.reshape(case.y), "dx": inside.reshape(case.x), "dw": dw.reshape(case.w),
            "db": t["dy"].sum((0, 2, 3))}


@looped("case", [case for case in CASES if case.bias])
def test_integers_are_exact(case: Case) -> None:
    """With x, w, b, dy in {-1, 0, 1} every float32 sum is exact, so nothing may differ at all."""
    rng = np.random.default_rng(7)
    t = {name: rng.integers(-1, 2, array.shape) for name, array in tensors(case, "float32").items()}
    expected = integer_convolution(case, t)
    singles = {name: array.astype(np.float32) for name, array in t.items()}
    for device in DEVICES:
        found = fortran_convolution(case, singles, device)
        assert {name: np.array_equal(found[name], expected[name]) for name in expected} == dict.fromkeys(expected, True)


@pytest.mark.parametrize("device", DEVICES)
def test_pixels_that_no_output_saw_have_gradient_zero(device: str) -> None:
    """A stride that jumps over pixels leaves exact zeros there, and none elsewhere."""
    case = next(case for case in CASES if case.name == "stride leaves pixels out")
    dx = fortran_convolution(case, tensors(case, "float32"), device)["dx"]
    seen = np.zeros(case.x[2:], bool)
    for r in range(case.w[2]):
        seen[r:r + 3 * case.y[2]:3, ::4] = True
    assert not seen.all()
    assert np.array_equal(dx != 0, np.broadcast_to(seen, dx.shape))


@pytest.mark.parametrize(("kernel", "dilation", "same"), [
    ((3, 5), (1, 1), (1, 2)), ((3, 1), (2, 3), (2, 0)), ((4, 3), (2, 1), (3, 1))])
def test_named_padding(kernel: tuple[int, int], dilation: tuple[int, int], same: tuple[int, int]) -> None:
    """"valid" and "same" mean what they mean in torch, forward and backward."""
    for name, padding in (("valid", (0, 0)), ("same", same)):
        case = Case(name, (2, 3, 9, 11), (4, 3, *kernel), padding=padding, dilation=dilation, bias=False)
        t = tensors(case, "float64")
        expected = F.conv2d(torch.from_numpy(t["x"]), torch.from_numpy(t["w"]), padding=name, dilation=dilation)
        assert tuple(expected.shape) == case.y
        y = bridge.conv2d(t["x"], t["w"], padding=name, dilation=dilation)
        dx, dw, _ = bridge.conv2d_backward(t["dy"], t["x"], t["w"], padding=name, dilation=dilation)
        check({"y": y, "dx": dx, "dw": dw}, truth(case, t), "float64")


def test_one_number_stands_for_a_pair() -> None:
    """stride=2 is (2, 2); lists and numpy integers will do."""
    case = Case("pairs", (2, 3, 9, 11), (4, 3, 2, 3))
    t = tensors(case, "float32")
    pairs = bridge.conv2d(t["x"], t["w"], t["b"], (2, 2), (1, 1), (3, 3))
    assert np.array_equal(pairs, bridge.conv2d(t["x"], t["w"], t["b"], 2, 1, 3))
    assert np.array_equal(pairs, bridge.conv2d(t["x"], t["w"], t["b"], [2, 2], np.int64(1), (np.int8(3), 3)))


@pytest.mark.parametrize("device", DEVICES)
def test_out_is_used_and_returned(device: str) -> None:
    """`out` is the returned object, all of it is overwritten, and the values are those without it."""
    case = CASES[0]
    t = tensors(case, "float32")
    out = np.full(case.y, np.nan, np.float32)
    place = out.ctypes.data
    y = bridge.conv2d(t["x"], t["w"], t["b"], out=out, device=device)
    assert y is out and y.ctypes.data == place
    assert np.array_equal(out, bridge.conv2d(t["x"], t["w"], t["b"], device=device))


@pytest.mark.parametrize("mask", list(itertools.product((True, False), repeat=3)))
def test_output_mask_chooses_gradients(mask: tuple[bool, bool, bool]) -> None:
    """What is not asked for is None; what is asked for does not depend on the rest."""
    case = CASES[1]
    t = tensors(case, "float64")
    everything = bridge.conv2d_backward(t["dy"], t["x"], t["w"], **case.settings)
    chosen = bridge.conv2d_backward(t["dy"], t["x"], t["w"], **case.settings, output_mask=mask)
    for wanted, one, other in zip(mask, chosen, everything, strict=True):
        assert np.array_equal(one, other) if wanted else one is None


@pytest.mark.parametrize("device", DEVICES)
def test_long_sums_are_kept_in_float64(device: str) -> None:
    """One large term and 32 ones in 33 images: float32 would lose every one of them, float64 none."""
    x = np.ones((33, 1, 1, 1), np.float32)
    x[0] = 8192
    _, dw, db = bridge.conv2d_backward(x * x, np.ones_like(x), np.ones((1, 1, 1, 1), np.float32), device=device)
    assert dw.item() == db.item() == 2**26 + 32
    net = bridge.Network(bridge.Model((bridge.Conv2d("a", 1, 1, (1, 1)),), mean=False), device=device)
    net.forward(x)
    assert net.loss(x) == 2**26 + 32
