# SPDX-License-Identifier: MIT
"""ReLU together with the convolution before it: the same bits, without the convolution's own output."""

from __future__ import annotations

import numpy as np
import pytest

import bridge
from bridge.common.errors import EngineError
from bridge.exchange.model import Conv2d, Model, Relu

#: ReLU first, twice in a row and last; a convolution without bias, and one without ReLU
MODEL = Model((Relu("first"), Conv2d("a", 3, 5, (3, 3), padding=(1, 1)), Relu("b"), Relu("c"),
               Conv2d("d", 5, 4, (2, 3), bias=False), Conv2d("e", 4, 4, (1, 1)), Relu("f")))


def networks(dtype: str) -> tuple[bridge.Network, bridge.Network]:
    """Without and with fusion, the same weights."""
    rng = np.random.default_rng(5)
    plain, fused = bridge.Network(MODEL, dtype), bridge.Network(MODEL, dtype, keep_activations="after_relu")
    for name, values in plain.parameters.items():
        values[...] = rng.normal(size=values.shape) / 3
        fused.parameters[name][...] = values
    return plain, fused


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_three_steps_give_the_same_bits(dtype: str) -> None:
    rng = np.random.default_rng(6)
    plain, fused = networks(dtype)
    for step in range(3):
        x = rng.normal(size=(2, 3, 7, 9)).astype(dtype)
        target = rng.normal(size=(2, 4, 6, 7)).astype(dtype)
        losses = [net.step(x, target, lr=0.1, momentum=0.9, weight_decay=0.01) for net in (plain, fused)]
        assert losses[0] == losses[1]
        for name, values in plain.parameters.items():
            assert np.array_equal(values, fused.parameters[name]), (step, name)
            assert np.array_equal(plain.gradients[name], fused.gradients[name]), (step, name)
        for layer in ("first", "b", "c", "d", "f"):
            assert np.array_equal(plain.output(layer), fused.output(layer)), (step, layer)
        for layer in ("input", "first", "a", "b", "c", "d", "e"):
            assert np.array_equal(plain.output_gradient(layer), fused.output_gradient(layer)), (step, layer)
    assert any(np.any(plain.gradients[f"{layer}.bias"]) for layer in "ae")


def test_a_fused_convolution_has_no_output_of_its_own() -> None:
    _, fused = networks("float32")
    fused.forward(np.ones((1, 3, 7, 9), np.float32))
    for layer in ("a", "e"):
        with pytest.raises(EngineError, match="keep_activations"):
            fused.output(layer)


@pytest.mark.parametrize("device", ["cpu", "naive"])
@pytest.mark.parametrize("bias", [True, False])
def test_conv2d_with_relu(device: str, bias: bool) -> None:
    rng = np.random.default_rng(7)
    x, w = rng.normal(size=(2, 3, 6, 5)).astype("f4"), rng.normal(size=(4, 3, 3, 2)).astype("f4")
    b = rng.normal(size=4).astype("f4") if bias else None
    plain = bridge.conv2d(x, w, b, device=device)
    assert (plain < 0).any()
    assert np.array_equal(bridge.conv2d(x, w, b, relu=True, device=device), np.maximum(plain, 0))
