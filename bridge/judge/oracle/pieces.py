# SPDX-License-Identifier: MIT
"""Large operations in pieces that do not depend on each other, several at a time.

The intermediate numbers of a formula are as large as its output, or larger: the weights of an attention have n * n
numbers of each head. A piece's fit into a core's cache, and are gone before the next piece. Every piece is computed as
the whole would be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bridge.common.parallel import in_order
from bridge.common.threads import numpy_on_one_core
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.primitives import is_watched
from bridge.operations import OPERATIONS
from bridge.operations.operation import Gradients, Operation, Shape
from bridge.operations.pointwise import Pointwise
from bridge.operations.softmax import Attention

#: Numbers of a piece, and from how many on there are pieces at all
PIECE, LARGE = 1 << 16, 1 << 18
Rule = Callable[[list[Bounded]], Sequence[Bounded]]


def forward(node: Operation, inputs: Sequence[Bounded], parameters: Mapping[str, Bounded]) -> Bounded:
    """Return `node.forward` of these."""
    if not _are_apart(node, inputs, parameters):
        found: Bounded = node.forward(inputs, parameters)
        return found
    return _in_pieces(lambda given: [node.forward(given, {})], node, inputs, [inputs[-1].shape])[0]


def backward(node: Operation, dy: Bounded, inputs: Sequence[Bounded], parameters: Mapping[str, Bounded]) -> Gradients:
    """Return `node.backward` of these."""
    if not _are_apart(node, inputs, parameters):
        return node.backward(dy, inputs, parameters)
    shapes = [one.shape for one in inputs]
    return _in_pieces(lambda given: node.backward(given[0], given[1:], {})[0], node, [dy, *inputs], shapes), {}


def _are_apart(node: Operation, inputs: Sequence[Bounded], parameters: Mapping[str, Bounded]) -> bool:
    """Whether there are pieces, and it is worth their calls; who watches a formula sees it whole, and whoever alters
    an operation may mix its pieces.
    """
    if parameters or is_watched() or type(node) is not OPERATIONS.get(node.kind):
        return False
    if isinstance(node, Attention):
        return math.prod(inputs[0].shape[:-1]) * inputs[1].shape[-2] >= LARGE
    return isinstance(node, Pointwise) and inputs[0].size >= LARGE


def _in_pieces(rule: Rule, node: Operation, given: Sequence[Bounded], shapes: Sequence[Shape]) -> list[Bounded]:
    """What a rule gives of each piece, joined to arrays of these shapes."""
    kept, count = (2, 1) if isinstance(node, Attention) else (0, PIECE)
    flat = [_flat(one, one.shape, kept) for one in given]
    made = [np.empty((2, *shape)) for shape in shapes]
    into = [one.reshape(2, -1, *shape[len(shape) - kept:]) for one, shape in zip(made, shapes, strict=True)]
    terms = [1.0] * len(shapes)

    def piece(begin: int) -> None:
        taken = slice(begin, begin + count)
        for i, one in enumerate(rule([one[taken,] for one in flat])):
            into[i][0, taken], into[i][1, taken] = one.value, one.error
            terms[i] = max(terms[i], one.terms)

    with numpy_on_one_core():
        in_order(piece, range(0, flat[0].shape[0], count))
    arithmetic = given[0].arithmetic
    return [Bounded(one[0], one[1], arithmetic, n) for one, n in zip(made, terms, strict=True)]


def _flat(one: Bounded, shape: Shape, kept: int) -> Bounded:
    """With all axes but the last `kept` in one."""
    return one.reshape((-1, *shape[len(shape) - kept:]))
