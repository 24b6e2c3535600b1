# SPDX-License-Identifier: MIT
"""Gradients of convolutions inside torch: its gradcheck, its autograd; and how sharp the bounds of a network are.

Adjoint identities are in tests/parity, finite differences in tests/commands/gradcheck.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import bridge
from bridge.judge.oracle.error_model import UNIT_ROUNDOFF, rounding_factor
from tests.helpers.cases import (
    Case,
    batch,
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


def most_roundings(case: Case) -> dict[str, float]:
    """s(n) of the element of y, dx, dw, db with most products."""
    ones = {name: np.ones_like(array) for name, array in tensors(case, "float64").items()}
    return {name: float(rounding_factor(n.max(), U)) for name, n in torch_convolution(case, ones).items()}


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


def test_bounds_of_the_network_are_sharp() -> None:
    """The bounds that these tests trust do not hide a wrong third digit, not even in float32."""
    net = bridge.Network.from_torch(three_layers(3, 5))
    x, target = batch((3, 1, 9, 11), "float32", 1), batch((3, 1, 9, 11), "float32", 2)
    for name, (value, bound) in torch_step(net, x, target).items():
        assert np.median(bound) <= 1e-3 * np.abs(value).max(), name
