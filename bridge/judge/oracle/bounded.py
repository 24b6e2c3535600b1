# SPDX-License-Identifier: MIT
"""Arrays that know how far a right program may be from them: running error analysis.

A `Bounded` is a float64 array and a bound on the error of whoever computes the same in the candidate's precision
(unit roundoff u). Every operation adds its own rounding to what it carries on from its operands:

* ``a + b``, ``a * b``, ...: u times the absolute result; an operand that is a constant of the formula is rounded, too;
* a sum of n numbers: s(n) times the sum of absolute values (see `bridge.judge.oracle.error_model.rounding_factor`);
* a function: FUNCTION_ULP units in the last place, and what it does to the ends of the interval of its argument;
* a choice (``x > 0``, the largest of a window): where rounding may have decided it, both are inside the bound.

An exact array (the network's input, a candidate's own tensor) has the error 0; what is only moved stays exact.

Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.3. Functions: glibc and oneDNN
are within 1 unit in the last place, SLEEF within 1 or 3.5, CUDA's within 2 (CUDA C++ Programming Guide, mathematical
functions).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from bridge.judge.oracle import convolution, fast_convolution, windows
from bridge.judge.oracle.error_model import UNIT_ROUNDOFF, Arithmetic
from bridge.judge.oracle.primitives import primitive, takes_other_way, watched
from bridge.judge.oracle.windows import Places
from bridge.operations.products import Conv2d

Array = np.ndarray
Axes = tuple[int, ...] | None
Pair = tuple[int, int]

#: Units in the last place that an elementary function may be off
FUNCTION_ULP = 4
#: What ``exp2(x * log2(e))`` is off by, relative, in units of ``u * |x|``: 1 of the rounded product, 0.22 of log2(e) in
#: float32. So CUDA's __expf (2 + 1.173*|x| units in the last place, as its programming guide says) and Triton's exp,
#: by which torch.compile and attention kernels compute; and the |x| beyond which an exponential is 0 or infinite
BY_TWO, LARGEST_EXPONENT = 1.25, 745.0


#: The error of what has none
NOTHING = np.zeros(())


class Bounded:
    """A float64 array with a bound on the error of each element.

    Parameters
    ----------
    value : array
    error : array of the same shape, or 0 where the value is exact; NaN, what an unbounded error times 0 is, says as
        little as infinity, and becomes that
    arithmetic : of the candidate
    terms : how many numbers of about this size, or less, were added last, see `joined`

    Examples
    --------
    >>> x = Bounded(np.array([3.0]), 0.0, Arithmetic(2.0**-24))
    >>> y = x * x + 1.0
    >>> float(y.value[0]), round(float(y.error[0] * 2**24), 3)
    (10.0, 19.0)
    """

    __array_ufunc__ = None
    #: what a formula calls this number, and its axes; empty where it does not say
    label = ""
    axes: tuple[str, ...] = ()
    #: its bound is estimated, as that of what has no formula
    estimated = False
    #: which tensors a candidate's file lacks between this and what it was computed from
    lacking: tuple[str, ...] = ()
    #: of a bias gradient the bound of its own sum, without what its terms are off
    alone: Array | None = None
    #: which call of a formula that is watched has made it
    call: int | None = None

    def __init__(self, value: Array, error: Array | float, arithmetic: Arithmetic, terms: float = 1) -> None:
        self.value = np.asarray(value, dtype=np.float64)
        self.arithmetic, self.terms = arithmetic, terms
        if not arithmetic.bounds:
            self.error = np.broadcast_to(NOTHING, self.value.shape)
            return
        known = _known_or_infinite(np.asarray(error, dtype=np.float64))
        # It costs as much as the arithmetic of a small array
        self.error = known if known.shape == self.value.shape else np.broadcast_to(known, self.value.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return self.value.shape

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return self.value.size

    @property
    def is_exact(self) -> bool:
        """Return whether it is known that no number of it has an error, at a glance."""
        return not any(self.error.strides) and not self.error.flat[:1].any()

    def named(self, label: str, *axes: str) -> Bounded:
        """Return this number of a formula with a name, by which the search for a mistake speaks of it, and of its axes.
        """
        self.label, self.axes = label, axes or self.axes
        return self

    def exact(self, array: Array) -> Bounded:
        """Return numbers without error, in the same arithmetic."""
        return Bounded(array, 0.0, self.arithmetic)

    @primitive
    def constant(self, number: float) -> Bounded:
        """Return a constant of the formula, in this shape, rounded to the candidate's precision."""
        one = self._operand(number)
        return Bounded(np.full(self.shape, one.value), one.error, self.arithmetic)

    @primitive
    def constants(self, array: Array) -> Bounded:
        """Return constants of a formula, rounded to the candidate's precision where they are none of its numbers."""
        single = self.arithmetic.u > UNIT_ROUNDOFF["float64"] * 4
        inexact = single & (array.astype(np.float32) != array)
        return Bounded(array, (self.arithmetic.u * np.abs(array) + self.arithmetic.lost(1)) * inexact, self.arithmetic)

    def _alone(self, value: Array) -> Bounded:
        """A number whose error nobody wants."""
        return Bounded(value, 0.0, self.arithmetic)

    # What only moves numbers

    @primitive
    def moved(self, move: Callable[[Array], Array]) -> Bounded:
        """Return what `move` does to the array: it copies, drops or repeats numbers, and computes none."""
        if not self.arithmetic.bounds:
            return self._alone(move(self.value))
        return Bounded(move(self.value), move(self.error), self.arithmetic, self.terms)

    @primitive
    def reshape(self, shape: tuple[int, ...]) -> Bounded:
        """Return the same numbers in another shape."""
        return self.moved(lambda a: a.reshape(shape))

    @primitive
    def transpose(self, axes: tuple[int, ...]) -> Bounded:
        """Return the same numbers with the axes in another order."""
        return self.moved(lambda a: a.transpose(axes))

    @primitive
    def broadcast(self, shape: tuple[int, ...]) -> Bounded:
        """Return the same numbers, repeated along axes of length 1."""
        return self.moved(lambda a: np.broadcast_to(a, shape))

    @primitive
    def __getitem__(self, index: tuple[slice, ...]) -> Bounded:
        """Return a part."""
        return self.moved(lambda a: a[index])

    @primitive
    def __neg__(self) -> Bounded:
        """Return the negative, which is exact."""
        return Bounded(-self.value, self.error, self.arithmetic, self.terms)

    @primitive
    def __abs__(self) -> Bounded:
        """Return the absolute value, which is exact."""
        return Bounded(np.abs(self.value), self.error, self.arithmetic)

    @primitive
    def clipped(self, low: float, high: float) -> Bounded:
        """Return what is beyond two numbers as these, which are rounded; no error is larger than their distance.

        >>> x = Bounded(np.array([-5.0, 0.0, 5.0]), np.array([0.25, 0.25, 9.0]), Arithmetic(2.0**-24))
        >>> x.clipped(-1, 1).value, x.clipped(-1, 1).error
        (array([-1.,  0.,  1.]), array([0.25, 0.25, 2.  ]))
        """
        rounded = np.maximum(*(self._operand(one).error for one in (low, high)))
        beyond = (self.value - self.error < low) | (self.value + self.error > high)
        error = np.minimum(self.error + rounded * beyond, high - low + 2 * rounded)
        return Bounded(np.clip(self.value, low, high), error, self.arithmetic)

    @primitive
    def concatenated(self, others: Sequence[Bounded], axis: int) -> Bounded:
        """Return this and others one behind the other along an axis."""
        all_of = [self, *others]
        return Bounded(np.concatenate([one.value for one in all_of], axis),
                       np.concatenate([one.error for one in all_of], axis), self.arithmetic)

    @primitive
    def padded(self, sides: tuple[tuple[int, int], ...], number: float) -> Bounded:
        """Return the numbers with another one, which is rounded, before and behind those of each axis.

        Where that is a negative number of times, as many are taken away.
        """
        inner = tuple(slice(max(-before, 0), n - max(-behind, 0))
                      for n, (before, behind) in zip(self.shape, sides, strict=True))
        around = [(max(before, 0), max(behind, 0)) for before, behind in sides]
        beside = self._operand(number)
        return Bounded(np.pad(self.value[inner], around, constant_values=beside.value),
                       np.pad(self.error[inner], around, constant_values=beside.error), self.arithmetic)

    @primitive
    def windows(self, rows: Places, columns: Places, fill: float) -> Bounded:
        """Return the windows (n, c, p, q, r, s) of images (n, c, h, w) that `fill` surrounds."""
        return Bounded(windows.view(self.value, rows, columns, fill), windows.view(self.error, rows, columns, 0.0),
                       self.arithmetic)

    def whole_numbers(self, below: int) -> Array:
        """Return the numbers as integers: -1 where one is none from 0 on below that.

        >>> Bounded(np.array([0.0, 2.0, 3.0, 0.5, np.nan]), 0.0, Arithmetic(2.0**-24)).whole_numbers(3)
        array([ 0,  2, -1, -1, -1])
        """
        right = (self.value >= 0) & (self.value < below) & (self.value == np.floor(self.value))
        return np.where(right, self.value, -1).astype(np.int64)

    def may_be_others(self) -> Array:
        """Return where a right program may have another whole number, which rounding decides."""
        return np.broadcast_to(self.error >= 0.5, self.shape)

    def unless(self, unknown: Array) -> Bounded:
        """Return this number with a bound that says nothing where another one may be chosen.

        >>> chosen = Bounded(np.array([3.0, 1.0]), np.array([0.0, 1.0]), Arithmetic(2.0**-24))
        >>> Bounded(np.array([7.0, 8.0]), 0.0, chosen.arithmetic).unless(chosen.may_be_others()).error
        array([ 0., inf])
        """
        if not self.arithmetic.bounds or not unknown.any():
            return self
        return Bounded(self.value, np.where(unknown, math.inf, self.error), self.arithmetic, self.terms)

    @primitive
    def rows(self, at: Array) -> Bounded:
        """Return the rows at (n, k) of tables (n, rows, width), of each table its own; NaN where there is none.

        >>> table = Bounded(np.arange(6.0).reshape(1, 3, 2), 0.0, Arithmetic(2.0**-24))
        >>> table.rows(np.array([[2, 2, 0]])).value.tolist()
        [[[4.0, 5.0], [4.0, 5.0], [0.0, 1.0]]]
        """
        there = ((at >= 0) & (at < self.shape[1]))[..., None]
        found = self.moved(lambda a: np.take_along_axis(a, np.clip(at, 0, a.shape[1] - 1)[..., None], 1))
        return found if there.all() else found.moved(lambda a: np.where(there, a, np.nan))

    # Elementwise arithmetic

    @primitive
    def __add__(self, other: Bounded | float) -> Bounded:
        """Return the rounded sum."""
        b = self._operand(other)
        if not self.arithmetic.bounds:
            return self._alone(self.value + b.value)
        found = self._rounded(self.value + b.value, self.error + b.error)
        found.terms = sum(_terms_in(found, one) for one in (self, b))
        return found

    __radd__ = __add__

    @primitive
    def __sub__(self, other: Bounded | float) -> Bounded:
        """Return the rounded difference."""
        return self + -self._operand(other)

    @primitive
    def __rsub__(self, other: Bounded | float) -> Bounded:
        """Return the rounded difference."""
        return -self + self._operand(other)

    @primitive
    def __mul__(self, other: Bounded | float) -> Bounded:
        """Return the rounded product."""
        b = self._operand(other)
        if not self.arithmetic.bounds:
            return self._alone(self.value * b.value)
        carried = _product_error(self, b)
        found = self._rounded(self.value * b.value, carried, tiny=1, exact=lambda: self._is_zero() | b._is_zero())
        found.terms = max(_terms_in(found, one) for one in (self, b))
        return found

    __rmul__ = __mul__

    @primitive
    def __truediv__(self, other: Bounded | float) -> Bounded:
        """Return the rounded quotient; unbounded where the divisor may be 0.

        A right program multiplies by the rounded reciprocal of a constant, too.
        """
        if not isinstance(other, Bounded) and other and (self.arithmetic.bounds or takes_other_way()):
            return self._divided(self._operand(other)).or_as(self * self._reciprocal(other))
        return self._divided(self._operand(other))

    def _divided(self, b: Bounded) -> Bounded:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = self.value / b.value
            if not self.arithmetic.bounds:
                return self._alone(value)
            room = np.abs(b.value) - b.error
            carried = np.where(room > 0, (self.error + np.abs(value) * b.error) / room, math.inf)
        return self._rounded(value, carried, tiny=1, exact=self._is_zero)

    @primitive
    def __rtruediv__(self, other: Bounded | float) -> Bounded:
        """Return the rounded quotient."""
        return self._operand(other) / self

    @primitive
    def averaged(self, count: int, factor: float = 1.0) -> Bounded:
        """Return this times ``factor / count``, the part that an element has in a mean.

        Who takes a mean of means multiplies by the reciprocals of two counts: these and their product are rounded. Only
        where the count is a power of two they are not.
        """
        if abs(math.frexp(count)[0]) == 0.5:
            return self * (factor / count)
        share = Bounded(np.asarray(factor / count), 3 * self.arithmetic.u * abs(factor / count), self.arithmetic)
        return self * share

    @primitive
    def squared(self) -> Bounded:
        """Return the rounded square."""
        if not self.arithmetic.bounds:
            return self._alone(self.value * self.value)
        carried = self.error * (2 * np.abs(self.value) + self.error)
        return self._rounded(self.value * self.value, carried, tiny=1, exact=self._is_zero)

    def _operand(self, other: Bounded | float) -> Bounded:
        """A constant is rounded to the candidate's precision where it is none of its numbers."""
        if isinstance(other, Bounded):
            return other
        single = self.arithmetic.u > UNIT_ROUNDOFF["float64"] * 4
        inexact = single and math.isfinite(other) and float(np.float32(other)) != other
        error = self.arithmetic.u * abs(other) + self.arithmetic.lost(1) if inexact else 0.0
        return Bounded(np.asarray(other), error, self.arithmetic)

    def _reciprocal(self, other: float) -> Bounded:
        """Of a power of two exact, else rounded."""
        inexact = abs(math.frexp(other)[0]) != 0.5
        return Bounded(np.asarray(1 / other), self.arithmetic.u / abs(other) if inexact else 0.0, self.arithmetic)

    def _is_zero(self) -> Array:
        """Where it is 0, whatever is rounded."""
        return (self.value == 0) & (self.error == 0)

    def _rounded(self, value: Array, carried: Array, *, tiny: int = 0,
                 exact: Callable[[], Array] | None = None) -> Bounded:
        """`exact`: where nothing is rounded, where that is not wherever the value is 0."""
        u, tiny = self.arithmetic.u, tiny or int(self.arithmetic.flushes)
        error = np.asarray(np.abs(value) * u)
        carried *= 1 + u
        error += carried
        error = self._never_exact(error, exact or (lambda: value == 0))
        return Bounded(value, self.arithmetic.with_underflow(error, tiny) if tiny else error, self.arithmetic)

    def or_as(self, other: Bounded | Callable[[], Bounded], at_most: float = math.inf) -> Bounded:
        """Return the same number with the larger bound of two ways to compute it: a right program takes either.

        A way that takes long is called only where there is a bound to be had. One that may lose nearly all digits
        counts up to a share of the number, `at_most`.
        """
        if takes_other_way():
            return (other() if callable(other) else other).named(self.label, *self.axes)
        if callable(other):
            if not self.arithmetic.u:
                return self
            with watched(None):
                other = other()
        if not self.arithmetic.bounds:
            return self
        error = np.minimum(other.error, at_most * np.abs(self.value)) if at_most < math.inf else other.error
        found = Bounded(self.value, np.maximum(self.error, error), self.arithmetic, max(self.terms, other.terms))
        found.call = self.call
        return found.named(self.label, *self.axes)

    def rounded(self) -> Bounded:
        """Return the same number with a bound that has room for one more rounding: of who scales it before a product
        that the formula scales.
        """
        if not self.arithmetic.bounds:
            return self
        error = self.arithmetic.u * np.abs(self.value)
        error += self.error
        found = Bounded(self.value, error, self.arithmetic, self.terms)
        found.call = self.call
        return found.named(self.label, *self.axes)

    def or_number(self, other: Bounded) -> Bounded:
        """Return this number with a bound that has room for another one, which a library is known to take for it."""
        if not self.arithmetic.bounds:
            return self
        error = other.error + np.abs(other.value - self.value)
        found = Bounded(self.value, np.maximum(self.error, error), self.arithmetic, self.terms)
        return found.named(self.label, *self.axes)

    def _never_exact(self, error: Array, exact: Callable[[], Array]) -> Array:
        """What is computed is exact only where it is 0: a tiny number, or its bound, may itself have underflowed."""
        if error.size and error.min() > 0:
            return error
        smallest = np.finfo(float).smallest_subnormal * (self.arithmetic.u > 0)
        return np.where((error == 0) & ~exact(), smallest, error)

    @primitive
    def by_terms(self, n: int) -> Bounded:
        """Return a scaled sum of n terms as a right program may have it, too: a sum of n scaled terms.

        Then each of them is rounded to a whole multiple of the smallest number, and so is each step of a running mean.
        A larger number is rounded no more than it is.

        >>> mean = Bounded(np.array([1e-44]), 1e-45, Arithmetic(2.0**-24)).by_terms(10)
        >>> float(mean.error[0]) == 1e-45 + 10 * 2.0**-149
        True
        """
        if not self.arithmetic.bounds:
            return self
        return Bounded(self.value, self.arithmetic.with_underflow(np.array(self.error, ndmin=1), n).reshape(self.shape),
                       self.arithmetic, self.terms)

    # Sums

    @primitive
    def sum(self, axes: Axes) -> Bounded:
        """Return the sum over axes, or over all (None), in whatever order."""
        if not self.arithmetic.bounds:
            return self._alone(self.value.sum(axes))
        value, absolute, carried = (a.sum(axes) for a in (self.value, np.abs(self.value), self.error))
        terms = self.size // max(value.size, 1)
        return self._summed(value, absolute, carried, terms - 1)

    @primitive
    def summed_to(self, shape: tuple[int, ...]) -> Bounded:
        """Return the sum over the axes along which `shape` was broadcast to this one."""
        extra = len(self.shape) - len(shape)
        long = [i for i, (a, b) in enumerate(zip(self.shape[extra:], shape, strict=True), extra) if a != b]
        axes = (*range(extra), *long)
        return self.sum(axes).reshape(shape) if axes else self

    def _summed(self, value: Array, absolute: Array, carried: Array, n: Array | float, *, tiny: float = 0) -> Bounded:
        s, tiny = self.arithmetic.factor(n), tiny or (float(np.max(n)) + 1) * self.arithmetic.flushes
        error = np.asarray(s * absolute)
        error += (1 + s) * carried
        if tiny:
            error = self._never_exact(error, lambda: absolute == 0)
            error = self.arithmetic.with_underflow(np.atleast_1d(error), tiny).reshape(np.shape(error))
        return Bounded(value, error, self.arithmetic, float(np.max(n)) + 1)

    @primitive
    def joined(self, others: Sequence[Bounded]) -> Bounded:
        """Return the sum of this and others, each of which may be a sum itself, of `terms` numbers.

        A program may add those one by one to what is there already: an accumulator that begins with the bias, a
        gradient that several layers send back to the same memory. Each of them is a rounding of the size of the whole,
        and so is that of a number which is written, but is in use unrounded.

        >>> one = Bounded(np.array([8.0]), 0.0, Arithmetic(2.0**-24))
        >>> dx = one.joined([Bounded(np.array([-1.0]), 0.0, Arithmetic(2.0**-24), terms=4)])
        >>> float(dx.value[0]), float(dx.error[0] * 2**24)
        (7.0, 45.0)
        """
        parts = [self, *others]
        if not self.arithmetic.bounds:
            return self._alone(reduce(np.add, [one.value for one in parts]))
        value, absolute, carried = (reduce(np.add, arrays) for arrays in zip(
            *((one.value, np.abs(one.value), one.error) for one in parts), strict=True))
        return self._summed(value, absolute, carried, sum(one.terms for one in parts))

    @primitive
    def folded(self, rows: Places, columns: Places, shape: tuple[int, ...]) -> Bounded:
        """Return windows (n, c, p, q, r, s) summed to the images of `shape` that they were taken from."""

        def fold(a: Array) -> Array:
            return windows.fold(a, rows, columns, shape)

        if not self.arithmetic.bounds:
            return self._alone(fold(self.value))
        return self._summed(fold(self.value), fold(np.abs(self.value)), fold(self.error),
                            windows.overlaps(rows, columns, shape) - 1)

    @primitive
    def scattered(self, places: Places, shape: tuple[int, ...], terms: float = 1) -> Bounded:
        """Return numbers summed to an array of `shape`, in which each index of an axis goes to its place.

        A right program adds the `terms` of each number, whose sum it is, one by one, too.
        """

        def scatter(a: Array) -> Array:
            found = np.zeros(shape)
            np.add.at(found, np.ix_(*places), a)
            return found

        if not self.arithmetic.bounds:
            return self._alone(scatter(self.value))
        added = np.maximum(scatter(np.ones(self.shape)) * terms - 1, 0)
        return self._summed(scatter(self.value), scatter(np.abs(self.value)), scatter(self.error), added)

    @primitive
    def carried(self, factors: Bounded, backwards: bool = False, first: Bounded | None = None) -> Bounded:
        """Return c(t) = x(t) + f(t) * c(t - 1) of each index t of the second axis, or from behind, with c(t + 1).

        `first` is the number before the first one, 0 where it is not given, of one index.

        >>> x = Bounded(np.array([[1.0, 1.0, 1.0]]), 0.0, Arithmetic(2.0**-24))
        >>> x.carried(x * 0.5).value, x.carried(x * 0.5, backwards=True).value[0, 0]
        (array([[1.  , 1.5 , 1.75]]), np.float64(1.75))
        """
        found: list[Bounded] = []
        for t in reversed(range(self.shape[1])) if backwards else range(self.shape[1]):
            now, before = self[:, t:t + 1], found[-1] if found else first
            found.append(now if before is None else now + factors[:, t:t + 1] * before)
        return found[0].concatenated(found[1:], 1) if not backwards else found[-1].concatenated(found[-2::-1], 1)

    # Sums of products

    @primitive
    def __matmul__(self, other: Bounded) -> Bounded:
        """Return the matrix product."""
        return self._product(other, np.matmul, self.shape[-1])

    @primitive
    def resized(self, rows: Bounded, columns: Bounded) -> Bounded:
        """Return images (n, c, h, w) whose rows and columns are sums of these, with weights (h', h) and (w', w).

        Nobody multiplies the weights that are 0, and who copies pixels multiplies by no 1.
        """
        a, e = np.abs(self.value), self.error
        r, c = np.abs(rows.value), np.abs(columns.value)

        def product(down: Array, image: Array, across: Array) -> Array:
            return np.asarray(down @ image @ across.T)

        if not self.arithmetic.bounds:
            return self._alone(product(rows.value, self.value, columns.value))
        carried = product(r, e, c)
        if rows.error.any() or columns.error.any():
            carried = carried + product(rows.error, a + e, c + columns.error) + product(r, a + e, columns.error)
        terms = np.outer(*(np.count_nonzero(one.value + one.error, 1) for one in (rows, columns)))
        copied = all(set(np.unique(one.value)) <= {0.0, 1.0} and not one.error.any() for one in (rows, columns))
        n = np.maximum(terms + (-1 if copied else 1), 0)
        return self._summed(product(rows.value, self.value, columns.value), product(r, a, c), carried, n,
                            tiny=0 if copied else float(n.max()))

    @primitive
    def weights_between(self, length: int) -> Bounded:
        """Return the weights (size, length) of linear interpolation at these places between 0, 1, ..., length - 1."""
        place = np.clip(self.value, 0.0, length - 1.0)[:, None]
        distance, error = np.abs(place - np.arange(length)), self.error[:, None] + self.arithmetic.u
        return Bounded(np.maximum(1 - distance, 0.0), np.where(distance < 1 + error, error, 0.0), self.arithmetic)

    @primitive
    def cubic_weights(self, length: int) -> Bounded:
        """Return the weights (size, length) of cubic interpolation at these places between 0, 1, ..., length - 1.

        They are torch's, a piecewise cubic polynomial of the distance with a = -0.75, whose derivative is 1.35 at most:
        so far a wrong place goes. Horner's rule has 14 roundings of numbers up to 1 at distances up to 1, and 40
        beyond, where errors of the steps before are doubled.
        """
        distance = np.abs(self.value[:, None] - np.arange(length))
        near = ((1.25 * distance - 2.25) * distance) * distance + 1
        far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
        # Near 1 either polynomial may be taken
        rounded = np.where(distance < 1 - self.error[:, None], 14, 40) * self.arithmetic.u
        error = np.where(distance < 2 + self.error[:, None], 1.35 * self.error[:, None] + rounded, 0.0)
        return Bounded(np.where(distance <= 1, near, np.where(distance < 2, far, 0.0)), error, self.arithmetic)

    @primitive
    def convolved(self, w: Bounded, layer: Conv2d, bias: Bounded | None = None) -> Bounded:
        """Return the convolution (n, k, p, q) of images (n, c, h, w), and a bias (1, k, 1, 1) added."""
        out = layer.output_shape(self.shape)
        n = convolution.products_forward(layer, _size(self.shape), _size(out))

        def product(x: Array, filters: Array) -> Array:
            return np.stack([fast_convolution.forward(image, [filters], layer)[0] for image in x])

        algorithm = self.arithmetic.algorithm
        noise = None if algorithm is None else np.stack([self.arithmetic.noise(
            lambda x, filters: algorithm.forward_bound(x, filters, layer), image, w._largest())
            for image in self._largest()])
        return self._product(w, product, n + (bias is not None), bias, _of_images(noise))

    @primitive
    def data_gradient(self, w: Bounded, layer: Conv2d, shape: tuple[int, ...]) -> Bounded:
        """Return the gradient with respect to a convolution's input of `shape`; this is that of its output."""
        size = _size(shape)
        n = convolution.products_data(layer, size, _size(self.shape))

        def product(dy: Array, filters: Array) -> Array:
            return np.stack([fast_convolution.backward_data(image, filters, layer, size) for image in dy])

        algorithm = self.arithmetic.algorithm
        noise = None if algorithm is None else np.stack([self.arithmetic.noise(
            lambda dy, filters: algorithm.data_bound(dy, filters, layer, size), image, w._largest())
            for image in self._largest()])
        return self._product(w, product, n, noise=_of_images(noise))

    @primitive
    def filter_gradient(self, x: Bounded, layer: Conv2d) -> Bounded:
        """Return the gradient with respect to a convolution's weights; this is that of its output."""
        n = self.shape[0] * convolution.products_filter(layer, _size(x.shape), _size(self.shape))

        def product(dy: Array, images: Array) -> Array:
            found = (fast_convolution.backward_filter(one, [d], layer)[0] for one, d in zip(images, dy, strict=True))
            return np.sum(list(found), axis=0)

        algorithm, pairs = self.arithmetic.algorithm, zip(x._largest(), self._largest(), strict=True)
        noise = None if algorithm is None else np.sum([self.arithmetic.noise(
            lambda images, dys: algorithm.filter_bound(images, dys, layer), image, dy) for image, dy in pairs], axis=0)
        return self._product(x, product, n, noise=noise)

    def _largest(self) -> Array:
        """What the absolute values may be."""
        return np.asarray(np.abs(self.value) + self.error)

    def _product(self, other: Bounded, product: Callable[[Array, Array], Array], n: Array | int,
                 bias: Bounded | None = None, noise: Array | None = None) -> Bounded:
        """A bilinear map of both; `n`: roundings in each element, `product`: the same with absolute values, too.

        `noise` is what an algorithm that is no sum of products adds.
        """
        value = product(self.value, other.value)
        if not self.arithmetic.bounds:
            return self._alone(value if bias is None else value + bias.value)
        if not (np.isfinite(self.error).any() and np.isfinite(other.error).any()):
            # Behind many operations nothing is known of any factor, and three products more would not tell more
            return Bounded(value if bias is None else value + bias.value, math.inf, self.arithmetic)
        a, b, e_a, e_b = np.abs(self.value), np.abs(other.value), self.error, other.error
        absolute = product(a, b)
        carried = np.zeros(value.shape)
        if e_a.any():
            carried += product(e_a, b + e_b)
        if e_b.any():
            carried += product(a, e_b)
        if operand := self.arithmetic.operand:
            carried += operand * (2 + operand) * absolute
        if bias is not None:
            value, absolute, carried = value + bias.value, absolute + np.abs(bias.value), carried + bias.error
        if noise is not None:
            carried = carried + noise
        return self._summed(value, absolute, carried, n, tiny=float(np.max(n)))

    # Functions

    @primitive
    def exp(self) -> Bounded:
        """Return the exponential, by the least exact way there is: ``exp2(x * log2(e))``."""
        of = self._by_two()
        if not self.arithmetic.bounds or not (of.error.size and of.error.max() <= 1):
            return of._function(np.exp)
        # exp(x + e) <= exp(x) * (1 + e + e*e) for e up to 1
        with np.errstate(over="ignore", invalid="ignore"):
            value = np.exp(of.value)
            room = of.error * (1 + of.error)
            error = value * (room + 2 * FUNCTION_ULP * self.arithmetic.u * (1 + room))
        # Beyond that it is 0 in float64, too, wherever in its interval the argument is
        error = self._never_exact(error, lambda: of.value + of.error < -LARGEST_EXPONENT - 1)
        return Bounded(value, self.arithmetic.with_underflow(error, 1), self.arithmetic)

    @primitive
    def expm1(self) -> Bounded:
        """Return ``exp(x) - 1``."""
        return self._function(np.expm1)

    @primitive
    def log(self, at_least: float = -math.inf) -> Bounded:
        """Return the natural logarithm, or a number that it is at least."""
        return self._function(lambda x: np.maximum(np.log(x), at_least), smallest=0.0)

    @primitive
    def log1p(self, at_least: float = -math.inf) -> Bounded:
        """Return ``log(1 + x)``, or a number that it is at least."""
        return self._function(lambda x: np.maximum(np.log1p(x), at_least), smallest=-1.0)

    @primitive
    def erf(self) -> Bounded:
        """Return the error function.

        By 7.1.26 of M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions, it has an absolute error of
        1.5e-7 and that of the roundings of a polynomial of degree 5, which is 1 near 0: in float32 together 10.9 u
        there, at most, and 2.5 u where the exponential beside the polynomial is small.
        """
        found = self._function(_erf)
        lost = (12 - 6 * np.abs(found.value)) * self.arithmetic.u * (found.value != 0)
        return Bounded(found.value, found.error + lost, self.arithmetic)

    @primitive
    def sin(self) -> Bounded:
        """Return the sine: as every function near 0, and elsewhere off by a part of the amplitude, which is 1."""
        return self._wave(np.sin, np.cos, np.minimum(np.abs(self.value), 1.0))

    @primitive
    def cos(self) -> Bounded:
        """Return the cosine, which is off by a part of the amplitude."""
        return self._wave(np.cos, np.sin, 1.0)

    def _wave(self, function: Callable[[Array], Array], slope: Callable[[Array], Array], size: Array | float
              ) -> Bounded:
        """A function between -1 and 1, whose derivative is another, and whose second one is at most 1.

        Arguments are turned back by multiples of pi/2: near the zeros of the function what is left is right to a part
        of 1, not of itself.
        """
        with np.errstate(invalid="ignore"):
            value = function(self.value)
            if not self.arithmetic.bounds:
                return self._alone(value)
            carried = np.minimum(self.error * (np.abs(slope(self.value)) + 0.5 * self.error), 2.0)
        error = self._never_exact(carried + 2 * FUNCTION_ULP * self.arithmetic.u * size, lambda: value == 0)
        return Bounded(value, self.arithmetic.with_underflow(error, 1), self.arithmetic)

    @primitive
    def sqrt(self) -> Bounded:
        """Return the square root."""
        return self._function(np.sqrt, smallest=0.0)

    @primitive
    def tanh(self) -> Bounded:
        """Return the hyperbolic tangent, by the least exact way there is: ``1 - 2 / (exp(2x) + 1)``.

        Near 0 that is a difference of numbers near 1, which are off by 4 units of exp(2x) / 2, a sum and a quotient.
        """
        found = self._function(np.tanh)
        lost = (FUNCTION_ULP + 2) * self.arithmetic.u * (found.value != 0)
        return Bounded(found.value, found.error + lost, self.arithmetic)

    @primitive
    def sigmoid(self) -> Bounded:
        """Return ``1 / (1 + exp(-x))``; where the exponential overflows, it is less than the smallest normal number."""
        found = self._by_two()._function(_sigmoid, ulp=2 * FUNCTION_ULP)
        return Bounded(found.value, found.error + self.arithmetic.smallest_normal, self.arithmetic)

    def _by_two(self) -> Bounded:
        """The argument of an exponential, as far off as a rounded power of two has it."""
        lost = BY_TWO * self.arithmetic.u * np.minimum(np.abs(self.value), LARGEST_EXPONENT)
        return Bounded(self.value, self.error + lost, self.arithmetic)

    def _function(self, function: Callable[[Array], Array], *, ulp: int = FUNCTION_ULP,
                  smallest: float = -math.inf) -> Bounded:
        """A monotone function: it lies between its values at the ends of the argument's interval."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            value = function(self.value)
            if not self.arithmetic.bounds:
                return self._alone(value)
            ends = [function(np.maximum(self.value + sign * self.error, smallest)) for sign in (-1, 1)]
        carried = np.maximum(*(np.abs(end - value) for end in ends))
        largest = np.maximum(*(np.abs(end) for end in ends))
        error = self._never_exact(carried + 2 * ulp * self.arithmetic.u * largest, lambda: value == 0)
        return Bounded(value, self.arithmetic.with_underflow(error, 1), self.arithmetic)

    # Choices

    @primitive
    def __gt__(self, threshold: float) -> Choice:
        """Return where the numbers are larger, and where rounding may have decided that."""
        room = self.error + self._operand(threshold).error
        doubt = (np.abs(self.value - threshold) <= room) & (room > 0)
        return Choice(self.value > threshold, doubt)

    @primitive
    def max(self, axes: tuple[int, ...]) -> Bounded:
        """Return the largest along axes, which lies between the largest of the lower ends and that of the upper ones.

        What is far below it has no part in its error: a masked score is -2**100, with an error of 2**76.

        >>> x = Bounded(np.array([1.0, -2.0**100]), np.array([0.25, 2.0**76]), Arithmetic(2.0**-24))
        >>> float(x.max((0,)).error)
        0.25
        """
        value = self.value.max(axes)
        if not self.arithmetic.bounds:
            return self._alone(value)
        ends = [(self.value + sign * self.error).max(axes) for sign in (-1, 1)]
        with np.errstate(invalid="ignore"):
            error = np.maximum(*(np.abs(end - value) for end in ends))
        return Bounded(value, np.where(np.isnan(error), self.error.max(axes), error), self.arithmetic)

    @primitive
    def where_max(self) -> Choice:
        """Return which element of each window (the last two axes) is the largest, of equal ones the first.

        In doubt are all that rounding may make the largest, and equal ones.
        """
        flat = self.value.reshape(*self.shape[:-2], -1)
        first = np.zeros(flat.shape, bool)
        np.put_along_axis(first, flat.argmax(-1)[..., None], True, -1)
        if self.arithmetic.decided:
            return Choice(first.reshape(self.shape), np.zeros(self.shape, bool))
        low = (self.value - self.error).max((-2, -1), keepdims=True)
        possible = self.value + self.error >= low
        doubt = possible & (np.count_nonzero(possible, (-2, -1), keepdims=True) > 1)
        return Choice(first.reshape(self.shape), doubt)

    @primitive
    def shares_of_max(self, axes: tuple[int, ...]) -> Bounded:
        """Return 1 divided among the elements that are the largest along axes, and 0 elsewhere.

        Where rounding may make others the largest, any share is inside the bound; the quotient is rounded.
        """
        equal = self.value == self.value.max(axes, keepdims=True)
        shares = equal / equal.sum(axes, keepdims=True)
        error = self.arithmetic.u * shares
        if not self.arithmetic.decided:
            possible = self.value + self.error >= (self.value - self.error).max(axes, keepdims=True)
            unsure = (possible & (self.error > 0)).any(axes, keepdims=True)
            doubt = possible & unsure & (possible.sum(axes, keepdims=True) > 1)
            error = np.where(doubt, np.maximum(shares, 1 - shares), error)
        return Bounded(shares, error, self.arithmetic)


@dataclass(frozen=True)
class Choice:
    """Where something is true, and where rounding may have decided whether it is.

    Attributes
    ----------
    true, doubt : bool arrays
    """

    true: Array
    doubt: Array

    @primitive
    def choose(self, yes: Bounded | float, no: Bounded | float) -> Bounded:
        """Return `yes` where it is true and `no` elsewhere; where it is in doubt both are inside the bound."""
        some = yes if isinstance(yes, Bounded) else no
        assert isinstance(some, Bounded)
        if not some.arithmetic.bounds:
            pair = (one.value if isinstance(one, Bounded) else one for one in (yes, no))
            return Bounded(np.where(self.true, *pair), 0.0, some.arithmetic)
        (a, e_a), (b, e_b) = (
            (np.broadcast_to(one.value, self.true.shape), np.broadcast_to(one.error, self.true.shape))
            if isinstance(one, Bounded) else (np.full(self.true.shape, one), np.zeros(self.true.shape))
            for one in (yes, no)
        )
        value = np.where(self.true, a, b)
        error = np.where(self.true, e_a, e_b)
        either = np.maximum(np.where(self.true, e_b, e_a) + np.abs(a - b), error)
        terms = max(one.terms for one in (yes, no) if isinstance(one, Bounded))
        return Bounded(value, np.where(self.doubt, either, error), some.arithmetic, terms)


def _product_error(a: Bounded, b: Bounded) -> Array:
    """What errors of two factors make of their product."""
    if a.is_exact:
        return np.asarray(np.abs(a.value) * b.error)
    if b.is_exact:
        return np.asarray(a.error * np.abs(b.value))
    return np.asarray(np.abs(a.value) * b.error + a.error * (np.abs(b.value) + b.error))


def _terms_in(found: Bounded, operand: Bounded) -> float:
    """Of a number that is repeated, as a mean is, one."""
    return operand.terms if operand.shape == found.shape else 1


def _known_or_infinite(error: Array) -> Array:
    """The same without NaN, with which no comparison holds: a choice would be taken to be certain."""
    if not np.isnan(error.max(initial=0.0)):
        return error
    return np.where(np.isnan(error), math.inf, error)


def _size(shape: tuple[int, ...]) -> Pair:
    """Height and width of images (n, c, h, w)."""
    return shape[2], shape[3]


def _of_images(noise: Array | None) -> Array | None:
    """One number for each image is that of all its elements."""
    return noise if noise is None or noise.ndim == 4 else noise.reshape(-1, 1, 1, 1)


def _sigmoid(x: Array) -> Array:
    """Without cancellation on either side of 0."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1 + small)


def _erf(x: Array) -> Array:
    """By the C library."""
    return np.frompyfunc(math.erf, 1, 1)(x).astype(np.float64)
