# SPDX-License-Identifier: MIT
"""Convolutions of unfolded images in 16 bits: every number is what PyTorch's CPU gives without oneDNN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge.exchange.model import Conv2d
from bridge.judge.diagnosis.faults.stored_16_bit import compared
from bridge.judge.diagnosis.faults.unfolded import unfolded
from bridge.judge.diagnosis.predictions.convolutions import Data, Filter
from bridge.judge.diagnosis.predictions.elementwise import BiasGradient
from bridge.judge.diagnosis.predictions.formulas import Formula, Joined
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.judge.oracle.reduced_precision import HALF
from bridge.operations.products import ConvTranspose2d
from tests.helpers.judged.onednn import convolutions_by

Array = np.ndarray
FLOAT32 = Arithmetic(total_roundoff("float32"))
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: Kernel, stride, padding, dilation, groups
GEOMETRIES = [((3, 3), (1, 1), (1, 1), (1, 1), 1), ((2, 3), (2, 1), (0, 2), (1, 1), 2),
              ((3, 2), (1, 2), (1, 0), (2, 1), 1)]


def wide(x: torch.Tensor) -> Array:
    return x.detach().double().numpy()


def passes(kind: str, name: str, geometry: Any, last: bool) -> dict[str, tuple[Prediction, Array]]:
    """The right operations on 16-bit operands, and what torch makes of them; of three images."""
    size, stride, padding, dilation, groups = geometry
    torch.manual_seed(0)
    transposed, settings = kind == "transposed", {"stride": stride, "padding": padding, "dilation": dilation}
    given, made = (6, 4) if transposed else (4, 6)
    weight = (given, made // groups, *size) if transposed else (made, given // groups, *size)
    order = {"memory_format": torch.channels_last} if last else {}
    x, w = (torch.randn(shape).to(TYPES[name]).to(**order).requires_grad_() for shape in ((3, given, 9, 11), weight))
    b = torch.randn(made).to(TYPES[name]).requires_grad_()
    convolve = functional.conv_transpose2d if transposed else functional.conv2d
    with convolutions_by(False):
        y = convolve(x, w, b, groups=groups, **settings)
        dy = torch.randn(y.shape).to(TYPES[name]).to(**order)
        dx, dw, db = torch.autograd.grad(y, (x, w, b), dy)
    taken, dz = Predicted(wide(x)), Predicted(wide(dy))
    if transposed:
        node = ConvTranspose2d("it", given, made, size, **settings, groups=groups)
        parameters = {"weight": wide(w), "bias": wide(b)}
        return {"y": (Formula(tuple(y.shape), node, (taken,), parameters), wide(y)),
                "dw": (Formula(tuple(w.shape), node, (taken,), parameters, dz, "weight"), wide(dw))}
    layer = Conv2d("it", given, made, size, **settings, groups=groups)
    found = {"dx": (Data(tuple(x.shape), layer, dz, wide(w)), wide(dx)),
             "dw": (Filter(tuple(w.shape), layer, taken, dz), wide(dw))}
    return found | ({"db": (BiasGradient((made,), dz), wide(db))} if max(dilation) > 1 else {})


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("kind", ["convolution", "transposed"])
def test_it_is_what_torch_gives(kind: str, name: str, geometry: Any, last: bool) -> None:
    """To T <= 1, nearly all numbers exactly; neither what is rounded once nor a number that is one step off is inside.
    """
    half = HALF[f"{name} stored"]
    for what, (operation, found) in passes(kind, name, geometry, last).items():
        ways = [one for _, one in unfolded(operation, half)]
        way = min(ways, key=lambda one: compared(found, one.full(FLOAT32)).t)
        bounded = way.full(FLOAT32)
        assert compared(found, bounded).t <= 1, what
        assert (bounded.error == 0).mean() > 0.5 and (way.values() == found).mean() > 0.95, what
        at = np.flatnonzero(bounded.error == 0)[7 % found.size]
        wrong = found.copy()
        wrong.flat[at] *= 1 + half.relative
        assert compared(wrong, bounded).t > 1, what
        assert compared(found, Predicted(half.widened(operation.values()), bounded.error)).t > 1, what


def test_a_sum_of_gradients_has_such_parts() -> None:
    operation, found = passes("convolution", "bf16", GEOMETRIES[0], False)["dx"]
    both = Joined(operation.shape, (operation, operation), ("one", "two"))
    words, first = next(unfolded(both, HALF["bf16 stored"]))
    assert words == "the sum of each tap" and np.mean(first.values() == 2 * found) > 0.95
