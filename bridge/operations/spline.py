# SPDX-License-Identifier: MIT
"""Layers of Kolmogorov-Arnold networks (KAN): sums of learned functions, each of one feature."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial import Polynomial

from bridge.operations.operation import Gradients, Number, Operation, Real, Shape
from bridge.operations.pointwise import Silu

#: Of each interval from a knot: the polynomials that B-splines are there, the first of those that begin at the knot
Pieces = list[Number]
#: Degrees of the polynomials
ORDERS = (2, 3, 4, 5)


@dataclass(frozen=True)
class Spline(Operation):
    """A KAN layer over the last axis: of each feature its SiLU and a spline, for each output with its own factors.

    ``y[o] = sum_i scale_base[o,i] * silu(x[i]) + scale_spline[o,i] * sum_k coefficient[o,i,k] * B_k(x[i])``

    The B_k, k = 0, ..., grid + order - 1, are the B-splines of degree `order` on the knots ``low + (j - order) * h``,
    j = 0, ..., grid + 2 * order, with ``h = (high - low) / grid``: `grid` intervals from `low` to `high`, and `order`
    more on each side. From `low` to `high` they sum to 1, from there to the last knot there are fewer of them, and
    beyond it they are 0. An interval has its first knot and not its last, which changes nothing: splines of degree 2
    or more and their derivatives are continuous.

    Source: Z. Liu et al., KAN: Kolmogorov-Arnold Networks, https://arxiv.org/abs/2404.19756, equations 2.10 to 2.12;
    C. de Boor, A Practical Guide to Splines, chapters IX and X. Parameters and knots are those of pykan's `KANLayer`
    (coef, scale_base, scale_sp: there with the inputs before the outputs) and of efficient-kan's `KANLinear`
    (spline_weight, base_weight, and spline_scaler, which may be left out).
    """

    in_features: int
    out_features: int
    grid: int = 5
    order: int = 3
    low: Real = -1.0
    high: Real = 1.0
    scale_spline: bool = True
    kind: ClassVar[str] = "spline"
    sample_rank: ClassVar[int | None] = 1

    def check(self) -> None:
        """Refuse degrees that are not there, and grids without a length."""
        if self.order not in ORDERS:
            raise self.refuse(f"order {self.order}", "2, 3, 4 or 5")
        if not -math.inf < self.low < self.high < math.inf:
            raise self.refuse(f"a grid from {self.low:g} to {self.high:g}", "finite numbers, low below high")

    @property
    def functions(self) -> int:
        """Return the number of B-splines."""
        return self.grid + self.order

    @property
    def step(self) -> float:
        """Return the distance of two knots."""
        return (self.high - self.low) / self.grid

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return those of the coefficients, (out, in, grid + order), and of the scales, (out, in)."""
        pairs = self.out_features, self.in_features
        found: dict[str, Shape] = {"coefficient": (*pairs, self.functions), "scale_base": pairs}
        return found | ({"scale_spline": pairs} if self.scale_spline else {})

    def output_shape(self, *shapes: Shape) -> Shape:
        """Return the shape with `out_features` in the place of `in_features`."""
        (shape,) = shapes
        if len(shape) < 2 or shape[-1] != self.in_features:
            raise self.refuse(f"input {shape}", f"{self.in_features} features in its last axis")
        return (*shape[:-1], self.out_features)

    def forward(self, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Number:
        """Return the product of all functions of all features with their factors; the SiLU is one more function."""
        x = inputs[0].reshape((-1, self.in_features))
        y = _flat(self.values(x)) @ _flat(self._factors(parameters)).transpose((1, 0))
        return y.reshape((*inputs[0].shape[:-1], self.out_features))

    def backward(self, dy: Number, inputs: Sequence[Number], parameters: Mapping[str, Number]) -> Gradients:
        """Return the gradients with respect to input, coefficients and scales.

        Derivatives are differences of splines, or come from the product rule, whose terms are larger. A scale's
        gradient sums over the functions and the rows, in either order: no term is larger than the product of absolute
        values. Automatic differentiation rounds five times for each of the functions of every degree that are not 0,
        and hands that on times (q + 1)/q at most of degree q, and divided by the distance of the knots.
        """
        x, rows = inputs[0].reshape((-1, self.in_features)), dy.reshape((-1, self.out_features))
        factors, values = self._factors(parameters), self.values(x)
        passed = (rows @ _flat(factors)).reshape(values.shape)
        dx = (passed * self.slopes(x)).sum((2,)).or_as(lambda: (abs(passed) * self.slope_terms(x)).sum((2,)))
        steps = max(1.0, 1 / self.step)
        dx = dx.by_terms(math.ceil(2.5 * self.order * (self.order + 1) * (self.order + 2) * steps))
        of_factors = (rows.transpose((1, 0)) @ _flat(values)).reshape(factors.shape)
        of_splines, of_base = of_factors[..., : self.functions], of_factors[..., self.functions :]
        found = {"coefficient": of_splines, "scale_base": of_base.reshape((self.out_features, self.in_features))}
        if self.scale_spline:
            coefficient = parameters["coefficient"]

            def in_any_order() -> Number:
                most = (abs(rows).transpose((1, 0)) @ _flat(abs(values))).reshape(factors.shape)
                return (most[..., : self.functions] * abs(coefficient)).sum((2,))

            found["coefficient"] = of_splines * _each(parameters["scale_spline"])
            found["scale_spline"] = (of_splines * coefficient).sum((2,)).or_as(in_any_order)
        return [dx.reshape(inputs[0].shape)], found

    def values(self, x: Number) -> Number:
        """Return the B-splines of features (rows, in), and their SiLUs as the last function: (rows, in, functions + 1).
        """
        places = self._places(x)
        pieces = self._pieces(places)[-1]
        # Some programs multiply the polynomials out
        pieces = [one.or_as(partial(_at, places, p)) for one, p in zip(pieces, _polynomials(self.order), strict=True)]
        return self._chosen(places, pieces).concatenated([_each(self._base.value(x))], 2)

    def slopes(self, x: Number) -> Number:
        """Return their derivatives."""
        places = self._places(x)
        pieces = self._pieces(places)[-2]
        chosen = self._chosen(places, _joined(pieces, [-one for one in pieces]))
        return (chosen / self.step).concatenated([self._base_slopes(x)], 2)

    def slope_terms(self, x: Number) -> Number:
        """Return the sums of the absolute terms that the product rule makes derivatives of."""
        places = self._places(x)
        terms = [places.exact(np.zeros(places.shape))]
        for q, pieces in enumerate(self._pieces(places)[:-1], 1):
            sums = zip(_joined(pieces, pieces), _raised(terms, places, q), strict=True)
            terms = [self._divided(one + more, q) for one, more in sums]
        terms = [one.or_as(_at(places, p.deriv())) for one, p in zip(terms, _polynomials(self.order), strict=True)]
        return (self._chosen(places, terms) / self.step).concatenated([abs(self._base_slopes(x))], 2)

    def _base_slopes(self, x: Number) -> Number:
        return _each(self._base.gradient(x.exact(np.ones(x.shape)), x))

    @property
    def _base(self) -> Silu:
        return Silu(self.name)

    def _factors(self, parameters: Mapping[str, Number]) -> Number:
        """Those of all functions: (out, in, functions + 1)."""
        found = parameters["coefficient"]
        if self.scale_spline:
            found = found * _each(parameters["scale_spline"])
        return found.concatenated([_each(parameters["scale_base"])], 2)

    def _knots(self, x: Number) -> tuple[Number, Number]:
        """Their numbers, from that of `low`, and the knots, which programs round."""
        numbers = x.exact(np.arange(-self.order, self.grid + self.order + 1.0))
        return numbers, numbers * self.step + self.low

    def _places(self, x: Number) -> Number:
        """Distances from each knot, in intervals; of what is beyond all knots, those of what is just beyond.

        Many programs count intervals from `low`.
        """
        beyond = (self.order + 1) * self.step
        x = _each(x.clipped(self.low - beyond, self.high + beyond))
        numbers, knots = self._knots(x)
        return ((x - knots) / self.step).or_as(lambda: (x - self.low) / self.step - numbers)

    def _divided(self, x: Number, q: int) -> Number:
        """By the distance of a knot from the one that is q further, in intervals: a difference of rounded numbers."""

        def by_knots() -> Number:
            _, knots = self._knots(x)
            return x / ((knots[q:] - knots[:-q]) / self.step).max((0,))

        return (x / float(q)).or_as(by_knots)

    def _pieces(self, w: Number) -> list[Pieces]:
        """The polynomials of one interval, of each degree from 0 on, at distances w from its first knot.

        By the recursion of Cox and de Boor, whose terms are positive.
        """
        found = [[w.exact(np.ones(w.shape))]]
        for q in range(1, self.order + 1):
            found.append([self._divided(one, q) for one in _raised(found[-1], w, q)])
        return found

    def _chosen(self, places: Number, pieces: Pieces) -> Number:
        """Of each B-spline the polynomial of the interval."""
        found: Any = 0.0
        for m in reversed(range(self.order + 1)):
            behind = places[..., m + 1 : m + 1 + self.functions] > 0
            found = behind.choose(found, pieces[m][..., m : m + self.functions])
        return (places[..., : self.functions] > 0).choose(found, 0.0)

    def torch_forward(self, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        """Return ``reference.spline.Spline``, a module of torch: B-splines are the one from 0 to `order` + 1, moved."""
        from torch import arange
        from torch.nn import functional

        x = inputs[0]
        numbers = arange(-self.order, self.grid + self.order, dtype=x.dtype, device=x.device)
        z = (x[..., None] - self.low) / self.step - numbers
        values = ((z >= 0) & (z < 1)).to(x.dtype)
        for q in range(1, self.order + 1):
            z = z[..., :-1]
            values = (z * values[..., :-1] + (q + 1 - z) * values[..., 1:]) / q
        factors = parameters["coefficient"]
        if self.scale_spline:
            factors = factors * parameters["scale_spline"][..., None]
        return (functional.linear(functional.silu(x), parameters["scale_base"])
                + functional.linear(values.flatten(-2), factors.flatten(1)))


def _joined(first: Pieces, second: Pieces) -> Pieces:
    """Of B-splines that are sums of two of a lower degree, of which the second begins one knot later."""
    return [first[0], *(one + two for one, two in zip(first[1:], second, strict=False)), second[-1]]


def _raised(pieces: Pieces, w: Any, q: int) -> Pieces:
    """From the polynomials of degree q - 1 to q times those of degree q."""
    return _joined([(w + float(m)) * one for m, one in enumerate(pieces)],
                   [(float(q - m) - w) * one for m, one in enumerate(pieces)])


@cache
def _polynomials(order: int) -> list[Polynomial]:
    """Those of degree `order`, multiplied out."""
    w, pieces = Polynomial([0.0, 1.0]), [Polynomial([1.0])]
    for q in range(1, order + 1):
        pieces = [one / q for one in _raised(pieces, w, q)]
    return pieces


def _at(w: Number, polynomial: Polynomial) -> Number:
    """By Horner's rule."""
    found = w.constant(float(polynomial.coef[-1]))
    for one in reversed(polynomial.coef[:-1]):
        found = w * found + float(one)
    return found


def _flat(x: Number) -> Number:
    """All functions of all features of a row, one behind the other."""
    return x.reshape((x.shape[0], -1))


def _each(x: Number) -> Number:
    """A number for each function."""
    return x.reshape((*x.shape, 1))
