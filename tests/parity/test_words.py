# SPDX-License-Identifier: MIT
"""Embeddings of whole numbers: beside torch, in files, judged, and of numbers that no table has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.engine.arrays.transfer import to_device
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.networks.beside_torch import assert_caught, assert_right, train_beside
from tests.helpers.networks.word_networks import NETWORKS, WORDS, Words


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NETWORKS)
def test_three_steps_are_torchs(name: str, device: str, dtype: str) -> None:
    torch.manual_seed(0)
    make, shape, expected = NETWORKS[name]
    module = make()
    kinds = {layer.kind for layer in bridge.Network.from_torch(module, example=shape).model.layers}
    assert expected <= kinds and "aten" not in kinds
    train_beside(module, shape, device, dtype, below=WORDS)


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, rng = tmp_path_factory.mktemp("words") / "fixture.h5", np.random.default_rng(0)
    x, target = rng.integers(0, WORDS, (2, 3, 5))
    export(path, ExportSettings(model=Words, input=x, target=target, loss="cross_entropy", steps=2))
    return path


def test_it_is_right(fixture: Path, device: str, tmp_path: Path) -> None:
    assert_right(fixture, tmp_path / "result.h5", device)


@pytest.mark.parametrize(("name", "mistake"), [
    ("forward/words_1", lambda a: np.roll(a, 1, 1)), ("grads/words/weight", lambda a: a[::-1]),
    ("grads/words/weight", lambda a: 1.01 * a), ("grads/places/weight", np.zeros_like)])
def test_a_mistake_is_caught(name: str, mistake: object, fixture: Path, tmp_path: Path) -> None:
    assert_caught(fixture, tmp_path / "result.h5", name, mistake)  # type: ignore[arg-type]


def test_integers_of_any_kind_are_taken() -> None:
    """And are no others than the real numbers that they are."""
    net = bridge.Network.from_torch(nn.Sequential(nn.Embedding(300, 2), nn.Linear(2, 1)), example=(2, 3))
    x = np.array([[0, 7, 255], [1, 2, 3]])
    right = net.forward(x.astype(np.float32))
    for dtype in (np.uint8, np.int16, np.int32, np.int64):
        assert np.array_equal(net.forward(x.astype(dtype)), right)
    # The network computes in float32: other real numbers are refused as ever
    with pytest.raises(bridge.ArgumentTypeError, match="input: float64, expected float32"):
        net.forward(x.astype(np.float64))
    with pytest.raises(bridge.ArgumentTypeError, match="input: int64, expected float32"):
        bridge.Network.from_torch(nn.Sequential(nn.Linear(3, 2))).forward(x)


@pytest.mark.parametrize(("number", "said"), [(11.0, "11"), (-1.0, "-1"), (2.5, "2.5"), (3e9, "3.00000E+09")])
def test_a_number_that_no_table_has_is_an_error(number: float, said: str) -> None:
    net = bridge.Network.from_torch(NETWORKS["tied"][0](), example=(3, 5))
    x = np.zeros((3, 5), np.float32)
    x[1, 2] = number
    with pytest.raises(bridge.BridgeError, match=rf"layer words_1 \(gather_rows\): number 8 of its input is "
                       rf"{said.replace('+', '.')}, expected a whole number from 0 to 10"):
        net.forward(x)
    # And it computes on
    net.forward(np.zeros((3, 5), np.float32))


def test_on_a_device_such_a_row_is_nan(cuda: str) -> None:
    """Which nobody waits for."""
    net = bridge.Network.from_torch(nn.Sequential(nn.Embedding(4, 2), nn.Linear(2, 1)), example=(2, 3), device=cuda)
    x = to_device(np.array([[0, 1, 4], [1, 2, 3]], np.float32), cuda)
    found = bridge.engine.arrays.transfer.to_host(net.forward(x)).ravel()
    assert np.isnan(found).tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize(("make", "message"), [
    (lambda: nn.Sequential(nn.Embedding(4, 2, max_norm=1.0), nn.Linear(2, 1)),
     "embedding_renorm_: there is no such operation"),
    (lambda: nn.Sequential(nn.Embedding(4, 2, scale_grad_by_freq=True), nn.Linear(2, 1)),
     "scale_grad_by_freq True, supported is False")])
def test_what_is_not_supported_is_said(make: object, message: str) -> None:
    with pytest.raises(bridge.ArgumentError, match=message):
        bridge.Network.from_torch(make(), example=(2, 3))  # type: ignore[operator]
