# SPDX-License-Identifier: MIT
"""A `bridge.Network` as the functions that `gradcheck` takes."""

from __future__ import annotations

import numpy as np

from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.network.network import Network
from bridge.exchange.model import Relu
from bridge.operations.graph import INPUT

Array = np.ndarray


class NetworkFunctions:
    """Forward, backward and ReLU inputs of a network as functions of numpy arrays (input, parameter, ...).

    Parameters
    ----------
    network : its parameters are overwritten
    target : array of the output's shape: `forward` is the loss, a number. None: `forward` is the output; the network
        must then sum its loss, for `backward` takes the target at which the loss has the wanted upstream gradient.

    Attributes
    ----------
    names : "input" and the names of the parameters, in the order of the arguments

    Examples
    --------
    >>> from bridge.gradcheck import gradcheck
    >>> from bridge.exchange.model import Conv2d, Model
    >>> net = Network(Model((Conv2d("a", 1, 1, (1, 1)), Relu("r")), mean=False), "float64")
    >>> net.parameters["a.weight"][...] = 2
    >>> f = NetworkFunctions(net)
    >>> x = np.array([-3.0, -1.0, 1.0, 2.0]).reshape(1, 1, 2, 2)
    >>> gradcheck(f.forward, f.backward, f.inputs(x), names=f.names, kinks=f.kinks).verdict.label
    'right'
    """

    def __init__(self, network: Network, target: Array | None = None) -> None:
        self._network, self._target = network, target
        self._given: tuple[Array, ...] = ()
        self.names = ["input", *network.parameters]

    def inputs(self, x: Array) -> list[Array]:
        """Return the arguments that stand for the network as it is: `x` and copies of the parameters."""
        return [x, *(to_host(array).copy() for array in self._network.parameters.values())]

    def forward(self, *inputs: Array) -> Array | float:
        """Return the loss, or the output (n, k, p, q)."""
        output = self._run(inputs)
        return output if self._target is None else self._loss(self._target)

    def backward(self, dy: Array, *inputs: Array) -> tuple[Array, ...]:
        """Return the gradients of sum(dy * forward) with respect to the input and each parameter."""
        output = self._run(inputs)
        # The gradient of sum((output - target)**2) is 2*(output - target)
        self._loss(output - dy / 2 if self._target is None else self._target)
        found = [to_host(array) for array in (self._network.backward(), *self._network.gradients.values())]
        factor = 1.0 if self._target is None else float(dy)
        return tuple((factor * g).astype(g.dtype) for g in found)

    def kinks(self, *inputs: Array) -> Array:
        """Return the inputs of all ReLUs, one after the other."""
        # gradcheck asks for them right after the forward pass
        if not (len(self._given) == len(inputs) and all(a is b for a, b in zip(self._given, inputs, strict=True))):
            self._run(inputs)
        found = [inputs[0] if name == INPUT else to_host(self._network.output(name))
                 for layer in self._network.model.graph.nodes if isinstance(layer, Relu) for name in layer.inputs]
        return np.concatenate([z.ravel() for z in found]) if found else np.empty(0)

    def _run(self, inputs: tuple[Array, ...]) -> Array:
        for array, value in zip(self._network.parameters.values(), inputs[1:], strict=True):
            array[...] = value
        self._given = inputs
        return to_host(self._network.forward(to_device(inputs[0], self._network.device)))

    def _loss(self, target: Array) -> float:
        return self._network.loss(to_device(target, self._network.device))
