# SPDX-License-Identifier: MIT
"""With transforms=no a convolution is a sum of products, whatever a library says of its algorithms.

Small integers are exact in float32 sums, and so is a product of 2^30 with 0. Pixels of 2^30 meet the central tap, which
is 0: a sum of products loses nothing by them, but Winograd and FFT mix neighbours before they multiply, and lose the
small ones beside them.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge.validate.self_test.fast_algorithms import WholeFourier, winograd
from tests.helpers.cases import Array, Case, torch_convolution
from tests.helpers.networks.parity_tools import backward, forward, sized

CASES = [Case("fields", (*sized((1, 8), (2, 64)), *sized((18, 20), (128, 128))), (*sized((8, 8), (64, 64)), 3, 3),
              padding=(1, 1), bias=False),
         Case("channels", (*sized((2, 4), (8, 128)), *sized((16, 16), (32, 32))), (*sized((6, 4), (128, 128)), 3, 3),
              padding=(1, 1), bias=False)]
DEVICES = ["cpu", "cuda", "cuda,direct=no", "cuda,direct=no,algorithm=measured"]


def operands(case: Case) -> tuple[dict[str, Array], Array]:
    """Integers, the central tap 0, and which pixels are large, (h, w): at odd and even places, none beside another."""
    rng = np.random.default_rng(5)
    t = {name: rng.integers(-2, 3, shape).astype(np.float32)
         for name, shape in {"x": case.x, "w": case.w, "dy": case.y}.items()}
    t["w"][..., 1, 1] = 0
    at = np.zeros(case.x[2:], bool)
    at[2::7, 3::5] = True
    return t, at


def large(array: Array, at: Array) -> Array:
    """With the large pixels in all channels."""
    return np.where(at, np.float32(2.0**30), array)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_product_with_zero_leaves_no_trace(case: Case, device: str, request: pytest.FixtureRequest) -> None:
    """In the output, the input's gradient and that of the central tap."""
    if device != "cpu":
        request.getfixturevalue("cuda")
    t, at = operands(case)
    right = torch_convolution(case, t)
    y = forward(case, t | {"x": large(t["x"], at)}, device)
    assert np.array_equal(y[..., at], right["y"][..., at])
    dx = backward(case, t | {"dy": large(t["dy"], at)}, device, ["dx"])["dx"]
    assert np.array_equal(dx[..., at], right["dx"][..., at])
    t["dy"][..., at] = 0
    dw = backward(case, t | {"x": large(t["x"], at)}, device, ["dw"])["dw"]
    assert np.array_equal(dw[..., 1, 1], torch_convolution(case, t)["dw"][..., 1, 1])


@pytest.mark.parametrize("algorithm", [winograd(2), winograd(4), WholeFourier])
def test_other_algorithms_would_be_seen(algorithm: type) -> None:
    t, at = operands(CASES[0])
    # Its arithmetic alone, which needs no model
    bare = object.__new__(algorithm)
    x = functional.pad(torch.from_numpy(large(t["x"], at)), (1, 1, 1, 1))
    found = bare.correlate(x, torch.from_numpy(t["w"])).numpy()
    assert np.abs(found - torch_convolution(CASES[0], t)["y"])[..., at].max() >= 1
