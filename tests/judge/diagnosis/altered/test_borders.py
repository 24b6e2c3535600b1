# SPDX-License-Identifier: MIT
"""What is there beyond a border, in place of zeros, is named in every operation that pads; PyTorch makes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge.exchange.model import Conv2d
from bridge.judge.diagnosis.predictions.convolutions import Data
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.operations.pads import ConstantPad
from bridge.operations.pooling import AvgPool2d
from bridge.operations.volumes.pooling import AvgPool3d
from bridge.operations.volumes.products import Conv3d
from tests.helpers.judged.single_operations import X, explained, formula, of_faults

Array = np.ndarray
RNG = np.random.default_rng(2)
VOLUMES, KERNELS, BIAS = (RNG.normal(size=shape).astype(np.float32) for shape in (
    (2, 2, 4, 5, 6), (3, 2, 3, 3, 3), (3,)))
MODES = ("replicate", "reflect", "circular")


@pytest.mark.parametrize("mode", MODES)
def test_volumes_beyond_whose_border_is_something_are_named_in_every_pass(mode: str) -> None:
    node, of = Conv3d("it", 2, 3, (3, 3, 3), (1, 2, 1), (1, 1, 1)), {"weight": KERNELS, "bias": BIAS}
    x, w = (torch.from_numpy(one).requires_grad_() for one in (VOLUMES, KERNELS))
    y = functional.conv3d(functional.pad(x, (1,) * 6, mode=mode), w, torch.from_numpy(BIAS), (1, 2, 1))
    dy = RNG.normal(size=y.shape).astype(np.float32)
    dx, dw = torch.autograd.grad(y, (x, w), torch.from_numpy(dy))
    for gradient, found in ((None, y.detach()), (0, dx), ("weight", dw)):
        right = formula(node, VOLUMES, of, None if gradient is None else dy, gradient)
        assert of_faults(right, found) == [f"{mode} padding"]


def test_volumes_whose_last_plane_is_left_out_are_named_in_every_pass() -> None:
    x, w, b = (torch.from_numpy(one).requires_grad_() for one in (VOLUMES, KERNELS, BIAS))
    y = functional.conv3d(x, w, b, padding=1)
    wrong = torch.cat([y[:, :, :-1], 0 * y[:, :, -1:]], 2)
    dy = RNG.normal(size=y.shape).astype(np.float32)
    dx, dw, db = torch.autograd.grad(wrong, (x, w, b), torch.from_numpy(dy))
    node = Conv3d("it", 2, 3, (3, 3, 3), padding=(1, 1, 1))
    for gradient, found in ((None, wrong.detach()), (0, dx), ("weight", dw), ("bias", db)):
        right = formula(node, VOLUMES, {"weight": KERNELS, "bias": BIAS}, None if gradient is None else dy, gradient)
        assert of_faults(right, found) == ["the last plane of outputs is not computed"]


@pytest.mark.parametrize("mode", MODES)
def test_what_comes_back_from_beyond_the_border_of_an_image_is_named(mode: str) -> None:
    layer, w = Conv2d("it", 4, 3, (3, 3), (2, 1), (1, 1)), RNG.normal(size=(3, 4, 3, 3)).astype(np.float32)
    x = torch.from_numpy(X).requires_grad_()
    y = functional.conv2d(functional.pad(x, (1,) * 4, mode=mode), torch.from_numpy(w), stride=(2, 1))
    dy = RNG.normal(size=y.shape).astype(np.float32)
    (dx,) = torch.autograd.grad(y, x, torch.from_numpy(dy))
    right = Data(X.shape, layer, Predicted(dy.astype(float)), w.astype(float))
    assert of_faults(right, dx) == [f"{mode} padding"]


@pytest.mark.parametrize("mode", ["replicate", "reflect"])
def test_means_of_what_is_beyond_the_border_are_named(mode: str) -> None:
    said = {"replicate": "are copies of the outermost", "reflect": "are those mirrored at the outermost"}[mode]
    x = torch.from_numpy(X).requires_grad_()
    y = functional.avg_pool2d(functional.pad(x, (1,) * 4, mode=mode), 3, 1)
    dy = RNG.normal(size=y.shape).astype(np.float32)
    (dx,) = torch.autograd.grad(y, x, torch.from_numpy(dy))
    node = AvgPool2d("it", (3, 3), (1, 1), (1, 1))
    assert explained(formula(node, X), y.detach())[0].detail == f"beyond the image {said}"
    assert explained(formula(node, X, {}, dy, 0), dx)[0].detail == f"beyond the image {said}, and their sums go there"


def test_means_of_volumes_beyond_whose_border_are_copies_are_named() -> None:
    found = functional.avg_pool3d(functional.pad(torch.from_numpy(VOLUMES), (1,) * 6, mode="replicate"), 3, 1)
    right = formula(AvgPool3d("it", (3, 3, 3), (1, 1, 1), (1, 1, 1)), VOLUMES)
    assert explained(right, found)[0].detail == "beyond the image are copies of the outermost"


@pytest.mark.parametrize(("mode", "said"), [
    ("edge", "are copies of the outermost"), ("reflect", "are those mirrored at the outermost")])
def test_numbers_beside_others_are_named(mode: Any, said: str) -> None:
    found = np.pad(X, ((0, 0), (0, 0), (1, 1), (2, 2)), mode=mode)
    assert explained(formula(ConstantPad("it", (2, 2, 1, 1)), X), found)[0].detail == f"beside the numbers {said}"
