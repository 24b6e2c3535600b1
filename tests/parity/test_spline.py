# SPDX-License-Identifier: MIT
"""A KAN layer and its gradients by functions, the same on every device, beside PyTorch and its rounding bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.engine.arrays.transfer import with_numpy
from bridge.judge.measure.error_statistics import measure
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.operations import Spline as Node
from reference.spline import Spline

ORDERS = (2, 3, 4, 5)
SETTINGS = {"low": -0.5, "high": 1.75}


def layer(order: int, scaled: bool, outputs: int = 4) -> Spline:
    """Of three features and six intervals."""
    torch.manual_seed(order)
    made = Spline(3, outputs, 6, order, scale_spline=scaled, **SETTINGS).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ORDERS)
def test_splines_are_torchs(order: int, dtype: str, device: str) -> None:
    """Of single rows, of many, which several threads share, and of arrays of all ranks; a second time to the bit."""
    arithmetic = Arithmetic(total_roundoff(dtype))
    for scaled in (True, False):
        node = Node("it", 3, 4, 6, order, -0.5, 1.75, scaled)
        made = layer(order, scaled)
        given = [one.detach().numpy().astype(dtype) for one in made.parameters()]
        made.load_state_dict({name: torch.from_numpy(one.astype("float64")) for (name, _), one in zip(
            made.named_parameters(), given, strict=True)})
        for shape in ((1, 3), (500, 3), (2, 5, 3), (2, 3, 4, 3)):
            rng = np.random.default_rng(len(shape))
            x, dy = (rng.standard_normal((*shape[:-1], n)).astype(dtype) for n in (3, 4))
            options: dict[str, Any] = {"order": order, **SETTINGS}
            leaf = torch.from_numpy(x.astype("float64")).requires_grad_()
            right = made(leaf)
            made.zero_grad()
            right.backward(torch.from_numpy(dy.astype("float64")))
            y = with_numpy(bridge.spline, device)(x, *given, **options)
            found = with_numpy(bridge.spline_backward, device)(dy, x, *given, **options)
            assert (found[3] is None) is not scaled
            grads = [leaf.grad, *(one.grad for one in made.parameters())]
            operands, w = [Bounded(one, 0.0, arithmetic) for one in (x, dy)], {
                name: Bounded(one, 0.0, arithmetic) for (name, _), one in zip(
                    made.named_parameters(), given, strict=True)}
            (dx,), dw = node.backward(operands[1], operands[:1], w)
            bounds = [node.forward(operands[:1], w), dx, *(dw[name] for name in w)]
            for one, bound, other in zip((y, *found), bounds, (right.detach(), *grads), strict=False):
                assert one.shape == other.shape and one.dtype == dtype
                assert measure(one, bound.value, bound.error).t <= 1
                # Our sums are float64, the SiLU is not; in float64 PyTorch rounds as much
                if dtype == "float32":
                    assert np.abs(one - other.numpy()).max() <= 8 * np.finfo(dtype).eps * other.abs().max().item()
            again = with_numpy(bridge.spline_backward, device)(dy, x, *given, **options)
            for one, other in zip(found[: 3 + scaled], again, strict=False):
                assert one.tobytes() == other.tobytes()


def test_zero_gives_exact_zeros(device: str) -> None:
    """Nothing is left in memory: without an upstream gradient there is none."""
    given = [one.detach().numpy() for one in layer(3, True).parameters()]
    x = np.random.default_rng(1).standard_normal((20, 3))
    for one in with_numpy(bridge.spline_backward, device)(np.zeros((20, 4)), x, *given):
        assert not one.any()


def test_what_is_refused() -> None:
    x, c, s = np.zeros((2, 3)), np.zeros((4, 3, 8)), np.zeros((4, 3))
    for arguments, options, message in (
        ((x, c, np.zeros((3, 4))), {}, r"scale_base: shape \(3, 4\), expected \(4, 3\)"),
        ((x, c, s, np.zeros(4)), {}, r"scale_spline: .*\(4,\)"),
        ((np.zeros((2, 4)), c, s), {}, r"input \(2, 4\): .* expected 3 features in its last axis"),
        ((x, c, s), {"order": 6}, r"order 6, .*expected 2, 3, 4 or 5"),
        ((x, c, s), {"order": 8}, r"coefficient \(4, 3, 8\), order 8, .*grid 0, expected an integer from 1"),
        ((x, c, s), {"low": 1.0}, r"a grid from 1 to 1, expected finite numbers, low below high"),
        ((x[0], c, s), {}, r"input: shape \(3,\), expected two dimensions or more"),
        ((np.full((2, 3), np.nan), c, s), {}, r"input: holds NaN or infinity"),
        ((x.astype(np.float32), c, s), {}, r"coefficient: float64, expected float32"),
    ):
        with pytest.raises(bridge.common.errors.BridgeError, match=message):
            bridge.spline(*arguments, **options)
