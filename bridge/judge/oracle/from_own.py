# SPDX-License-Identifier: MIT
"""What an operation gives from the candidate's own tensors, which are not always what it used.

A fused kernel, wider accumulators or a program that computes in float64 take a number before it is rounded for the
file: it differs from what is written by half a unit in the last place, u times its absolute value.

* A sum of products has room for that: such a program rounds its operands in the place of the sum's own roundings
  (`bridge.judge.oracle.error_model.WIDER`).
* Every other formula is evaluated with operands that are off by so much. What a sum takes may be a sum itself, whose
  terms a fused kernel adds in another order, ``(accumulator + residual) + bias``: there it is off by u times the
  largest.
* A number that is only copied is to the bit what was written, since rounding is monotone: what the written numbers
  give without a rounding stays exact. Terms that cancel in a sum are no copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bridge.judge.oracle import pieces
from bridge.judge.oracle.bounded import Bounded
from bridge.operations.arithmetic import Add, Subtract
from bridge.operations.aten.operation import Aten
from bridge.operations.graph import INPUT, Graph
from bridge.operations.normalization import LayerNorm
from bridge.operations.operation import Gradients, Operation
from bridge.operations.products import Conv2d, ConvTranspose2d, Linear, Matmul
from bridge.operations.softmax import Attention
from bridge.operations.volumes.products import Conv3d, ConvTranspose3d

Array = np.ndarray
Named = Mapping[str, Bounded]
NOTHING: Named = {}

#: Operations that add what they are given
SUMS = (Add, Subtract)
#: Operations whose bounds have room for operands that are off by half a unit in the last place
PRODUCTS = (Conv2d, ConvTranspose2d, Conv3d, ConvTranspose3d, Linear, Matmul, Aten)


def in_use(own: Bounded, term: Array | float = 0.0) -> Bounded:
    """Return a tensor as it may be in use: before it is rounded, for what the file holds.

    `term` is the absolute value of what was added to it last, where it is added to something else.

    >>> from bridge.judge.oracle.error_model import Arithmetic
    >>> in_use(Bounded(np.array([-3.0]), 0.0, Arithmetic(0.5))).error
    array([1.5])
    """
    return Bounded(own.value, own.error + own.arithmetic.u * (np.abs(own.value) + term), own.arithmetic)


def paths_of_itself(graph: Graph, node: Operation) -> dict[str, str]:
    """Return where a file has what is known of an operation that follows itself, by the names that formulas have for
    it.

    The gradient of its input is that of what it takes, if nothing else takes that.
    """
    if not node.follows_itself:
        return {}
    before, found = node.inputs[0], {"output": f"forward/{node.name}"}
    if sum(one.inputs.count(before) for one in graph.nodes) == 1:
        found["input_gradient"] = "grads/input" if before == INPUT else f"grads/{before}/output"
    return found


class FromOwn:
    """An operation of the candidate's own tensors.

    Parameters
    ----------
    node : the operation
    parameters : the candidate's by name, also its state, and a mask, which is 0 and 1
    """

    def __init__(self, node: Operation, parameters: Mapping[str, Bounded]) -> None:
        self._node, self._written = node, parameters
        #: parameters as they may be in use
        self.parameters = parameters if isinstance(node, PRODUCTS) else {
            name: one if name == "mask" else in_use(one) for name, one in parameters.items()}

    def forward(self, given: Sequence[Bounded], terms: Sequence[Array | float] = (), of_itself: Named = NOTHING
                ) -> Bounded:
        """Return the output.

        Parameters
        ----------
        terms : as `last_term` has them, of those whose outputs are given
        of_itself : what of the operation's own output and gradient is known, by the names that formulas have for it
        """
        ways = self._ways(given, terms if isinstance(self._node, SUMS) else (), of_itself)
        found = _less_exact(made := [pieces.forward(self._node, own, parameters) for own, parameters in ways])
        if isinstance(self._node, SUMS):
            # What cancels is no copy
            found.error = np.where(found.value == 0, made[-1].error, found.error)
        return found

    def last_term(self, given: Sequence[Bounded], rank: int) -> Array | float:
        """Return the absolute value of what is added last to make the output, an array of `rank` axes: a bias, or what
        a sum is given.
        """
        if isinstance(self._node, SUMS):
            return np.maximum(*(np.abs(one.value) for one in given))
        if "bias" not in self._written or isinstance(self._node, Aten) or self._node.follows_itself:
            return 0.0
        bias = np.abs(self._written["bias"].value)
        return bias if isinstance(self._node, (Linear, LayerNorm)) else bias.reshape(-1, *(1,) * (rank - 2))

    def sum_alone(self, dy: Bounded, shape: tuple[int, ...]) -> Array:
        """Return the bound of a bias gradient, of this shape, where nothing but its own sum of exact numbers rounds."""
        behind = isinstance(self._node, (Linear, LayerNorm))
        kept = range(len(dy.shape) - len(shape), len(dy.shape)) if behind else (1,)
        absolute = np.abs(dy.value).sum(tuple(i for i in range(len(dy.shape)) if i not in kept))
        return dy.arithmetic.factor(dy.size / max(1, absolute.size)) * absolute.reshape(shape)

    def new_state(self, given: Sequence[Bounded]) -> dict[str, Bounded]:
        """Return what the forward pass makes of the state."""
        found = [self._node.new_state(own, parameters) for own, parameters in self._ways(given)]
        return {name: _less_exact([one[name] for one in found]) for name in found[0]}

    def backward(self, dy: Bounded, given: Sequence[Bounded], of_itself: Named = NOTHING) -> Gradients:
        """Return the gradients with respect to inputs and parameters; `of_itself` as of `forward`."""
        found = [pieces.backward(self._node, own[0], own[1:], parameters)
                 for own, parameters in self._ways([dy, *given], of_itself=of_itself)]
        inputs, learned = zip(*found, strict=True)
        return ([_less_exact(one) for one in zip(*inputs, strict=True)],
                {name: _less_exact([one[name] for one in learned]) for name in learned[0]})

    def _ways(self, own: Sequence[Bounded], terms: Sequence[Array | float] = (), of_itself: Named = NOTHING
              ) -> Iterator[tuple[Sequence[Bounded], Named]]:
        """What is written, and where that may be another thing, what is in use."""
        if isinstance(self._node, Attention) and own[0].arithmetic.u:
            # No number of it is a copy, and nothing is as large as its weights
            yield [in_use(one) for one in own], {}
            return
        yield own, {**self._written, **of_itself}
        if not isinstance(self._node, PRODUCTS) and own[0].arithmetic.u:
            used = {name: in_use(one) for name, one in of_itself.items()}
            yield ([in_use(*pair) for pair in zip(own, terms or [0.0] * len(own), strict=True)],
                   {**self.parameters, **used})


def _less_exact(found: Sequence[Bounded]) -> Bounded:
    """What is written decides where it is copied, what is in use elsewhere."""
    exact, used = found[0], found[-1]
    if exact is used:
        return exact
    return Bounded(exact.value, np.where(exact.error > 0, used.error, 0.0), exact.arithmetic, exact.terms)
