# SPDX-License-Identifier: MIT
"""Attention with other masks and sums, and products of complex numbers with other parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.operation import Gradients, Number, Operation
from bridge.operations.products import ComplexLinear
from bridge.operations.softmax import Attention

Array = np.ndarray


def attention(node: Attention) -> Wrong:
    """Yield other masks, sums over the queries, and the derivative of each weight by itself."""
    if node.is_causal:
        yield "index", "the mask lets one number more through: each row sees the one behind its own", changed(
            node, seen=lambda length: np.tri(length, k=1, dtype=bool))
        yield "index", "the mask is transposed: each row sees its own number and those behind it", changed(
            node, seen=lambda length: ~np.tri(length, k=-1, dtype=bool))
    yield "summed_axes", "the softmax is along the queries, not along the keys", changed(node, along=lambda: -2)
    yield "activation", "the derivative of the softmax is y * (1 - y), without the other weights", changed(
        node, of_scores=lambda weights, slopes, dy, y: weights * (1.0 - weights) * slopes)


def complex_linear(node: ComplexLinear) -> Wrong:
    """Yield conjugates, and parts that are exchanged or left out."""
    for name in ("weight", "input"):
        yield "factor", f"the conjugate of the {name}", _of_parts(node, name, np.array([1.0, -1.0]))
        yield "term", f"the {name} without its imaginary part", _of_parts(node, name, np.array([1.0, 0.0]))
        yield "in_out_swapped", f"real and imaginary parts of the {name} exchanged", _turned(node, name)


def _of_parts(node: ComplexLinear, name: str, factors: Array) -> Operation:
    """With real and imaginary parts multiplied."""
    return _of(node, name, lambda one: one * one.exact(factors))


def _turned(node: ComplexLinear, name: str) -> Operation:
    return _of(node, name, lambda one: one.moved(lambda a: a[..., ::-1]))


def _of(node: ComplexLinear, name: str, change: Callable[[Number], Number]) -> Operation:
    """With a weight, or an input, that is changed, and so is its gradient: the change is its own adjoint."""
    def given(xs: Numbers, w: Parameters) -> tuple[Numbers, Parameters]:
        return ([change(xs[0])], w) if name == "input" else (xs, {**w, "weight": change(w["weight"])})

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        (dx,), found = node.backward(dy, *given(xs, w))
        return ([change(dx)], found) if name == "input" else ([dx], {"weight": change(found["weight"])})

    return changed(node, forward=lambda xs, w: node.forward(*given(xs, w)), backward=backward)
