# SPDX-License-Identifier: MIT
"""Central differences of L(x) = sum(dy * forward(x)) along a step, and how far rounding and curvature may move them.

Steps are powers of two, and the point lies on a grid on which every step is exact: what is left is the rounding of
`forward` itself, its curvature, and its kinks. All three are measured, none of them from the gradient that is judged.

Sources: J. E. Dennis and R. B. Schnabel, Numerical Methods for Unconstrained Optimization (SIAM 1996), section 5.6
(the step cbrt(u) * max(abs(x), scale)); J. J. More and S. M. Wild, SIAM J. Sci. Comput. 33 (2011) 1292 (noise of a
function from differences of high order); N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41 (2019) A2815 (factor 9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from bridge.common.errors import ArgumentError
from bridge.judge.oracle.error_model import UNIT_ROUNDOFF, rounding_factor

Array = np.ndarray
Forward = Callable[..., Any]

#: How many standard deviations of rounding are allowed: s(n) of `bridge.judge.oracle.error_model` has the same factor
DEVIATIONS = 9.0
#: Evaluations from which the noise of `forward` is estimated, and their distance as a part of a step
EVALUATIONS = 12
PATHS = (2.0**-6, 2.0**-12, 0.0)
#: Roundings of the gradient beside its sum over outputs: its factors, its result
MORE_ROUNDINGS = 4


def power_of_two(size: Array | float) -> Array:
    """Return the nearest power of two (of the logarithm): adding it to a number of a grid is exact.

    >>> float(power_of_two(0.9)), float(power_of_two(1e-6)) == 2.0**-20
    (1.0, True)
    """
    return np.ldexp(1.0, np.rint(np.log2(size)).astype(int))


def typical_size(x: Array) -> float:
    """Return the median of the absolute values that are not 0; 1 where all are 0."""
    sizes = np.abs(x[x != 0])
    return float(np.median(sizes)) if sizes.size else 1.0


def choose_steps(name: str, x: Array, eps: float | None, linear: bool) -> Array:
    """Return the step of every element, same shape as `x`, float64: `eps`, or else `balanced_steps`.

    What is linear has no curvature: there the factor cbrt(u) is left out, and numbers of size 1 get step 1.

    Raises
    ------
    ArgumentError
        If `eps` is too small to move an element of `x`.
    """
    if eps is None:
        steps = balanced_steps(x)
        return power_of_two(steps / np.cbrt(UNIT_ROUNDOFF[x.dtype.name])) if linear else steps
    steps = np.full(x.shape, power_of_two(eps))
    if not np.all(grid_of(x, steps) <= steps):
        raise ArgumentError(f"eps: {eps:g} does not move {name}, whose largest element is {np.abs(x).max():g} in "
                            f"{x.dtype.name}; expected {np.spacing(2 * np.abs(x).max()):.1g} or more")
    return steps


def balanced_steps(x: Array) -> Array:
    """Return where an error of order u/eps by rounding and one of order eps**2 by curvature are together smallest.

    eps = cbrt(u) * max(abs(x), scale), the scale being the `typical_size`; at least the smallest normal number.

    >>> [float(balanced_steps(np.ones(1, dtype))[0]) for dtype in (np.float32, np.float64)] == [2**-8, 2**-18]
    True
    """
    wanted = np.cbrt(UNIT_ROUNDOFF[x.dtype.name]) * np.maximum(np.abs(x).astype(np.float64), typical_size(x))
    return power_of_two(np.maximum(wanted, np.finfo(x.dtype).tiny))


def grid_of(x: Array, steps: Array) -> Array:
    """Return the distance of the numbers of x's precision at the far end of two steps."""
    return np.spacing((np.abs(x) + 2 * steps).astype(x.dtype))


def on_grid(x: Array, steps: Array) -> Array:
    """Return `x` moved by at most two units in the last place, so that one and two steps to either side are exact.

    >>> x = np.array([0.249], np.float32)
    >>> y, h = on_grid(x, np.array([2.0**-8])), np.float32(2.0**-8)
    >>> bool((y + h) - y == h), bool((x + h) - x == h)
    (True, False)
    """
    grid = grid_of(x, steps)
    return (np.rint(x / grid) * grid).astype(x.dtype)


@dataclass(frozen=True)
class Probe:
    """One difference. All numbers are per `unit`, the length of the step.

    Attributes
    ----------
    at : index of the element; None is a direction, all elements at once
    found : of the gradient that is judged
    expected : central difference
    rounding : what rounding of `forward` and of the gradient may cause
    own_rounding : of that, the part of the gradient
    curvature : what curvature, or a kink within two steps, may cause
    hidden : what outputs that did not change may hide below their last digit
    left_out : why it says nothing ("kink", "not finite"), else empty
    """

    at: tuple[int, ...] | None
    found: float
    expected: float = 0.0
    rounding: float = 0.0
    own_rounding: float = 0.0
    curvature: float = 0.0
    hidden: float = 0.0
    left_out: str = ""

    @property
    def error(self) -> float:
        """Return how far the gradient is from the difference."""
        return abs(self.found - self.expected)

    @property
    def bound(self) -> float:
        """Return the largest error of a right gradient."""
        return self.rounding + self.curvature


@dataclass
class Functional:
    """L(x) = sum(dy * forward(*inputs)) around a point, by one of its inputs.

    Attributes
    ----------
    forward, kinks : see `bridge.gradcheck.gradcheck`
    inputs : the point
    dy : upstream gradient, float64, flat
    u : unit roundoff of the output
    bound : see `bridge.gradcheck.gradcheck`
    """

    forward: Forward
    kinks: Forward | None
    inputs: tuple[Array, ...]
    dy: Array
    u: float
    bound: Forward | None = None
    y: Array = field(init=False)
    signs: Array | None = field(init=False)

    def __post_init__(self) -> None:
        self.y, self.signs = self.at(0, self.inputs[0])

    def at(self, number: int, x: Array) -> tuple[Array, Array | None]:
        """Output, float64 and flat, and the signs of `kinks` with input `number` replaced."""
        given = self._with(number, x)
        y = np.array(self.forward(*given), np.float64).ravel()
        if y.shape != self.dy.shape:
            raise ArgumentError(f"forward: {y.size} output elements, expected {self.dy.size} as at the first call")
        return y, None if self.kinks is None else np.sign(self.kinks(*given))

    def _with(self, number: int, x: Array) -> tuple[Array, ...]:
        """The point with input `number` replaced, copies."""
        return tuple(np.array(x if i == number else one) for i, one in enumerate(self.inputs))

    def noise(self, number: int, steps: Array, rng: np.random.Generator) -> Array:
        """Return the standard deviation of the rounding of every output.

        From third differences along a path much shorter than the steps, where nothing else is left of a function; not
        of a few units in the last place, though, where the same roundings come again, and not of powers of two alone,
        which would leave the last digits of the numbers as they are, and with them what is rounded away. At the far
        end of the steps, where numbers are largest. A path that crosses kinks is shortened.
        """
        x = self.inputs[number]
        start = (x + np.where(x < 0, -steps, steps)).astype(x.dtype)
        signs = rng.choice([-1.0, 1.0], x.shape)
        thirds = np.zeros((1, self.y.size))
        for part in PATHS:
            last = np.spacing(np.abs(start))
            stride = signs * (np.maximum(part * np.minimum(steps, balanced_steps(x)), 2 * last) + last)
            ends = [self.at(number, (start + k * stride).astype(x.dtype)) for k in range(EVALUATIONS)]
            with np.errstate(invalid="ignore"):
                found = np.diff([y for y, _ in ends], 3, axis=0)
            smooth = np.isfinite(found).all(axis=1)
            if self.kinks is not None:
                signs_there = [np.asarray(one) for _, one in ends]
                same = [np.array_equal(a, b) for a, b in pairwise(signs_there)]
                smooth &= np.array([all(same[k:k + 3]) for k in range(EVALUATIONS - 3)])
            if smooth.any():
                thirds = found[smooth]
            if smooth.sum() >= EVALUATIONS // 2:
                break
        sigma = np.maximum(deviation(thirds), self.u * np.abs(self.y) / np.sqrt(3))
        together = float(deviation(thirds @ self.dy))
        apart = float(np.linalg.norm(self.dy * sigma))
        return sigma * max(1.0, together / apart) if apart > 0 else sigma

    def probe(self, number: int, step: Array, gradients: Sequence[Array], sigma: Array, own: Array, *, linear: bool,
              unit: float, at: tuple[int, ...] | None, own_rounding: float | None = None) -> Probe:
        """Return the difference along `step` against the product of step and gradient; of `gradients`, the one farther
        off.

        `sigma` and `own` are the noise of `forward` and of the gradient. `own_rounding`, what the gradient's last sum
        may lose besides, per unit; None derives it from the outputs:
        s(n) * sum(abs(dy * change)). With `bound` the gradient has one, too, which is `own`.
        """
        x = self.inputs[number]
        products = [float(np.sum(step * g, dtype=np.float64)) / unit for g in gradients]
        ends = []
        for factor in (1,) if linear else (2, 1):
            for sign in (1, -1):
                y, signs = self.at(number, (x + sign * factor * step).astype(x.dtype))
                if not np.isfinite(y).all():
                    return Probe(at, products[0], left_out="not finite")
                if signs is not None and self.signs is not None and not np.array_equal(signs, self.signs):
                    return Probe(at, products[0], left_out="kink")
                ends.append(y)
        up, down = ends[-2:]
        change = (up - down) / 2
        moved = np.any([y != self.y for y in ends], axis=0)
        if self.bound is not None:
            own_rounding = float(np.sum(np.abs(step) * own)) / unit + self._of_products(step, change, gradients) / unit
        elif own_rounding is None:
            u = UNIT_ROUNDOFF[gradients[0].dtype.name]
            n = int(np.count_nonzero(moved)) + MORE_ROUNDINGS
            own_rounding = float(rounding_factor(n, u)) * float(np.abs(self.dy) @ np.abs(change)) / unit
        if self.bound is None:
            rounding = DEVIATIONS * float(np.hypot(
                np.linalg.norm(self.dy[moved] * self._at_least(sigma, up, down)[moved]) / np.sqrt(2),
                np.linalg.norm(step * own)))
        else:
            rounding = self._bounded(number, step, moved)
        curvature = 0.0 if linear else float(np.abs(self.dy) @ _curvature(self.y, *ends))
        expected = float(self.dy @ change) / unit
        return Probe(at, max(products, key=lambda one: abs(one - expected)), expected,
                     rounding / unit + own_rounding, own_rounding, curvature / unit,
                     self.u * float(np.abs(self.dy * self.y)[~moved].sum()) / unit)

    def _of_products(self, step: Array, change: Array, gradients: Sequence[Array]) -> float:
        """What the two scalar products that are compared lose here, which is all where nothing else is rounded."""
        u = UNIT_ROUNDOFF["float64"]
        sums = [np.abs(self.dy) @ np.abs(change), *(np.sum(np.abs(step * g)) for g in gradients)]
        return float(rounding_factor(max(change.size, step.size), u) * (sums[0] + max(sums[1:])))

    def _bounded(self, number: int, step: Array, moved: Array) -> float:
        """What the bounds at both ends allow, and half as much again: the differences by which curvature is bounded
        have one and a half times the error of one alone, and three times the curvature (Richardson).
        """
        assert self.bound is not None
        x = self.inputs[number]
        ends = [np.array(self.bound(*self._with(number, (x + sign * step).astype(x.dtype))), np.float64).ravel()
                for sign in (1, -1)]
        return 1.5 * float(np.abs(self.dy)[moved] @ (ends[0] + ends[1])[moved]) / 2

    def is_linear(self, number: int, step: Array, sigma: Array) -> bool:
        """Do the outputs at the middle of two steps lie in the middle, up to rounding of all of them together?"""
        x = self.inputs[number]
        up, down = (self.at(number, (x + sign * step).astype(x.dtype))[0] for sign in (1, -1))
        # 6 = 1 + 4 + 1, the squares of the factors
        limit = DEVIATIONS * np.sqrt(6) * np.linalg.norm(self._at_least(sigma, up, down))
        return bool(np.linalg.norm(up - 2 * self.y + down) <= limit)

    def _at_least(self, sigma: Array, *ys: Array) -> Array:
        """Not below what storing these outputs costs."""
        return np.maximum(sigma, self.u * np.max(np.abs(ys), axis=0) / np.sqrt(3))


def _curvature(y: Array, up2: Array, down2: Array, up: Array, down: Array) -> Array:
    """How far (up - down)/2 may be from the slope, for every output.

    The first term is three times the error of a smooth function (Richardson). Both together are, for a function with
    one kink within two steps, not less than its error, wherever the kink lies: with s the slope's jump and the kink at
    a steps, 0 <= a <= 1, the terms are abs(s)*a/4 and abs(s)*abs(2 - 3*a)/4, and the error is abs(s)*(1 - a)/2.
    """
    first = np.abs((up2 - down2) / 4 - (up - down) / 2)
    second = np.abs(4 * (up - 2 * y + down) - (up2 - 2 * y + down2)) / 4
    return first + second


def deviation(thirds: Array) -> Array:
    """Of one value, from third differences: 20 = 1 + 9 + 9 + 1."""
    return np.sqrt(np.mean(thirds**2, axis=0) / 20)
