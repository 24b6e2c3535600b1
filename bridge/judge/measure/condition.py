# SPDX-License-Identifier: MIT
"""How many roundings go into each element of a tensor, and what follows from that: condition and false alarms.

Source: N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41 (2019) A2815, theorem 3.1: where roundings are independent
with mean zero, a sum of n products is outside lambda*sqrt(n)*u with a probability of at most 2n*exp(-lambda**2/2), up
to terms in u. M. P. Connolly, N. J. Higham and T. Mary, SIAM J. Sci. Comput. 43 (2021) A566, need mean independence.
"""

from __future__ import annotations

import math

import numpy as np

from bridge.exchange.model import Conv2d, Model, Operation, Relu, Shape
from bridge.judge.measure.file_pair import tensor_shapes
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.oracle import convolution
from bridge.judge.oracle.error_model import rounding_factor, total_roundoff
from bridge.operations.graph import INPUT
from bridge.operations.losses import MeanSquaredError

Array = np.ndarray

#: Up to so many roundings the bound is deterministic
DETERMINISTIC = 81
#: Factor of sqrt(n)*u in the bound of longer sums
LAMBDA = 9.0
#: A difference, two products and a rounded scale
ROUNDINGS_OF_DY = 4


def roundings(model: Model, batch_shape: Shape, name: str) -> Array | None:
    """Return the number of roundings in each element of a tensor: of its last two axes, or one number for all.

    A ReLU only copies or drops numbers: its elements have those of what it copies. None where they are not counted:
    what is no sum of a convolution, and the gradient of what several operations take.

    >>> chain = Model((Conv2d("a", 2, 3, (3, 3), padding=(1, 1)),))
    >>> roundings(chain, (1, 2, 3, 3), "forward/a")
    array([[ 9, 13,  9],
           [13, 19, 13],
           [ 9, 13,  9]])
    """
    return _Counter(model, batch_shape).of(name)


class _Counter:
    """Counts the roundings of a step of a model."""

    def __init__(self, model: Model, batch_shape: Shape) -> None:
        self._model, self._nodes = model, {node.name: node for node in model.graph.nodes}
        names = [layer.name for layer in model.layers]
        self._shapes = {INPUT: batch_shape} | dict(zip(names, model.output_shapes(batch_shape), strict=True))

    def of(self, name: str) -> Array | None:
        """Return those of a tensor, see `roundings`."""
        kind, _, rest = name.partition("/")
        layer, _, what = rest.partition("/")
        if kind == "forward":
            return self._forward(rest)
        if kind == "loss":
            of_squares = isinstance(self._model.criterion, MeanSquaredError)
            return np.array(math.prod(self._shapes[self._model.layers[-1].name]) + 3) if of_squares else None
        if kind != "grads":
            return None
        return self._parameter(layer, what) if what not in ("", "output") else self._gradient(layer)

    def copies(self, name: str) -> bool:
        """Return whether a ReLU makes it: nothing is rounded anew."""
        kind, _, rest = name.partition("/")
        if kind == "forward":
            return isinstance(self._nodes[rest], Relu)
        layer, _, what = rest.partition("/")
        takers = self._takers(layer) if kind == "grads" and what in ("", "output") else []
        return len(takers) == 1 and isinstance(takers[0], Relu)

    def _takers(self, name: str) -> list[Operation]:
        return [node for node in self._nodes.values() if name in node.inputs]

    def _sizes(self, layer: Conv2d) -> tuple[tuple[int, int], tuple[int, int]]:
        """(height, width) of what a convolution takes and makes."""
        before, after = self._shapes[layer.inputs[0]], self._shapes[layer.name]
        return (before[2], before[3]), (after[2], after[3])

    def _forward(self, name: str) -> Array | None:
        node = self._nodes.get(name)
        if isinstance(node, Relu):
            return self._forward(node.inputs[0])
        return convolution.products_forward(node, *self._sizes(node)) + node.bias if isinstance(node, Conv2d) else None

    def _parameter(self, name: str, what: str) -> Array | None:
        node, images = self._nodes[name], self._shapes[INPUT][0]
        if not isinstance(node, Conv2d):
            return None
        size_in, size_out = self._sizes(node)
        of_image = np.array(math.prod(size_out)) if what == "bias" else convolution.products_filter(
            node, size_in, size_out)
        return images * of_image

    def _gradient(self, name: str) -> Array | None:
        """A mask copies the gradient of what it takes."""
        takers = self._takers(name)
        if not takers and isinstance(self._model.criterion, MeanSquaredError):
            return np.array(ROUNDINGS_OF_DY)
        if len(takers) == 1 and isinstance(takers[0], Relu):
            return self._gradient(takers[0].name)
        if len(takers) == 1 and isinstance(takers[0], Conv2d):
            return convolution.products_data(takers[0], *self._sizes(takers[0]))
        return None


def kappa(comparison: Comparison, judged: Judged) -> float | None:
    """Return the condition of the sum at the worst element: how many times larger than |value| the sum of absolute
    values is.

    It is E / (s(n)*|value|): c / |value|, where the inputs are known; else what errors of the inputs may cause is
    counted, too. None where nothing is summed or the value is 0.
    """
    s, n = judged.statistic, roundings(comparison.model, comparison.batch_shape, judged.name)
    if n is None or len(s.at) < n.ndim or not (math.isfinite(s.bound) and s.bound > 0) or s.expected == 0:
        return None
    here = float(n[s.at[-n.ndim :]]) if n.ndim else float(n)
    terms = float(rounding_factor(here, total_roundoff(comparison.precision))) * abs(s.expected)
    # The smallest numbers times a roundoff are 0
    return s.bound / terms if terms > 0 else None


def false_alarm(comparison: Comparison) -> float:
    """Return the probability that rounding alone takes any element of right code out of its bound, over all judged
    steps.

    At most: every sum of a step is counted, also of tensors that are not in the file, because their errors propagate.
    0 where no sum has more than 81 roundings: there the bound is a theorem. Where roundings are not counted, every
    element counts as a sum over the largest tensor of the step, which no sum is longer than.
    """
    steps = len({judged.step for judged in comparison.computed})
    shapes = tensor_shapes(comparison.model, comparison.batch_shape)
    counter, terms = _Counter(comparison.model, comparison.batch_shape), 0.0
    longest = float(max(math.prod(shape) for shape in shapes.values()))
    for name, shape in shapes.items():
        if counter.copies(name):
            continue
        n = counter.of(name)
        terms += math.prod(shape) * (longest if n is None else float(n[n > DETERMINISTIC].sum()) / n.size)
    return min(1.0, 2 * math.exp(-(LAMBDA**2) / 2) * terms * steps)
