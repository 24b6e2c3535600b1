# SPDX-License-Identifier: MIT
"""Sums, means and largest numbers that are wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.operation import Gradients, Number, Operation
from bridge.operations.pooling import GlobalAvgPool2d
from bridge.operations.reductions import Amax, Amin, Extreme, Max, Mean, Min, Reduction, Sum


def total(node: Sum) -> Wrong:
    """Yield other numbers to divide by, and other dimensions."""
    yield from _of_others(node)
    mean = isinstance(node, Mean)
    yield "count", "the sum, not the mean" if mean else "the mean, not the sum", (Sum if mean else Mean)(
        node.name, node.dim, node.keepdim, inputs=node.inputs)
    if not mean:
        return
    counts: dict[str, Callable[[tuple[int, ...]], float]] = {
        "one less than there are": lambda shape: max(node.count(shape) - 1, 1),
        "all elements of the input": lambda shape: Mean("", tuple(range(len(shape)))).count(shape),
        "the elements of the output": lambda shape: Mean("", tuple(range(len(shape)))).count(shape) / node.count(shape),
        "the extent of the first of its dimensions": lambda shape: shape[node.axes(len(shape))[0]],
        "the extent of the last of its dimensions": lambda shape: shape[node.axes(len(shape))[-1]]}
    summed = Sum(node.name, node.dim, node.keepdim, inputs=node.inputs)
    for said, count in counts.items():
        def forward(xs: Numbers, w: Parameters, count: Callable[..., float] = count) -> Number:
            return summed.forward(xs, w) / count(xs[0].shape)

        def backward(dy: Number, xs: Numbers, w: Parameters, count: Callable[..., float] = count) -> Gradients:
            return summed.backward(dy / count(xs[0].shape), xs, w)

        yield "count", f"divided by {said}", changed(node, forward=forward, backward=backward)


def of_channels(node: GlobalAvgPool2d) -> Wrong:
    """Yield those of the mean that it is, and the largest number."""
    yield from total(Mean(node.name, (2, 3), True, inputs=node.inputs))
    yield "pooling", "the largest number of each channel", Amax(node.name, (2, 3), True, inputs=node.inputs)


def extreme(node: Extreme) -> Wrong:
    """Yield other numbers, and gradients that go elsewhere."""
    yield from _of_others(node)
    others: dict[str, type[Extreme]] = {"amax": Amin, "amin": Amax, "max": Min, "min": Max}
    said = "the smallest" if node.sign > 0 else "the largest"
    yield "pooling", f"{said} number", others[node.kind](node.name, node.dim, node.keepdim, inputs=node.inputs)
    yield "pooling", "the mean in its place", Mean(node.name, node.dim, node.keepdim, inputs=node.inputs)

    def all_of_it(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        x = node._signed(xs[0])
        axes = node.axes(len(x.shape))
        whole = x.shares_of_max(axes).moved(lambda a: (a > 0) * 1.0)
        return [dy.reshape(node.kept(x.shape)) * whole], {}

    def even(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        return Extreme.backward(node, dy, xs, w)

    def one(last: bool) -> Callable[..., Gradients]:
        def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
            x = node._signed(xs[0])
            axes = node.axes(len(x.shape))
            order = (*(i for i in range(len(x.shape)) if i not in axes), *axes)
            back = tuple(order.index(i) for i in range(len(order)))
            turned = x.transpose(order)
            rows = turned.reshape((-1, node.count(x.shape)))
            step = slice(None, None, -1) if last else slice(None)
            first = Max("", (1,)).backward(dy.reshape((-1,)), [rows[:, step]], {})[0][0][:, step]
            return [first.reshape(turned.shape).transpose(back)], {}

        return backward

    def everywhere(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        return [dy.reshape(node.kept(xs[0].shape)).broadcast(xs[0].shape)], {}

    ways: list[tuple[str, Callable[..., Gradients]]] = [
        ("whole to every element", everywhere),
        ("whole to all that are equal to the largest", all_of_it), ("to the last of equal ones", one(True))]
    ways.append(("to all equal ones in equal parts", even) if isinstance(node, Max) else
                ("to the first of equal ones", one(False)))
    for words, way in ways:
        yield "pooling", f"the gradient goes {words}", changed(node, backward=way)


def _of_others(node: Reduction) -> Wrong:
    """The same over other dimensions, where the output has the right shape."""
    for rank in (2, 3, 4):
        for axes in itertools.chain.from_iterable(itertools.combinations(range(rank), n) for n in range(1, rank)):
            if isinstance(node, Max) and len(axes) > 1:
                continue
            yield "count", f"over the dimensions {', '.join(map(str, axes))} of {rank}", _over(node, axes, rank)


def _over(node: Reduction, axes: tuple[int, ...], rank: int) -> Operation:
    other = replace(node, dim=axes)

    def of(x: Number) -> Reduction:
        shape = x.shape
        fits = len(shape) == rank and axes != node.axes(rank) and _squeezed(other.kept(shape)) == _squeezed(
            node.kept(shape))
        return other if fits else node

    def forward(xs: Numbers, w: Parameters) -> Number:
        return of(xs[0]).forward(xs, w).reshape(node.output_shape(xs[0].shape))

    def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
        way = of(xs[0])
        return way.backward(dy.reshape(way.output_shape(xs[0].shape)), xs, w)

    return changed(node, forward=forward, backward=backward)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n > 1)
