# SPDX-License-Identifier: MIT
"""What the tests of graphs' kernels share: numbers, torch's in float64, distances in units of the last place."""

from __future__ import annotations

import math

import numpy as np
import torch

from bridge.operations.table import rows
from tests.helpers.cuda.kernel_memory import KINDS

GRIDS = (1, 3)


def numbers(kind: str, shape: int | tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(KINDS[kind])


def wide(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array.astype(np.float64), requires_grad=True)


def ulps(found: np.ndarray, expected: np.ndarray | torch.Tensor, scale: float = 0.0) -> float:
    """The largest distance in units of the last place, of `scale` where numbers are smaller; NaN only beside NaN, and
    infinities at the same places."""
    if isinstance(expected, torch.Tensor):
        expected = expected.detach().numpy()
    with np.errstate(over="ignore"):
        narrow = expected.astype(found.dtype)
    assert found.shape == narrow.shape
    assert np.array_equal(np.isnan(found), np.isnan(narrow))
    assert np.array_equal(np.where(np.isinf(found), found, 0), np.where(np.isinf(narrow), narrow, 0))
    finite = np.isfinite(found)
    magnitude = np.clip(np.abs(narrow[finite]), found.dtype.type(scale), np.finfo(found.dtype).max/2)
    spacing = np.spacing(magnitude).astype(np.float64)
    return float(np.max(np.abs(found[finite].astype(np.float64) - expected[finite])/spacing, initial=0))


def i8(*values: int) -> list[np.int64]:
    return [np.int64(value) for value in values]


def counted(family: str) -> dict[str, int]:
    """The numbers by which the kernels know the functions of a family of the table."""
    return {kind: i for i, kind in enumerate((kind for kind, row in rows(family).items() if "value" in row), 1)}


def strides(shape: tuple[int, ...], whole: tuple[int, ...]) -> list[np.int64]:
    """Of an array along the axes of another, the last first; 0 where it is broadcast."""
    return i8(*(0 if shape[i] < whole[i] else math.prod(shape[i + 1:]) for i in (3, 2, 1, 0)))
