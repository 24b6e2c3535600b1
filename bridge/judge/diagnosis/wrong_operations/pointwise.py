# SPDX-License-Identifier: MIT
"""Activations by a formula of their own that is near the right one, or by the derivative of another."""

from __future__ import annotations

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, backward_only, changed
from bridge.operations.arithmetic import Add
from bridge.operations.operation import Number
from bridge.operations.pointwise import Pointwise, Sigmoid, Tanh
from bridge.operations.softmax import Softmax

#: Of the sigmoid that GELU is near to; D. Hendrycks and K. Gimpel, https://arxiv.org/abs/1606.08415, section 2
QUICK = 1.702


def gelu(node: Pointwise) -> Wrong:
    """Yield the product with a sigmoid that is near it."""

    def slope(dy: Number, x: Number) -> Number:
        share = (x * QUICK).sigmoid()
        return dy * (share + x * QUICK * share * (1.0 - share))

    yield "activation", "x*sigmoid(1.702*x), which is near it", changed(
        node, forward=lambda xs, w: xs[0] * (xs[0] * QUICK).sigmoid(),
        backward=lambda dy, xs, w: ([slope(dy, xs[0])], {}))


def sigmoid(node: Sigmoid) -> Wrong:
    """Yield the derivative of tanh."""
    yield "activation", "1 - y*y, the derivative of tanh", backward_only(node, lambda dy, y: dy * (1.0 - y * y))


def tanh(node: Tanh) -> Wrong:
    """Yield the derivative of the sigmoid."""
    yield "activation", "y*(1 - y), the derivative of the sigmoid", backward_only(
        node, lambda dy, y: dy * (y * (1.0 - y)))


def softmax(node: Softmax) -> Wrong:
    """Yield the derivative of one channel by itself."""
    yield "activation", "y * (1 - y), without the other channels", backward_only(node, lambda dy, y: dy * (
        y * (1.0 - y)))


def add(node: Add) -> Wrong:
    """Yield a ReLU on the wrong side of the sum."""
    for i, said in enumerate(("first", "second")):
        def rectified(xs: Numbers, w: Parameters, i: int = i) -> Number:
            return (xs[i] > 0).choose(xs[i], 0.0) + xs[1 - i]

        yield "relu", f"a ReLU of the {said} input before the sum", changed(node, forward=rectified)
