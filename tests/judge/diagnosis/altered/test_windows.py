# SPDX-License-Identifier: MIT
"""Mistakes in the places of windows."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from bridge.operations.pooling import AvgPool2d, MaxPool2d
from tests.helpers.judged.single_operations import DY, X, explained, formula

MEAN = formula(AvgPool2d("it", (3, 3), (1, 1), (1, 1)), X, dy=DY, gradient=0)


def test_the_gradient_of_a_mean_that_goes_to_the_centre_is_named() -> None:
    dy = DY[:, :, :3, :3].copy()
    right = formula(AvgPool2d("it", (3, 3), (2, 2), (1, 1)), X, dy=dy, gradient=0)
    found = np.zeros_like(X)
    found[:, :, ::2, ::2] = dy
    assert explained(right, found)[0].detail == "the sum of dy / 9 over each window goes to its centre alone"


def test_padding_that_is_not_subtracted_is_named() -> None:
    padded = torch.from_numpy(DY)
    found = sum(functional.pad(padded, (j, 0, i, 0))[..., :6, :5] for i in range(3) for j in range(3)) / 9
    assert explained(MEAN, found.numpy())[0].detail == (
        "the windows are added where the padding is not subtracted from their places")


def test_padding_on_one_side_is_named() -> None:
    right = formula(MaxPool2d("it", (3, 3), (1, 1), (1, 1)), X)
    found = functional.max_pool2d(functional.pad(torch.from_numpy(X), (0, 2, 0, 2), value=-np.inf), 3, 1)
    assert explained(right, found.numpy())[0].detail == (
        "all of the padding is below the last row and right of the last column")
