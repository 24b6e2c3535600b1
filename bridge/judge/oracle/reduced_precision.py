# SPDX-License-Identifier: MIT
"""What a lower precision makes of a convolution: its operands are rounded, and where tensors are stored in 16 bits its
result is, too.

Rounding is monotone: a float32 sum that is known to an error E becomes, when it is stored, a number between the
roundings of both its ends. Mostly these are the same number, and the prediction is exact; near a tie they are
neighbours.

Sources: IEEE 754-2019, 4.3 (rounding); NVIDIA, PTX ISA (cvt.rna.tf32: ties away from zero); M. Fasi, N. J. Higham,
M. Mikaitis and S. Pranesh, PeerJ Comput. Sci. 7 (2021) e330 (tensor cores cut their sums off).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bridge.judge.oracle.error_model import total_roundoff

Array = np.ndarray
Rounding = Callable[[Array], Array]

#: Unit roundoff of a float32 sum that is cut off instead of rounded
CUT_OFF = 2 * total_roundoff("float32")


def round_fraction(x: Array, bits: int, *, away: bool = False) -> Array:
    """Round float32 values to `bits` bits of fraction, ties to even or away from zero.

    >>> float(round_fraction(np.float32([1 + 2**-11 + 2**-12]), 10)[0]) == 1 + 2**-10
    True
    >>> [float(round_fraction(np.float32([1.25]), 1, away=away)[0]) for away in (False, True)]
    [1.0, 1.5]
    """
    drop = 23 - bits
    raw = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    half = np.uint32(1 << (drop - 1)) if away else np.uint32((1 << (drop - 1)) - 1) + ((raw >> drop) & np.uint32(1))
    return ((raw + half) & np.uint32(~((1 << drop) - 1) & 0xFFFFFFFF)).view(np.float32)


def truncate_fraction(x: Array, bits: int) -> Array:
    """Cut float32 values after `bits` bits of fraction.

    >>> float(truncate_fraction(np.float32([1 + 2**-10 + 2**-11]), 10)[0]) == 1 + 2**-10
    True
    """
    raw = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return (raw & np.uint32(~((1 << (23 - bits)) - 1) & 0xFFFFFFFF)).view(np.float32)


def to_fp16(x: Array) -> Array:
    """Return the values rounded to float16: subnormal below 6.1e-5, 0 below 3e-8, infinite above 65504.

    >>> to_fp16(np.array([2.0**-26, 1 + 2.0**-11, 1e5])).tolist()
    [0.0, 1.0, inf]
    """
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(x, dtype=np.float32).astype(np.float16)


def to_bf16(x: Array) -> Array:
    """Return the values rounded to bfloat16, in float32."""
    return round_fraction(x, 7)


@dataclass(frozen=True)
class ReducedPrecision:
    """A lower precision of convolutions.

    Attributes
    ----------
    name : as in a report's JSON, "TF32", "bf16 stored"
    operands : rounds them
    results : rounds what comes out; None leaves it in float32
    relative, absolute : one step of `results`
    bias_inside : the bias is added before the result is rounded, else after, in float32
    """

    name: str
    operands: Rounding
    results: Rounding | None = None
    relative: float = 0.0
    absolute: float = 0.0
    bias_inside: bool = False

    @property
    def type(self) -> str:
        """Return the name of its numbers.

        >>> HALF["bf16 stored"].type
        'bf16'
        """
        return self.name if self.results is None else self.name.split(" ")[0]

    @property
    def said(self) -> str:
        """
        >>> HALF["bf16 stored"].said, HALF["fp16 autocast"].said
        ('bf16 operands and results', 'fp16 operands, bias and results')
        """
        if self.results is None:
            return f"{self.name} operands"
        return f"{self.type} operands{', bias' if self.bias_inside else ''} and results"

    def widened(self, x: Array) -> Array:
        """Return the operands as they are multiplied, in float64."""
        return self.operands(np.asarray(x, dtype=np.float32)).astype(np.float64)

    def stored(self, value: Array, error: Array | float, bias: Array | None = None) -> tuple[Array, Array]:
        """Return a result and its bound.

        Parameters
        ----------
        value, error : the sum of products and how far a float32 sum may be from it, float64
        bias : added to it; broadcast against the sum

        Returns
        -------
        value, error : the middle of the numbers that may come out, and half their distance
        """
        low, high = value - error, value + error
        if bias is not None and self.bias_inside:
            low, high = self._with_bias(low, bias, np.minimum), self._with_bias(high, bias, np.maximum)
        else:
            low, high = self._rounded(low), self._rounded(high)
        middle, half = (low + high) / 2, (high - low) / 2
        if bias is None or self.bias_inside:
            return middle, half
        # One addition in float32
        middle = middle + bias
        return middle, half + total_roundoff("float32") * (np.abs(middle) + half)

    def step(self, value: Array, bias: Array | None = None) -> Array:
        """Return how far neighbours of some results are apart; a bias that is added later hides how large they were."""
        size = np.abs(value) if bias is None else np.abs(value) + np.abs(bias)
        return self.relative * size + self.absolute

    def _with_bias(self, x: Array, bias: Array, extreme: Callable[..., Array]) -> Array:
        """One end of the sums with a bias that is rounded or not, and where the sum alone may be rounded before."""
        biases = extreme(bias, self.widened(bias))
        return extreme(self._rounded(x + biases), self._rounded(self._rounded(x) + biases))

    def _rounded(self, x: Array) -> Array:
        assert self.results is not None
        return self.results(x).astype(np.float64)


def _stored(name: str, operands: Rounding, relative: float, absolute: float) -> list[ReducedPrecision]:
    return [
        ReducedPrecision(name, operands),
        ReducedPrecision(f"{name} stored", operands, operands, relative, absolute),
        ReducedPrecision(f"{name} autocast", operands, operands, relative, absolute, bias_inside=True),
    ]


_FP16, _BF16 = _stored("fp16", to_fp16, 2.0**-10, 2.0**-24), _stored("bf16", to_bf16, 2.0**-7, 2.0**-133)

#: By declared precision: how else a convolution may be computed, the best precision first
HYPOTHESES: dict[str, dict[str, ReducedPrecision]] = {
    "float32": {
        one.name: one
        for one in (
            ReducedPrecision("TF32", lambda x: round_fraction(x, 10)),
            ReducedPrecision("TF32 ties away", lambda x: round_fraction(x, 10, away=True)),
            ReducedPrecision("TF32 truncated", lambda x: truncate_fraction(x, 10)),
            *_FP16,
            *_BF16,
            ReducedPrecision("bf16 truncated", lambda x: truncate_fraction(x, 7)),
        )
    },
    "float64": {"float32": ReducedPrecision("float32", lambda x: np.asarray(x, dtype=np.float32))},
}

#: Those that store results in 16 bits
HALF: dict[str, ReducedPrecision] = {
    name: one for name, one in HYPOTHESES["float32"].items() if one.results is not None}


def words(name: str) -> str:
    """Return a lower precision by its name, in words.

    >>> words("TF32"), words("float32"), words("bf16 stored")
    ('TF32 operands', 'float32 operands', 'bf16 operands and results')
    """
    return HALF[name].said if name in HALF else f"{name} operands"
