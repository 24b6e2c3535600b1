# SPDX-License-Identifier: MIT
"""Kernels of volumes in another order are named in every operation that reads them; PyTorch makes the tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from bridge.operations.volumes.products import Conv3d, ConvTranspose3d
from tests.helpers.judged.single_operations import formula, of_faults

RNG = np.random.default_rng(2)
VOLUMES, KERNELS = (RNG.normal(size=shape).astype(np.float32) for shape in ((2, 2, 4, 5, 6), (3, 2, 3, 3, 3)))


@pytest.mark.parametrize(("change", "said"), [
    (lambda w: w[:, :, ::-1, ::-1, ::-1], "kernel reversed along d and r and s"),
    (lambda w: w[..., ::-1, ::-1], "kernel reversed along r and s"),
    (lambda w: w.transpose(0, 1, 4, 3, 2), "kernel memory in the order (k,c,d,r,s), read as (k,c,s,r,d)"),
    (lambda w: w.transpose(0, 1, 3, 2, 4), "kernel memory in the order (k,c,d,r,s), read as (k,c,r,d,s)"),
])
def test_kernels_of_volumes_that_are_read_otherwise_are_named(change: Any, said: str) -> None:
    wrong = torch.from_numpy(np.ascontiguousarray(change(KERNELS)))
    x = torch.from_numpy(VOLUMES)
    right = formula(Conv3d("it", 2, 3, (3, 3, 3), padding=(1, 1, 1), bias=False), VOLUMES, {"weight": KERNELS})
    assert of_faults(right, functional.conv3d(x, wrong, padding=1)) == [said]
    up, back = RNG.normal(size=(2, 3, 2, 3, 4)).astype(np.float32), ConvTranspose3d("it", 3, 2, (3, 3, 3), bias=False)
    right = formula(back, up, {"weight": KERNELS})
    assert of_faults(right, functional.conv_transpose3d(torch.from_numpy(up), wrong)) == [said]
    dy = RNG.normal(size=right.shape).astype(np.float32)
    right = formula(back, up, {"weight": KERNELS}, dy, 0)
    assert of_faults(right, functional.conv3d(torch.from_numpy(dy), wrong)) == [said]
