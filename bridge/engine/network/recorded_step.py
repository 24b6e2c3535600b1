# SPDX-License-Identifier: MIT
"""The tensors of one step of a network that keeps all of them, by their names in exchange files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bridge.engine.arrays.transfer import to_device
from bridge.engine.network.network import Network

#: numpy.ndarray, or on a CUDA device `bridge.DeviceArray`
Array = Any


def recorded_step(network: Network, input: np.ndarray, target: np.ndarray) -> Iterator[tuple[str, Array]]:
    """Run forward, loss and backward, and yield every tensor, one after the other; there is no update.

    Parameters
    ----------
    network : with ``keep_activations=True``; the masks of its dropouts have been given
    input, target : host arrays of the network's element type

    Yields
    ------
    name : under ``/steps/<k>``: ``forward/conv1``, ``loss``, ``grads/conv1/weight``, ...
    tensor : a new array, or a view that the next step overwrites

    Examples
    --------
    >>> from bridge.exchange.model import Conv2d, Model
    >>> net = Network(Model((Conv2d("a", 1, 1, (1, 1)),)))
    >>> x = np.ones((1, 1, 2, 2), np.float32)
    >>> [name for name, _ in recorded_step(net, x, x)]
    ['forward/a', 'loss', 'grads/input', 'grads/a/output', 'grads/a/weight', 'grads/a/bias']
    """
    network.forward(to_device(input, network.device))
    for layer in network.model.layers:
        yield f"forward/{layer.name}", network.output(layer.name)
        for name in layer.new_state_shapes():
            yield f"state/{layer.name}/{name}", network.buffers[f"{layer.name}.{name}"]
    yield "loss", np.asarray(network.loss(to_device(target, network.device)))
    yield "grads/input", network.backward()
    for layer in network.model.layers:
        yield f"grads/{layer.name}/output", network.output_gradient(layer.name)
        for name in layer.parameter_shapes():
            yield f"grads/{layer.name}/{name}", network.gradients[f"{layer.name}.{name}"]
