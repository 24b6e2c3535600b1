# SPDX-License-Identifier: MIT
"""Tensors large enough to be written past the cache: where they are the mask of a gradient in the same memory, too."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.exchange.model import Layer, Model, Relu
from tests.helpers.cpu.fused_sequences import conv, sequence
from tests.helpers.networks.network_pairs import assert_same_gradients, batch, networks

#: 8 MiB in four channels of float32, in rows of whole cache lines
SHAPE = (1, 1, 512, 1024)
NETWORKS: dict[str, tuple[Layer, ...]] = {
    "in place": sequence(conv("a", 1, 4, padding=(1, 1)), conv("b", 4, 4, padding=(1, 1), groups=2)),
    "depth first": (conv("z", 1, 1, (1, 1)),
                    *sequence(conv("a", 1, 4, padding=(1, 1)), conv("b", 4, 4, padding=(1, 1)))),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_large_tensors_are_those_of_a_plain_network(name: str) -> None:
    model = Model(NETWORKS[name])
    plain, efficient = networks(model)
    assert ("gradients depth first" in efficient.plan(SHAPE)[-1]) == (name == "depth first")
    x, target = batch(model, SHAPE, "float32", 1)
    assert np.array_equal(plain.forward(x), efficient.forward(x))
    for layer in model.layers:
        if isinstance(layer, Relu):
            assert np.array_equal(plain.output(layer.name), efficient.output(layer.name))
    for net in (plain, efficient):
        net.loss(target)
        net.backward()
    assert_same_gradients(plain, efficient, x)
