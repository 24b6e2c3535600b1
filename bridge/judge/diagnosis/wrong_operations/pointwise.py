# SPDX-License-Identifier: MIT
"""Activations that are wrong."""

from __future__ import annotations

from dataclasses import replace

from bridge.judge.diagnosis.wrong_operations.change import Wrong, backward_only, changed
from bridge.operations.pointwise import LeakyRelu, Sigmoid, Tanh


def leaky_relu(node: LeakyRelu) -> Wrong:
    """Yield other slopes."""
    slope = node.negative_slope
    yield "leaky", "the slope on the positive side", changed(
        node, forward=lambda xs, w: (xs[0] > 0).choose(xs[0] * slope, xs[0]),
        backward=lambda dy, xs, w: ([(xs[0] > 0).choose(dy * slope, dy)], {}))
    inverse = 1 / slope if slope else 0.0
    for other, said in ((0.0, "a ReLU"), (1.0, "no activation"), (0.01, "slope 0.01, the default"),
                        (inverse, f"slope {inverse:.4g}, its inverse")):
        if other != slope:
            yield "leaky", said, replace(node, negative_slope=other)


def sigmoid(node: Sigmoid) -> Wrong:
    """Yield other derivatives."""
    yield "activation", "the derivative is missing", backward_only(node, lambda dy, y: dy)
    yield "activation", "the factor 1 - y is missing", backward_only(node, lambda dy, y: dy * y)
    yield "activation", "1 - y*y, the derivative of tanh", backward_only(node, lambda dy, y: dy * (1.0 - y * y))
    yield "activation", "the derivative at y in place of z", backward_only(
        node, lambda dy, y: dy * (y.sigmoid() * (1.0 - y.sigmoid())))
    yield "activation", "tanh", changed(node, forward=lambda xs, w: xs[0].tanh())


def tanh(node: Tanh) -> Wrong:
    """Yield other derivatives."""
    yield "activation", "the derivative is missing", backward_only(node, lambda dy, y: dy)
    yield "activation", "1 - y, without the square", backward_only(node, lambda dy, y: dy * (1.0 - y))
    yield "activation", "y*(1 - y), the derivative of the sigmoid", backward_only(
        node, lambda dy, y: dy * (y * (1.0 - y)))
    yield "activation", "the derivative at y in place of z", backward_only(
        node, lambda dy, y: dy * (1.0 - y.tanh() * y.tanh()))
    yield "activation", "the sigmoid", changed(node, forward=lambda xs, w: xs[0].sigmoid())
