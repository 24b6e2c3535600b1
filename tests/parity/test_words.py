# SPDX-License-Identifier: MIT
"""Embeddings of whole numbers: beside torch, in files, judged, and of numbers that no table has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.network.passes import OperationPasses
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.error_model import Arithmetic
from bridge.operations import Embedding, GatherRows, Operation, Reshape
from reference.export import export
from reference.settings import ExportSettings
from tests.helpers.networks.beside_torch import assert_caught, assert_right, train_beside
from tests.helpers.networks.exported_networks import Written
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


@pytest.mark.parametrize("node", [Embedding("it", 70, 35, 40), GatherRows("it", 40, inputs=("a", "b"))], ids=str)
def test_long_tables_are_summed_alike(node: Operation, device: str) -> None:
    """To the bit: each row's gradients in the order of the numbers, on every device."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 70, (3, 50)), rng.standard_normal((1 if node.arity == 1 else 3, 70, 35)).astype(np.float32)
    dy = rng.standard_normal((3, 50, 35)).astype(np.float32)
    right = np.zeros_like(w)
    for i, j in np.ndindex(x.shape):
        if x[i, j] != 40:
            right[i if node.arity == 2 else 0, x[i, j]] += dy[i, j]
    given = [x.astype(np.float32)]
    inputs, parameters = (given, {"weight": w[0]}) if node.arity == 1 else ([w, *given], {})
    passes = OperationPasses(node, device)
    table = w if node.arity == 2 else w.repeat(3, 0)
    assert np.array_equal(passes.forward(inputs, parameters), np.take_along_axis(table, x[..., None], 1))
    dx, dw = passes.backward(dy, inputs, parameters)
    found = dw["weight"][None] if node.arity == 1 else dx[0]
    assert np.array_equal(found, right)
    assert not dx[-1].any()


def test_a_row_that_the_table_has_not_is_refused() -> None:
    table = Reshape("a", (2, 3))
    for rows in (2, -2):
        for layers in ((Embedding("a", 2, 3, rows),), (table, GatherRows("b", rows, inputs=("a", "input")))):
            with pytest.raises(bridge.BridgeError, match=rf"padding_idx {rows}, expected one from 0 to 1, or -1"):
                bridge.Network(bridge.Model(layers)).forward(np.zeros((2, 6), np.float32))


def test_words_of_any_number_are_taken_where_nothing_is_of_one_number() -> None:
    """By torch.export, too, which reads parts of what it gives."""
    module = Written(lambda m, x: m.out(m.e(x))[..., 1:], e=nn.Embedding(WORDS, 4), out=nn.Linear(4, 3))
    net = bridge.Network.from_torch(module, example=(2, 5))
    x = np.arange(14).reshape(2, 7) % WORDS
    assert np.allclose(net.forward(x), module(torch.from_numpy(x)).detach().numpy(), atol=1e-6)
    with pytest.raises(bridge.BridgeError, match="read it again with an example of the new one"):
        bridge.Network.from_torch(Words(), example=(2, 5)).forward(x)


def test_a_number_that_rounding_decides_has_no_bound() -> None:
    arithmetic = Arithmetic(2.0**-24)
    x = Bounded(np.array([[1.0, 2.0]]), np.array([[0.0, 1.0]]), arithmetic)
    w, dy = (Bounded(np.ones(shape), 0.0, arithmetic) for shape in ((1, 4, 3), (1, 2, 3)))
    for node, inputs, learned in ((Embedding("it", 4, 3), [x], {"weight": w.reshape((4, 3))}),
                                  (GatherRows("it"), [w, x], {})):
        error = node.forward(inputs, learned).error
        assert not error[0, 0].any() and np.isinf(error[0, 1]).all()
        dx, dw = node.backward(dy, inputs, learned)
        assert np.isinf(dw["weight"].error if dw else dx[0].error).all()


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


def test_an_integer_that_float32_cannot_hold_is_refused() -> None:
    """It would be another row, in silence."""
    net = bridge.Network(bridge.Model((Embedding("words", 5, 3),)))
    for number in (2**24 + 1, -2**24 - 1):
        with pytest.raises(bridge.ArgumentError, match="expected at most 16777216 in a network of float32"):
            net.forward(np.array([[number]]))


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
    found = to_host(net.forward(x)).ravel()
    assert np.isnan(found).tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize(("make", "message"), [
    (lambda: nn.Sequential(nn.Embedding(4, 2, max_norm=1.0), nn.Linear(2, 1)),
     "embedding_renorm_: there is no such operation"),
    (lambda: nn.Sequential(nn.Embedding(4, 2, scale_grad_by_freq=True), nn.Linear(2, 1)),
     "scale_grad_by_freq True, supported is False")])
def test_what_is_not_supported_is_said(make: object, message: str) -> None:
    with pytest.raises(bridge.ArgumentError, match=message):
        bridge.Network.from_torch(make(), example=(2, 3))  # type: ignore[operator]
