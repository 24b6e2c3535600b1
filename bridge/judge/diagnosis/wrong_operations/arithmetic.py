# SPDX-License-Identifier: MIT
"""Sums, differences, products and quotients of two inputs that are wrong, and rectifiers that learn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bridge.judge.diagnosis.faults.convolution_faults import order_detail
from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.arithmetic import Add, BinaryOperation, Divide, Multiply, Prelu, Subtract
from bridge.operations.operation import Gradients, Number

#: Of dy and both inputs
Slopes = Callable[[Number, Number, Number], tuple[Number, Number]]
#: What each is called
WORDS: dict[type[BinaryOperation], str] = {
    Add: "the sum", Subtract: "the difference", Multiply: "the product", Divide: "the quotient"}


def arithmetic(node: BinaryOperation) -> Wrong:
    """Yield one input alone, another operation, and other gradients."""
    for i, said in enumerate(("first", "second")):
        def one(xs: Numbers, w: Parameters, i: int = i) -> Number:
            return xs[i].broadcast(np.broadcast_shapes(*(x.shape for x in xs)))

        yield "joined", f"the {said} input alone", changed(node, forward=one)
    for other, said in WORDS.items():
        if not isinstance(node, other):
            made = other(node.name, inputs=node.inputs)
            yield "joined", f"{said} of its inputs", changed(node, forward=made.forward, backward=made.backward)

    if isinstance(node, (Subtract, Divide)):
        yield "joined", order_detail("inputs", (1, 0)), changed(
            node, forward=lambda xs, w: node.value(xs[1], xs[0]), backward=lambda dy, xs, w: (
                [one.summed_to(x.shape) for one, x in zip(node.slopes(dy, xs[1], xs[0])[::-1], xs, strict=True)], {}))

    def first(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        slopes = node.slopes(dy, *xs)
        shapes = [(1,) * (len(dy.shape) - len(x.shape)) + x.shape for x in xs]
        return [slope[tuple(slice(n) for n in shape)].reshape(x.shape)
                for slope, x, shape in zip(slopes, xs, shapes, strict=True)], {}

    yield "joined", "the gradient of the first element alone, where one was broadcast", changed(node, backward=first)


def add(node: Add) -> Wrong:
    """Yield a ReLU on the wrong side of the sum, and what any may do."""
    yield from arithmetic(node)
    for i, said in enumerate(("first", "second")):
        def rectified(xs: Numbers, w: Parameters, i: int = i) -> Number:
            return (xs[i] > 0).choose(xs[i], 0.0) + xs[1 - i]

        yield "relu", f"a ReLU of the {said} input before the sum", changed(node, forward=rectified)


def subtract(node: Subtract) -> Wrong:
    """Yield dy for the second input, too, and what any may do."""
    yield from _of_slopes(node, "the gradient of the second input without its sign", lambda dy, a, b: (dy, dy))
    yield from arithmetic(node)


def multiply(node: Multiply) -> Wrong:
    """Yield gradients by the wrong factor, and what any may do."""
    for said, slopes in (
        ("its own input in place of the other as the factor of a gradient", lambda dy, a, b: (dy * a, dy * b)),
        ("the other input is missing in a gradient", lambda dy, a, b: (dy, dy)),
    ):
        yield from _of_slopes(node, said, slopes)
    yield from arithmetic(node)


def divide(node: Divide) -> Wrong:
    """Yield gradients of the divisor that are wrong, and what any may do."""
    ways: list[tuple[str, Slopes]] = [
        ("the divisor's gradient without its sign", lambda dy, a, b: (dy / b, dy * a / b / b)),
        ("the divisor is not squared in its gradient", lambda dy, a, b: (dy / b, -(dy * a / b))),
        ("the divisor's gradient without the dividend", lambda dy, a, b: (dy / b, -(dy / b / b))),
        ("the dividend's gradient is not divided", lambda dy, a, b: (dy, -(dy * a / b / b))),
    ]
    for said, slopes in ways:
        yield from _of_slopes(node, said, slopes)
    yield from arithmetic(node)


def _of_slopes(node: BinaryOperation, said: str, slopes: Slopes) -> Wrong:
    """The same with other derivatives; each gradient is judged by itself."""

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        return [one.summed_to(x.shape) for one, x in zip(slopes(dy, *xs), xs, strict=True)], {}

    yield "joined", said, changed(node, backward=backward)


def prelu(node: Prelu) -> Wrong:
    """Yield the slope on the wrong side, and gradients of it that are wrong."""

    def right(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        return node.backward(dy, xs, w)

    yield "leaky", "the slope on the positive side", changed(
        node, forward=lambda xs, w: node.forward([-xs[0]], w) * -1.0,
        backward=lambda dy, xs, w: ([node.backward(dy, [-xs[0]], w)[0][0]], right(dy, xs, w)[1]))
    yield "leaky", "a ReLU", changed(
        node, forward=lambda xs, w: (xs[0] > 0).choose(xs[0], 0.0),
        backward=lambda dy, xs, w: ([(xs[0] > 0).choose(dy, 0.0)], right(dy, xs, w)[1]))
    yield "leaky", "no activation", changed(node, forward=lambda xs, w: xs[0], backward=lambda dy, xs, w: (
        [dy], right(dy, xs, w)[1]))

    def of_weight(said: str, slope: Callable[[Number, Number], Number]) -> Wrong:
        def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
            axis = min(1, len(xs[0].shape) - 1)
            shape = tuple(node.num_parameters if i == axis else 1 for i in range(len(xs[0].shape)))
            return right(dy, xs, w)[0], {"weight": slope(dy, xs[0]).summed_to(shape).reshape((node.num_parameters,))}

        yield "activation", said, changed(node, backward=backward)

    yield from of_weight("the weight's gradient of positive elements, too", lambda dy, x: x * dy)
    yield from of_weight("the weight's gradient without the input", lambda dy, x: (x > 0).choose(0.0, dy))
    yield from of_weight("the weight's gradient of the positive elements", lambda dy, x: (x > 0).choose(x * dy, 0.0))
