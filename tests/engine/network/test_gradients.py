# SPDX-License-Identifier: MIT
"""Gradients proved without another implementation: adjoint identity, finite differences, torch's gradcheck."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import bridge
from bridge.judge.oracle.error_model import UNIT_ROUNDOFF, rounding_factor
from tests.helpers.cases import (
    CASES,
    Array,
    Case,
    batch,
    check,
    network_step,
    tensors,
    three_layers,
    torch_convolution,
    torch_step,
)

U = UNIT_ROUNDOFF["float64"]
SMALL = (
    Case("plain", (2, 3, 5, 6), (4, 3, 3, 2)),
    Case("stride", (2, 3, 7, 8), (4, 3, 2, 3), (3, 2), (1, 2)),
    Case("dilation", (1, 2, 9, 8), (3, 2, 4, 3), dilation=(2, 3), padding=(0, 1)),
    Case("groups", (2, 6, 5, 4), (9, 2, 2, 3), (1, 2), (1, 1), groups=3),
    Case("depthwise", (2, 3, 5, 6), (3, 1, 4, 2), padding=(2, 0), groups=3),
    Case("no bias", (2, 3, 5, 6), (4, 3, 1, 2), bias=False),
)
SMALL_CASES = pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
DEVICES = pytest.mark.parametrize("device", ["cpu", "naive"])


class FortranConv2d(torch.autograd.Function):
    """The Fortran convolution inside torch's autograd."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, case: Case) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        ctx.case = case
        bias = None if b is None else b.detach().numpy()
        return torch.from_numpy(bridge.conv2d(x.detach().numpy(), w.detach().numpy(), bias, **case.settings))

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, w = (one.detach().numpy() for one in ctx.saved_tensors)
        grads = bridge.conv2d_backward(dy.contiguous().numpy(), x, w, **ctx.case.settings,
                                       output_mask=ctx.needs_input_grad[:3])
        return (*(None if one is None else torch.from_numpy(one) for one in grads), None)


def dot(a: Array, b: Array) -> float:
    """Inner product, its sum without rounding."""
    return math.fsum((a * b).ravel())


def most_roundings(case: Case) -> dict[str, float]:
    """s(n) of the element of y, dx, dw, db with most products."""
    ones = {name: np.ones_like(array) for name, array in tensors(case, "float64").items()}
    return {name: float(rounding_factor(n.max(), U)) for name, n in torch_convolution(case, ones).items()}


def convolve(case: Case, t: dict[str, Array], device: str = "cpu") -> Array:
    """The library's y."""
    return bridge.conv2d(t["x"], t["w"], t.get("b"), **case.settings, device=device)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@DEVICES
def test_adjoint_identity(case: Case, device: str) -> None:
    """<dy, conv(x, w)> = <x, dx> = <w, dw>: all three are the same sum of products dy*w*x."""
    t = tensors(case, "float64") | {"b": np.zeros(case.w[0])}
    dx, dw, _ = bridge.conv2d_backward(t["dy"], t["x"], t["w"], **case.settings, device=device)
    sums = dot(t["dy"], convolve(case, t, device)), dot(t["x"], dx), dot(t["w"], dw)
    absolute = torch_convolution(case, {name: np.abs(array) for name, array in t.items()})
    s = most_roundings(case)
    total = dot(np.abs(t["dy"]), absolute["y"])
    assert total > 0
    assert abs(sums[0] - sums[1]) <= (s["y"] + s["dx"] + 4 * U) * total
    assert abs(sums[0] - sums[2]) <= (s["y"] + s["dw"] + 4 * U) * total


@SMALL_CASES
@DEVICES
def test_adjoint_identity_of_the_bias(case: Case, device: str) -> None:
    """With x = 0 the output is the bias, exactly, and <dy, conv(0)> = <b, db>."""
    t = tensors(case, "float64")
    t |= {"x": np.zeros_like(t["x"]), "b": np.random.default_rng(5).standard_normal(case.w[0])}
    y = convolve(case, t, device)
    assert np.array_equal(y, np.broadcast_to(t["b"][:, None, None], y.shape))
    _, _, db = bridge.conv2d_backward(t["dy"], t["x"], t["w"], **case.settings, device=device)
    count = t["dy"][:, 0].size
    total = dot(np.abs(t["dy"]), np.abs(y))
    assert abs(dot(t["dy"], y) - dot(t["b"], db)) <= (rounding_factor(count, U) + 4 * U) * total


@SMALL_CASES
def test_torch_gradcheck(case: Case) -> None:
    """torch's own gradcheck accepts the Fortran convolution; step 1, because it is linear in each argument."""
    t = {name: torch.from_numpy(array).requires_grad_() for name, array in tensors(case, "float64").items()}
    reach = {name: np.abs(array) + 1 for name, array in tensors(case, "float64").items()}
    largest = torch_convolution(case, reach)
    s = most_roundings(case)
    limit = max((s["y"] + s[name] + 6 * U) * largest["y"].max() for name in largest)
    assert limit < 1e-11
    inputs = (t["x"], t["w"], t.get("b"), case)
    assert torch.autograd.gradcheck(FortranConv2d.apply, inputs, eps=1.0, atol=float(limit), rtol=0.0, nondet_tol=0.0)


def test_function_trains_inside_torch() -> None:
    """Inside torch's autograd the Fortran convolution gives torch's gradients, also for a frozen input."""
    case = SMALL[3]
    t = {name: torch.from_numpy(array) for name, array in tensors(case, "float64").items()}
    w, b = t["w"].requires_grad_(), t["b"].requires_grad_()
    dw, db = torch.autograd.grad(FortranConv2d.apply(t["x"], w, b, case), (w, b), t["dy"])
    other = tensors(case, "float64")
    expected = bridge.conv2d_backward(other["dy"], other["x"], other["w"], **case.settings)
    assert np.array_equal(dw.numpy(), expected[1]) and np.array_equal(db.numpy(), expected[2])


#: f'(0) from f(-3h) .. f(3h), exact for polynomials of degree 6
STENCIL = {-3: -1 / 60, -2: 9 / 60, -1: -45 / 60, 1: 45 / 60, 2: -9 / 60, 3: 1 / 60}
STEP = 2.0**-12


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("seed", range(4))
def test_network_gradient_along_a_direction(reduction: str, seed: int) -> None:
    """Between kinks the loss of three layers is a polynomial of degree 6: its difference quotient is exact."""
    net = bridge.Network.from_torch(three_layers(seed, 3, torch.float64), reduction=reduction)
    x, target = batch((2, 1, 6, 7), "float64", seed), batch((2, 1, 6, 7), "float64", seed + 100)
    net.forward(x)
    loss = net.loss(target)
    x_gradient = net.backward()
    gradients = {name: array.copy() for name, array in net.gradients.items()} | {"x": x_gradient}
    start = {name: array.copy() for name, array in net.parameters.items()} | {"x": x}
    judged = torch_step(net, x, target)
    direction, losses = smooth_direction(net, start, target, seed)
    slope = math.fsum(STENCIL[i] * losses[i] / STEP for i in STENCIL)
    expected = math.fsum(dot(direction[name], gradients[name]) for name in gradients)
    bound_of = {name: judged["gradient/input" if name == "x" else name][1] for name in gradients}
    limit = math.fsum(dot(np.abs(direction[name]), bound_of[name]) for name in gradients)
    # Twice: the bound is that of the loss in the middle
    assert all(abs(one - loss) <= 0.1 * loss for one in losses.values())
    limit += 2 * sum(abs(c) for c in STENCIL.values()) * float(judged["loss"][1]) / STEP
    assert limit < 1e-6 * abs(expected)
    assert abs(slope - expected) <= limit


def smooth_direction(net: bridge.Network, start: dict[str, Array], target: Array,
                     seed: int) -> tuple[dict[str, Array], dict[int, float]]:
    """A random direction that crosses no kink of a ReLU, and the losses along it."""
    rng = np.random.default_rng(seed)
    for _ in range(200):
        direction = {name: rng.standard_normal(array.shape) / 4 for name, array in start.items()}
        losses, masks = {}, set()
        for i in STENCIL:
            moved = {name: start[name] + i * STEP * direction[name] for name in start}
            for name, array in net.parameters.items():
                array[...] = moved[name]
            net.forward(moved["x"])
            losses[i] = net.loss(target)
            masks.add(b"".join((net.output(name) > 0).tobytes() for name in ("conv1", "conv2")))
        if len(masks) == 1:
            return direction, losses
    raise AssertionError("every direction crosses a kink: choose a smaller step")


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_network_against_torch_autograd(reduction: str, dtype: torch.dtype) -> None:
    """All outputs, gradients and the loss of a step lie within rounding of torch float64."""
    net = bridge.Network.from_torch(three_layers(3, 5, dtype), reduction=reduction)
    x, target = batch((3, 1, 9, 11), net.dtype, 1), batch((3, 1, 9, 11), net.dtype, 2)
    judged = torch_step(net, x, target)
    net.forward(x)
    loss = net.loss(target)
    net.backward()
    value, bound = judged.pop("loss")
    assert abs(loss - value) <= bound
    check(network_step(net), judged, net.dtype)


def test_bounds_of_the_network_are_sharp() -> None:
    """The bounds that these tests trust do not hide a wrong third digit, not even in float32."""
    net = bridge.Network.from_torch(three_layers(3, 5))
    x, target = batch((3, 1, 9, 11), "float32", 1), batch((3, 1, 9, 11), "float32", 2)
    for name, (value, bound) in torch_step(net, x, target).items():
        assert np.median(bound) <= 1e-3 * np.abs(value).max(), name
