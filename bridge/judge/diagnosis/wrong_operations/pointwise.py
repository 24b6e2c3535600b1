# SPDX-License-Identifier: MIT
"""Activations that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, backward_only, changed
from bridge.operations.operation import Gradients, Number
from bridge.operations.pointwise import Dropout, LeakyRelu, Sigmoid, Tanh

#: What is kept of an array, by the mask among the parameters
Dropped = Callable[[Number, Parameters], Number]


def dropout(node: Dropout) -> Wrong:
    """Yield other factors, and masks that are turned round or left out; of both passes, or of one."""

    def kept(scale: float, inverted: bool = False) -> Dropped:
        def formula(x: Number, w: Parameters) -> Number:
            keeps = w["mask"] > 0.5
            return keeps.choose(0.0, x * scale) if inverted else keeps.choose(x * scale, 0.0)
        return formula

    p = node.p
    ways: list[tuple[str, Dropped]] = [
        ("not scaled by 1/(1 - p)", kept(1.0)), ("scaled by 1/p", kept(1 / p if p else 1.0)),
        ("scaled by 1 - p", kept(1 - p)), ("scaled twice", kept(1 / (1 - p) ** 2)),
        ("dropped where the mask is 1", kept(1 / (1 - p), inverted=True)), ("without the mask", lambda x, w: x),
        ("without the mask, and scaled", lambda x, w: x * (1 / (1 - p)))]
    for said, way in ways:
        def forward(xs: Numbers, w: Parameters, way: Dropped = way) -> Number:
            return way(xs[0], w)

        def backward(dy: Number, xs: Numbers, w: Parameters, way: Dropped = way) -> Gradients:
            return [way(dy, w)], {}

        yield "activation", said, changed(node, forward=forward, backward=backward)


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
    yield from _of_other_argument(node, {"2x": 2.0, "x/2": 0.5, "-x": -1.0})


def tanh(node: Tanh) -> Wrong:
    """Yield other derivatives."""
    yield "activation", "the derivative is missing", backward_only(node, lambda dy, y: dy)
    yield "activation", "1 - y, without the square", backward_only(node, lambda dy, y: dy * (1.0 - y))
    yield "activation", "y*(1 - y), the derivative of the sigmoid", backward_only(
        node, lambda dy, y: dy * (y * (1.0 - y)))
    yield "activation", "the derivative at y in place of z", backward_only(
        node, lambda dy, y: dy * (1.0 - y.tanh() * y.tanh()))
    yield "activation", "the sigmoid", changed(node, forward=lambda xs, w: xs[0].sigmoid())
    yield from _of_other_argument(node, {"x/2, as 2*sigmoid(x) - 1 is": 0.5, "2x": 2.0, "-x": -1.0})


def _of_other_argument(node: Sigmoid | Tanh, arguments: dict[str, float]) -> Wrong:
    """The function of x times a number, and its derivative."""
    for said, times in arguments.items():
        def forward(xs: Numbers, w: Parameters, times: float = times) -> Number:
            return node.forward([xs[0] * times], w)

        def backward(dy: Number, xs: Numbers, w: Parameters, times: float = times) -> Gradients:
            return [node.backward(dy, [xs[0] * times], w)[0][0] * times], {}

        yield "activation", f"{node.kind} of {said}", changed(node, forward=forward, backward=backward)
