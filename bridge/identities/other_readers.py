# SPDX-License-Identifier: MIT
"""What others than one layer send back to the tensor that it takes, from the candidate's own tensors.

Of the gradient of such a tensor the rest is what that layer made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from bridge.exchange.model import Operation
from bridge.judge.measure.file_pair import FilePair, Parameters
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.choices import Sent, sent
from bridge.judge.oracle.error_model import Arithmetic
from bridge.operations.graph import INPUT

Array = np.ndarray


@dataclass
class OtherReaders:
    """Of one layer in one step.

    Attributes
    ----------
    pair, step : whose step it is
    layer : which layer is left out
    weights : before the step
    """

    pair: FilePair
    step: int
    layer: Operation
    weights: Parameters

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the others."""
        return tuple(dict.fromkeys(node.name for node, _ in self._readers()))

    def _readers(self) -> Iterator[tuple[Operation, int]]:
        """The others, and the positions at which they take the tensor."""
        for node in self.pair.model.graph.nodes:
            for position, source in enumerate(node.inputs):
                if source == self.layer.inputs[0] and node.name != self.layer.name:
                    yield node, position

    def sent(self) -> Sent | None:
        """Return what they send back together; None where the file lacks something that it follows from.

        Of equal numbers of which one is chosen it does not matter which: all are multiplied by the same.
        """
        parts = [self._sent(node, position) for node, position in self._readers()]
        known = [one for one in parts if one is not None]
        if len(known) < len(parts):
            return None
        value, absolute, error = (reduce(add, numbers) for numbers in (
            [one.value for one in known], [one.absolute for one in known], [one.error for one in known]))
        return Sent(value, absolute, error)

    def _sent(self, node: Operation, position: int) -> Sent | None:
        upstream = f"grads/{node.name}/output"
        names = [upstream, *(f"forward/{name}" for name in node.inputs if name != INPUT)]
        known = self.weights | self.pair.state(self.step) | self.pair.masks(self.step)
        wanted = (*node.parameter_shapes(), *node.state_shapes(), *("mask",)[: node.has_mask])
        if not all(self.pair.candidate.has(f"steps/{self.step}/{name}") for name in names) or not all(
                f"{node.name}/{name}" in known for name in wanted):
            return None
        inputs = [self._number(self.pair.batch(self.step, "input") if name == INPUT else self._own(
            f"forward/{name}")) for name in node.inputs]
        parameters = {name: self._number(known[f"{node.name}/{name}"]) for name in wanted}
        dy = self._number(self._own(upstream))
        return sent(node, node.backward(dy, inputs, parameters)[0][position], dy, inputs)

    def _own(self, name: str) -> Array:
        return self.pair.candidate.read(f"steps/{self.step}/{name}", self.pair.shapes[name])

    def _number(self, array: Array) -> Bounded:
        return Bounded(array, 0.0, Arithmetic(self.pair.u))
