# SPDX-License-Identifier: MIT
"""Activations that are wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, backward_only, changed
from bridge.operations import OPERATIONS
from bridge.operations.operation import Gradients, Number
from bridge.operations.pointwise import Clip, Dropout, Elu, LeakyRelu, Pointwise, Sigmoid, Silu, Softplus, Tanh

#: Of the sigmoid that GELU is near to; D. Hendrycks and K. Gimpel, https://arxiv.org/abs/1606.08415, section 2
QUICK = 1.702
#: What is kept of an array, by the mask among the parameters
Dropped = Callable[[Number, Parameters], Number]


def dropout(node: Dropout) -> Wrong:
    """Yield other factors, and masks that are turned round or left out; of both passes, or of one."""

    def kept(scale: float, inverted: bool = False) -> Dropped:
        def formula(x: Number, w: Parameters) -> Number:
            keeps = w["mask"].broadcast(x.shape) > 0.5
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
    yield "mask_other", "elements that are exactly 0 pass (>= in place of >)", changed(
        node, backward=lambda dy, xs, w: ([(-xs[0] > 0).choose(dy * slope, dy)], {}))
    yield from others(node, ["relu"])


def sigmoid(node: Sigmoid) -> Wrong:
    """Yield other derivatives."""
    yield "activation", "the factor 1 - y is missing", backward_only(node, lambda dy, y: dy * y)
    yield "activation", "1 - y*y, the derivative of tanh", backward_only(node, lambda dy, y: dy * (1.0 - y * y))
    yield from pointwise(node)


def elu(node: Elu) -> Wrong:
    """Yield another alpha, and other derivatives."""
    if node.alpha != 1:
        yield "activation", "alpha 1, the default", replace(node, alpha=1.0)
    yield "activation", "y in place of y + alpha below 0", changed(
        node, backward=lambda dy, xs, w: ([(xs[0] > 0).choose(dy, dy * node.value(xs[0]))], {}))
    yield from pointwise(node)


def silu(node: Silu) -> Wrong:
    """Yield other derivatives."""
    yield "activation", "sigmoid(z), its derivative for a constant sigmoid", changed(
        node, backward=lambda dy, xs, w: ([dy * xs[0].sigmoid()], {}))
    yield from pointwise(node)


def clip(node: Clip) -> Wrong:
    """Yield one limit alone."""
    if math.isfinite(node.max):
        yield "activation", "clipped below alone", replace(node, max=math.inf)
    if math.isfinite(node.min):
        yield "activation", "clipped above alone", replace(node, min=-math.inf)
    yield from pointwise(node)


def gelu(node: Pointwise) -> Wrong:
    """Yield the product with a sigmoid that is near it."""

    def slope(dy: Number, x: Number) -> Number:
        share = (x * QUICK).sigmoid()
        return dy * (share + x * QUICK * share * (1.0 - share))

    yield "activation", "x*sigmoid(1.702*x), which is near it", changed(
        node, forward=lambda xs, w: xs[0] * (xs[0] * QUICK).sigmoid(),
        backward=lambda dy, xs, w: ([slope(dy, xs[0])], {}))
    yield from pointwise(node)


def softplus(node: Softplus) -> Wrong:
    """Yield other settings."""
    beta = node.beta
    if beta != 1:
        yield "activation", "beta 1, the default", replace(node, beta=1.0)
        yield "activation", "not divided by beta", changed(
            node, forward=lambda xs, w: node.value(xs[0]) * beta, backward=lambda dy, xs, w: (
                [node.gradient(dy, xs[0]) * beta], {}))
    yield from pointwise(node)


def tanh(node: Tanh) -> Wrong:
    """Yield other derivatives."""
    yield "activation", "1 - y, without the square", backward_only(node, lambda dy, y: dy * (1.0 - y))
    yield "activation", "y*(1 - y), the derivative of the sigmoid", backward_only(
        node, lambda dy, y: dy * (y * (1.0 - y)))
    yield from pointwise(node, half="x/2, as 2*sigmoid(x) - 1 is")


def pointwise(node: Pointwise, half: str = "x/2") -> Wrong:
    """Yield what any function of each number may do instead: no derivative, one at another place, another function."""
    yield "activation", "no activation", changed(node, forward=lambda xs, w: xs[0])
    yield "activation", "the derivative is missing", backward_only(node, lambda dy, y: dy)
    yield "activation", "the derivative at y in place of z", backward_only(node, node.gradient)
    yield from others(node, [])
    yield from _of_other_argument(node, {half: 0.5, "2x": 2.0, "-x": -1.0})


def others(node: Pointwise, known: list[str]) -> Wrong:
    """Yield every other function, with torch's defaults, but those that are known by other names."""
    for kind, other in OPERATIONS.items():
        # Without bounds, clip is no function at all
        if issubclass(other, Pointwise) and kind not in (node.kind, "clip", *known):
            made = other(node.name, inputs=node.inputs)
            yield "activation", f"{kind} in its place", changed(node, forward=made.forward, backward=made.backward)


def _of_other_argument(node: Pointwise, arguments: dict[str, float]) -> Wrong:
    """The function of x times a number, and its derivative."""
    for said, times in arguments.items():
        def forward(xs: Numbers, w: Parameters, times: float = times) -> Number:
            return node.value(xs[0] * times)

        def backward(dy: Number, xs: Numbers, w: Parameters, times: float = times) -> Gradients:
            return [node.gradient(dy, xs[0] * times) * times], {}

        yield "activation", f"{node.kind} of {said}", changed(node, forward=forward, backward=backward)
