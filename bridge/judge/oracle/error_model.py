# SPDX-License-Identifier: MIT
"""What an arithmetic may lose: unit roundoff, the error factor s(n) of a sum, underflow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bridge.judge.oracle.algorithm import Algorithm

Array = np.ndarray

#: Unit roundoff by precision
UNIT_ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}
#: Smallest positive number by precision
SMALLEST = {"float32": 2.0**-149, "float64": 2.0**-1074}
#: What one rounding to nearest loses at most among subnormal numbers: half of the smallest, and in float64 as much in
#: the oracle
SUBNORMAL_ROUNDING = {"float32": 2.0**-150, "float64": 2.0**-1074}
#: Smallest positive number with all its digits; below it are subnormal numbers, which may be flushed to zero
SMALLEST_NORMAL = {"float32": 2.0**-126, "float64": 2.0**-1022}
#: Largest relative error of an operand that is rounded to a lower precision before it is multiplied
OPERAND_ROUNDOFF = {
    "TF32": 2.0**-11,
    "TF32 ties away": 2.0**-11,
    "TF32 truncated": 2.0**-10,
    "bf16": 2.0**-8,
    "bf16 truncated": 2.0**-7,
    "fp16": 2.0**-11,
}

#: Roundings of a sum of products in wider accumulators: both operands, which were rounded for the file, and the result
WIDER = 3


def rounding_factor(n: Array | float, u: float) -> Array:
    """Return s(n), the relative error, against the sum of absolute values, that n roundings may leave.

    >>> bool(rounding_factor(81, 1.0) == 81.0)
    True
    """
    n = np.asarray(n, dtype=np.float64)
    return u * np.where(n <= 81, n, 9.0 * np.sqrt(n))


def total_roundoff(precision: str) -> float:
    """Return the unit roundoff of the candidate plus that of the float64 oracle itself."""
    return UNIT_ROUNDOFF[precision] + UNIT_ROUNDOFF["float64"]


@dataclass(frozen=True)
class Arithmetic:
    """How a candidate computes.

    Attributes
    ----------
    u : float
        Unit roundoff of sums and of everything that is stored, see `total_roundoff`.
    operand : float
        Largest relative error of an operand before it is multiplied; 0 where operands are exact.
    algorithm : Algorithm or None
        How convolutions are computed where they are no sums of products; it has a bound of its own.
    flushes : bool
        Subnormal numbers become 0, in results (flush to zero) and operands (denormals are zero).
    cancels : bool
        The gradient of the loss is a difference of rounded products, c*y - c*t.
    bias : float
        Largest bias b of a gradient of the loss that is made of a rounded b - t; it cancels, too.
    decided : bool
        Of numbers that rounding cannot tell apart the first is the largest; else any of them may be.
    bounds : bool
        Errors are wanted; else only the numbers are computed, and every error is 0.
    """

    u: float
    operand: float = 0.0
    algorithm: Algorithm | None = None
    flushes: bool = False
    cancels: bool = False
    bias: float = 0.0
    decided: bool = False
    bounds: bool = True

    def factor(self, n: Array | float) -> Array:
        """Return s(n) of a sum of products; each product has two operands.

        A sum of few products has the roundings of `WIDER` accumulators; what is not rounded at all (n = 0) has none.
        """
        n = np.where(np.asarray(n) > 0, np.maximum(n, WIDER), 0)
        return rounding_factor(n, self.u) + self.operand * (2 + self.operand)

    def with_underflow(self, bound: Array, n: Array | float) -> Array:
        """Return the bound, in place, with the smallest number for each of n products; what is exact (0) stays exact.
        """
        if self.may_underflow(bound, n):
            bound += self._underflow(n) * (bound > 0)
        return bound

    def may_underflow(self, bound: Array, n: Array | float) -> bool:
        """Return whether `with_underflow` changes anything: nearly always it is lost to rounding everywhere."""
        return not (bound.size and bound.min() >= self._underflow(n) * 2.0**54)

    @property
    def smallest_normal(self) -> float:
        """Return the smallest normal number of the candidate's precision; 0 where nothing is rounded."""
        return SMALLEST_NORMAL[self._precision] if self.u > 0 else 0.0

    @property
    def _precision(self) -> str:
        return "float64" if self.u < UNIT_ROUNDOFF["float32"] else "float32"

    def _underflow(self, n: Array | float) -> float:
        smallest = SMALLEST_NORMAL if self.flushes else SMALLEST
        return smallest[self._precision] * float(np.max(n))

    def noise(self, bound: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
        """Return what the algorithm adds to the bound of the sums: u times `bound` of the operands' absolute values.

        What is transformed may be subnormal, and so may products: their rounding is u times another number. No operand
        that is not 0 counts as smaller than that, nor the product of the largest.
        """
        floor = self.lost(1) / self.u if self.u else 0.0
        sizes = [float(one.max(initial=0.0)) for one in (a, b)]
        if floor and min(sizes) > 0 and max(sizes) < math.inf:
            share = math.sqrt(floor) / math.sqrt(sizes[0]) / math.sqrt(sizes[1])
            a, b = (one + (one != 0) * max(floor, share * size) for one, size in zip((a, b), sizes, strict=True))
        return self.u * bound(a, b)

    def lost(self, products: int, sums: int = 0) -> float:
        """Return what products (or quotients) and sums may lose among subnormal numbers; 0 where nothing is rounded.

        A sum of two numbers is exact there, a product is not. Where such numbers are flushed to zero, each may be lost.

        >>> Arithmetic(2.0**-24).lost(2, 1) == 2 * 2.0**-150
        True
        >>> Arithmetic(2.0**-24, flushes=True).lost(2, 1) == 3 * 2.0**-126
        True
        """
        if self.flushes:
            return self._underflow(products + sums)
        return products * SUBNORMAL_ROUNDING[self._precision] if self.u > 0 else 0.0
