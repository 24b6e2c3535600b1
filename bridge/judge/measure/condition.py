# SPDX-License-Identifier: MIT
"""How many roundings go into each element of a tensor, and what follows from that: condition and false alarms.

Source: N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41 (2019) A2815, theorem 3.1: where roundings are independent
with mean zero, a sum of n products is outside lambda*sqrt(n)*u with a probability of at most 2n*exp(-lambda**2/2), up
to terms in u. M. P. Connolly, N. J. Higham and T. Mary, SIAM J. Sci. Comput. 43 (2021) A566, need mean independence.
"""

from __future__ import annotations

import math

import numpy as np

from bridge.exchange.model import Conv2d, Model, Shape
from bridge.judge.measure.file_pair import tensor_shapes
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.oracle import convolution
from bridge.judge.oracle.error_model import rounding_factor, total_roundoff

Array = np.ndarray

#: Up to so many roundings the bound is deterministic
DETERMINISTIC = 81
#: Factor of sqrt(n)*u in the bound of longer sums
LAMBDA = 9.0
#: A difference, two products and a rounded scale
ROUNDINGS_OF_DY = 4


def roundings(model: Model, batch_shape: Shape, name: str) -> Array | None:
    """Return the number of roundings in each element of a tensor: of its last two axes, or one number for all.

    A ReLU only copies or drops numbers: its elements have those of what it copies. None where the tensor is no such sum
    (first weights, updates, a copy of the network's input), and in a model that is no chain.

    >>> chain = Model((Conv2d("a", 2, 3, (3, 3), padding=(1, 1)),))
    >>> roundings(chain, (1, 2, 3, 3), "forward/a")
    array([[ 9, 13,  9],
           [13, 19, 13],
           [ 9, 13,  9]])
    """
    if not model.is_chain:
        return None
    kind, _, rest = name.partition("/")
    if kind == "forward":
        return _forward(model, batch_shape, rest)
    if kind == "loss":
        return np.array(math.prod(model.output_shapes(batch_shape)[-1]) + 3)
    if kind != "grads":
        return None
    layer, _, what = rest.partition("/")
    if what in ("weight", "bias"):
        return _parameter(model, batch_shape, layer, what)
    return _data(model, batch_shape, 0 if rest == "input" else _index(model, layer) + 1)


def _index(model: Model, layer: str) -> int:
    return [one.name for one in model.layers].index(layer)


def _sizes(model: Model, batch_shape: Shape, i: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(height, width) before and after layer i."""
    shapes = [batch_shape, *model.output_shapes(batch_shape)]
    return (shapes[i][2], shapes[i][3]), (shapes[i + 1][2], shapes[i + 1][3])


def _forward(model: Model, batch_shape: Shape, name: str) -> Array | None:
    for i in range(_index(model, name), -1, -1):
        layer = model.layers[i]
        if isinstance(layer, Conv2d):
            return convolution.products_forward(layer, *_sizes(model, batch_shape, i)) + layer.bias
    return None


def _parameter(model: Model, batch_shape: Shape, name: str, what: str) -> Array:
    i = _index(model, name)
    layer, (size_in, size_out) = model.layers[i], _sizes(model, batch_shape, i)
    assert isinstance(layer, Conv2d)
    if what == "bias":
        return np.array(batch_shape[0] * math.prod(size_out))
    return batch_shape[0] * convolution.products_filter(layer, size_in, size_out)


def _data(model: Model, batch_shape: Shape, first: int) -> Array:
    """Of the gradient of what layer `first` takes; a mask copies the gradient of the layer after it."""
    for i in range(first, len(model.layers)):
        layer = model.layers[i]
        if isinstance(layer, Conv2d):
            return convolution.products_data(layer, *_sizes(model, batch_shape, i))
    return np.array(ROUNDINGS_OF_DY)


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
    0 where no sum has more than 81 roundings: there the bound is a theorem. In a model that is no chain every element
    counts as a sum over the largest tensor of the step, which no sum is longer than.
    """
    steps = len({judged.step for judged in comparison.computed})
    shapes = tensor_shapes(comparison.model, comparison.batch_shape)
    terms = 0.0
    if not comparison.model.is_chain:
        sizes = [math.prod(shape) for shape in shapes.values()]
        terms = float(max(sizes)) * sum(sizes)
    for name, shape in shapes.items():
        n = roundings(comparison.model, comparison.batch_shape, name)
        if n is not None and not _copied(comparison.model, name):
            terms += float(n[n > DETERMINISTIC].sum()) * math.prod(shape) / n.size
    return min(1.0, 2 * math.exp(-(LAMBDA**2) / 2) * terms * steps)


def _copied(model: Model, name: str) -> bool:
    """A ReLU made it: nothing is rounded anew."""
    kind, _, rest = name.partition("/")
    layer, _, what = rest.partition("/")
    if kind == "forward":
        return not isinstance(model.layers[_index(model, layer)], Conv2d)
    if kind != "grads" or what in ("weight", "bias"):
        return False
    following = 0 if rest == "input" else _index(model, layer) + 1
    return following < len(model.layers) and not isinstance(model.layers[following], Conv2d)
