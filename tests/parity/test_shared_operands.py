# SPDX-License-Identifier: MIT
"""Parameters as operands, tables, images in other places and windows as images: trained beside torch, and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.networks.beside_torch import assert_caught, assert_right, train_beside
from tests.helpers.networks.exported_networks import Tokens, conv


def tokens() -> nn.Module:
    return nn.Sequential(conv(1, 4), Tokens(4, 4), nn.Conv2d(4, 1, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_three_steps_are_torchs(device: str, dtype: str) -> None:
    torch.manual_seed(0)
    trained = train_beside(tokens(), (2, 1, 4, 4), device, dtype)
    assert isinstance(trained, nn.Sequential) and isinstance(trained[1], Tokens)


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "fixture.h5"
    export(path, ExportSettings(model=tokens, height=4, width=4, batch=2, steps=2))
    return path


def test_it_is_right(fixture: Path, device: str, tmp_path: Path) -> None:
    assert_right(fixture, tmp_path / "result.h5", device)
    with h5py.File(fixture) as file:
        kinds = {one.attrs["type"] for one in file["model/layers"].values()}
    assert {"parameter", "index_select", "reshape", "matmul"} < kinds and "aten" not in kinds


def rows_alone(array: np.ndarray) -> np.ndarray:
    """Of the sum over equal indices one of them."""
    return array / np.maximum(np.arange(len(array))[::-1].reshape(-1, 1) % 16, 1)


#: Of tensors of a step, and what is wrong with them
MISTAKES: dict[str, tuple[str, Any]] = {
    "the gradient of one image alone": ("grads/1.places/weight", lambda a: a / 2),
    "of equal indices one": ("grads/1.table/weight", rows_alone),
    "the table backwards": ("forward/1.table", lambda a: a[:, ::-1]),
    "of the token none": ("grads/1.token/weight", np.zeros_like),
    "windows of other images": ("forward/1.reshape_2", lambda a: np.roll(a, 1, 0)),
    "factors of other channels": ("grads/1.factors/weight", lambda a: np.roll(a, 1, -1)),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_caught_where_it_is(fixture: Path, what: str, tmp_path: Path) -> None:
    assert_caught(fixture, tmp_path / "result.h5", *MISTAKES[what])
