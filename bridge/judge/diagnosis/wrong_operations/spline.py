# SPDX-License-Identifier: MIT
"""KAN layers with other knots, other degrees, missing parts and wrong gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bridge.judge.diagnosis.wrong_operations.change import Numbers, Parameters, Wrong, changed
from bridge.operations.operation import Gradients, Number, Operation
from bridge.operations.spline import Spline


def spline(node: Spline) -> Wrong:
    """Yield other functions of the features, other factors, and gradients that lack something."""
    yield from _other_knots(node)
    yield from _other_degrees(node)
    yield from _beyond(node)
    yield from _other_bases(node)
    yield from _gradients(node)
    yield from _factors(node)


def _other_knots(node: Spline) -> Wrong:
    for sign, said in ((-1, "lower"), (1, "higher")):
        moved = replace(node, low=node.low + sign * node.step, high=node.high + sign * node.step)
        yield "activation", f"the knots one interval {said}", moved
    for more in (1, -1):
        if node.grid + more > 0:
            # Counted from the fence posts
            longer = node.low + (node.high - node.low) * node.grid / (node.grid + more)
            count = "grid + 1" if more > 0 else "grid - 1"
            yield "activation", f"knots (high - low)/({count}) apart, not (high - low)/grid", replace(node, high=longer)
            yield "activation", f"degree {node.order - more} on {node.grid + more} intervals", replace(
                node, grid=node.grid + more, order=node.order - more)


def _other_degrees(node: Spline) -> Wrong:
    """A recursion that ends too early or too late has one B-spline more."""
    lower = replace(node, order=node.order - 1, grid=node.grid + 2, low=node.low - node.step,
                    high=node.high + node.step)
    for other in (lower, replace(node, order=node.order + 1)):
        for first, said in ((0, "last"), (1, "first")):
            yield "activation", f"degree {other.order} on these knots, without the {said} B-spline", _with(
                node, other, first)


def _with(node: Spline, other: Spline, first: int) -> Operation:
    """The same with B-splines, and their derivatives, of another layer from the first on."""

    def joined(all_of: Number) -> Number:
        return all_of[..., first : first + node.functions].concatenated([all_of[..., other.functions :]], 2)

    return changed(node, values=lambda x: joined(other.values(x)), slopes=lambda x: joined(other.slopes(x)),
                   slope_terms=lambda x: joined(other.slope_terms(x)))


def _beyond(node: Spline) -> Wrong:
    """Other splines, of features that are not between the grid's ends."""

    def inside(of: Callable[[Number], Number], x: Number) -> Number:
        found, wide = of(x), x.reshape((*x.shape, 1)).broadcast((*x.shape, node.functions))
        kept = (-wide > -node.low).choose(0.0, found[..., : node.functions])
        return (wide > node.high).choose(0.0, kept).concatenated([found[..., node.functions :]], 2)

    def at_ends(x: Number) -> Number:
        ends = node.values(x.clipped(node.low, node.high))
        return ends[..., : node.functions].concatenated([node.values(x)[..., node.functions :]], 2)

    for said, values in (("no splines of features beyond low and high", lambda x: inside(node.values, x)),
                         ("features beyond low and high moved to these", at_ends)):
        yield "activation", said, changed(node, values=values, slopes=lambda x: inside(node.slopes, x),
                                          slope_terms=lambda x: inside(node.slope_terms, x))


def _other_bases(node: Spline) -> Wrong:
    def based(base: Callable[[Number], Number], slope: Callable[[Number], Number]) -> Operation:
        def joined(all_of: Number, last: Number) -> Number:
            return all_of[..., : node.functions].concatenated([last.reshape((*last.shape, 1))], 2)

        return changed(node, values=lambda x: joined(node.values(x), base(x)),
                       slopes=lambda x: joined(node.slopes(x), slope(x)),
                       slope_terms=lambda x: joined(node.slope_terms(x), slope(x)))

    yield "activation", "no SiLU beside the splines", based(lambda x: x * 0.0, lambda x: x * 0.0)
    yield "activation", "the features themselves beside the splines, not their SiLU", based(
        lambda x: x, lambda x: x * 0.0 + 1.0)
    yield "activation", "a ReLU beside the splines, not a SiLU", based(
        lambda x: (x > 0).choose(x, 0.0), lambda x: (x > 0).choose(x * 0.0 + 1.0, 0.0))


def _gradients(node: Spline) -> Wrong:
    def with_parts(splines: float, base: float) -> Operation:
        def part(of: Number) -> Number:
            return (of[..., : node.functions] * splines).concatenated([of[..., node.functions :] * base], 2)

        other = changed(node, slopes=lambda x: part(node.slopes(x)), slope_terms=lambda x: part(node.slope_terms(x)))
        return changed(node, backward=lambda dy, xs, w: (other.backward(dy, xs, w)[0], node.backward(dy, xs, w)[1]))

    yield "activation", "the gradient of the input is zero", with_parts(0.0, 0.0)
    yield "activation", "the gradient of the input through the SiLU alone", with_parts(0.0, 1.0)
    yield "activation", "the gradient of the input through the splines alone", with_parts(1.0, 0.0)
    yield "activation", "derivatives of the splines not divided by the length of an interval", with_parts(
        node.step, 1.0)


def _factors(node: Spline) -> Wrong:
    """Factors that are left out, or are others."""

    def with_factors(factors: Callable[[Parameters], Parameters], other: Spline = node) -> Operation:
        def backward(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
            dx, found = other.backward(dy, xs, factors(w))
            return dx, node.backward(dy, xs, w)[1] | found

        return changed(node, forward=lambda xs, w: other.forward(xs, factors(w)), backward=backward)

    if node.scale_spline:
        yield "activation", "scale_spline is ignored", with_factors(
            lambda w: {name: one for name, one in w.items() if name != "scale_spline"},
            replace(node, scale_spline=False))
        yield "activation", "scale_base and scale_spline exchanged", with_factors(
            lambda w: {**w, "scale_base": w["scale_spline"], "scale_spline": w["scale_base"]})

        def sums(dy: Number, xs: Numbers, w: Parameters) -> Gradients:
            dx, found = node.backward(dy, xs, w)
            _, other = node.backward(dy, xs, {**w, "coefficient": w["coefficient"] * 0.0 + 1.0})
            return dx, found | {"scale_spline": other["scale_spline"]}

        yield "activation", "the gradient of scale_spline without the coefficients", changed(node, backward=sums)
    if node.in_features == node.out_features:
        yield "in_out_swapped", "coefficients and scales with the inputs before the outputs", with_factors(
            lambda w: {name: one.transpose((1, 0, *range(2, len(one.shape)))) for name, one in w.items()})
