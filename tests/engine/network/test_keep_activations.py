# SPDX-License-Identifier: MIT
"""Networks that keep only what training needs: the same numbers as those that keep everything."""

from __future__ import annotations

import numpy as np
import pytest

import bridge
from bridge.common.errors import EngineError
from bridge.exchange.model import Model, Relu
from tests.helpers.networks.network_pairs import (
    ALL_DEVICES,
    ALL_DTYPES,
    ALL_NETWORKS,
    NETWORKS,
    assert_same_gradients,
    batch,
    networks,
)

#: (n, 3, h, w) of three steps: the memory of a smaller batch is not that of a larger one
BATCHES = ((2, 3, 13, 19), (3, 3, 16, 11), (1, 3, 9, 37))


@ALL_NETWORKS
@ALL_DTYPES
@ALL_DEVICES
def test_steps_are_those_of_a_plain_network(network: str, dtype: str, device: str) -> None:
    model = Model(NETWORKS[network])
    plain, efficient = networks(model, dtype, device)
    for seed, shape in enumerate(BATCHES):
        x, target = batch(model, shape, dtype, seed)
        for name, values in plain.parameters.items():
            efficient.parameters[name][...] = values
        losses = [net.step(x, target, lr=2.0**-9, momentum=0.9, weight_decay=0.01) for net in (plain, efficient)]
        assert losses[0] == losses[1]
        assert_same_gradients(plain, efficient, x)
        for name, values in plain.parameters.items():
            found = efficient.parameters[name]
            assert np.allclose(values, found, rtol=0, atol=4 * np.spacing(np.abs(values).max())), name


@ALL_NETWORKS
@ALL_DEVICES
def test_forward_loss_and_backward_one_by_one(network: str, device: str) -> None:
    """Outputs are those of a fused network; nothing comes back from backward, and a second batch is as good."""
    model = Model(NETWORKS[network])
    plain, efficient = networks(model, "float64", device)
    for seed, shape in enumerate((*BATCHES, BATCHES[-1])):
        x, target = batch(model, shape, "float64", seed)
        given = x.copy(), target.copy()
        assert np.array_equal(plain.forward(x), efficient.forward(x))
        layers = [layer.name for layer, after in zip(model.layers, (*model.layers[1:], None), strict=True)
                  if isinstance(layer, Relu) or not isinstance(after, Relu)]
        assert all(np.array_equal(plain.output(name), efficient.output(name)) for name in layers)
        assert plain.loss(target) == efficient.loss(target)
        assert plain.backward() is not None and efficient.backward() is None
        assert_same_gradients(plain, efficient, x)
        assert np.array_equal(plain.output(layers[-1]), efficient.output(layers[-1]))
        assert np.array_equal(x, given[0]) and np.array_equal(target, given[1])


def test_inputs_may_be_read_only() -> None:
    """Neither input nor target is memory to work in."""
    for layers in NETWORKS.values():
        model = Model(layers)
        x, target = batch(model, BATCHES[0], "float32", 1)
        x.flags.writeable = target.flags.writeable = False
        kept = x.tobytes(), target.tobytes()
        networks(model)[1].step(x, target, lr=0.1)
        assert (x.tobytes(), target.tobytes()) == kept


@pytest.fixture
def released() -> bridge.Network:
    """A memory-efficient network after backward."""
    model = Model(NETWORKS["three layers"])
    _, efficient = networks(model)
    x, target = batch(model, BATCHES[0], "float32", 1)
    efficient.forward(x)
    efficient.loss(target)
    efficient.backward()
    return efficient


def test_what_was_released_is_refused(released: bridge.Network) -> None:
    target = batch(released.model, BATCHES[0], "float32", 1)[1]
    for layer in ("r", "s"):
        with pytest.raises(EngineError, match=f"'{layer}' was released by backward, expected 'c'"):
            released.output(layer)
    with pytest.raises(EngineError, match="'a' is computed together with its ReLU"):
        released.output("a")
    for name in ("input", "a", "c"):
        with pytest.raises(EngineError, match=r"that of .* is not kept, expected a network with keep_activations=True"):
            released.output_gradient(name)
    with pytest.raises(EngineError, match="no loss yet, call forward and loss first"):
        released.backward()
    with pytest.raises(EngineError, match="no output yet, call forward first"):
        released.loss(target)
    assert released.output("c").shape == target.shape


def test_a_refused_loss_brings_nothing_back(released: bridge.Network) -> None:
    """After it the outputs of inner layers are as gone as before."""
    for refused in (released.backward, lambda: released.loss(batch(released.model, BATCHES[0], "float32", 1)[1])):
        with pytest.raises(EngineError):
            refused()
        with pytest.raises(EngineError, match="was released by"):
            released.output("s")


def test_a_network_goes_on_after_its_release(released: bridge.Network) -> None:
    """With an update, and with the next batch."""
    before = released.parameters["b.weight"].copy()
    released.update(lr=0.1)
    assert not np.array_equal(before, released.parameters["b.weight"])
    with pytest.raises(EngineError, match="no gradients yet"):
        released.update(lr=0.1)
    x, target = batch(released.model, BATCHES[1], "float32", 2)
    released.forward(x)
    assert np.isfinite(released.output("s")).all() and released.loss(target) > 0


def test_what_is_kept_is_said(small_fixture: str) -> None:
    model = Model(NETWORKS["three layers"])
    net = bridge.Network(model, keep_activations=False)
    assert net.keep_activations is False and bridge.Network(model).keep_activations is True
    assert bridge.Network(model, keep_activations="after_relu").keep_activations == "after_relu"
    read = bridge.Network.from_file(small_fixture, keep_activations=False)
    assert read.keep_activations is False
    plain = bridge.Network.from_file(small_fixture)
    assert all(np.array_equal(values, read.parameters[name]) for name, values in plain.parameters.items())
    assert bridge.Network.from_torch(net.to_torch(), keep_activations=False).keep_activations is False


@pytest.mark.parametrize(("wrong", "error"), [(1, bridge.ArgumentTypeError), (None, bridge.ArgumentTypeError),
                                              ("", bridge.ArgumentError), ("relu", bridge.ArgumentError)])
def test_what_cannot_be_kept_is_refused(wrong: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"^keep_activations: {wrong!r}, expected True, 'after_relu' or False"):
        bridge.Network(Model(NETWORKS["three layers"]), keep_activations=wrong)  # type: ignore[arg-type]
