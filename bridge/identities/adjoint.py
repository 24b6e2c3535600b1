# SPDX-License-Identifier: MIT
"""What a check of the adjoint identity finds: three products that should be equal, and which of them is not.

Source of the bounds: `bridge.identities`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle.error_model import OPERAND_ROUNDOFF

#: Of a probable error, as in `bridge.judge.oracle.error_model`
LAMBDA = 9.0
#: Relative error of a product of two bfloat16 operands
LOWEST_PRECISION = 2 * OPERAND_ROUNDOFF["bf16"]
FORWARD, FILTER, DATA = "<dz, z - b>", "<w, dw>", "<x, dx>"
#: Which operation is wrong where the other two agree
MADE_BY = {FORWARD: "the forward pass", FILTER: "the filter gradient", DATA: "the data gradient"}


@dataclass
class Projection:
    """One of the three products, summed over the batch.

    Attributes
    ----------
    value : the product
    square : square of the probable error, u sqrt(n) times a Euclidean norm
    rounding : what rounding cannot exceed, s(n) C
    norm : square of the Euclidean norm of the weighted sums of absolute values
    """

    value: float = 0.0
    square: float = 0.0
    rounding: float = 0.0
    norm: float = 0.0

    @property
    def certain(self) -> float:
        """Return the error that neither rounding nor a precision as low as bfloat16 explains."""
        return max(self.rounding, LOWEST_PRECISION * (abs(self.value) + math.sqrt(self.norm)))

    def add(self, other: Projection) -> None:
        """Add another image's part."""
        self.value += other.value
        self.square += other.square
        self.rounding += other.rounding
        self.norm += other.norm


@dataclass(frozen=True)
class Adjoint:
    """The identity of one convolution in one step.

    Attributes
    ----------
    layer, step : which
    sides : the products that the file allows, two or three, by name
    scale : C, the sum of absolute values
    others : names of other layers that take x
    """

    layer: str
    step: int
    sides: dict[str, Projection]
    scale: float
    others: tuple[str, ...] = ()

    def t(self, one: str, other: str) -> float:
        """Return the difference of two products over what rounding may do; infinite where it is not finite."""
        a, b = self.sides[one], self.sides[other]
        gap, limit = abs(a.value - b.value), LAMBDA * math.sqrt(a.square + b.square)
        if not (math.isfinite(gap) and math.isfinite(limit)):
            return math.inf
        return 0.0 if gap == 0 else gap / limit if limit > 0 else math.inf

    @property
    def largest(self) -> float:
        """Return the largest T of all pairs."""
        return max(self.t(*pair) for pair in self._pairs)

    @property
    def gap(self) -> float:
        """Return the distance between the smallest and the largest product, as a part of C."""
        values = [side.value for side in self.sides.values()]
        return (max(values) - min(values)) / self.scale if self.scale else 0.0

    @property
    def outcome(self) -> Outcome:
        """Return the outcome: rounding, a bug, or cannot tell."""
        if all(self.t(*pair) <= 1 for pair in self._pairs):
            return Outcome.ROUNDING
        return Outcome.BUG if any(self._certain(*pair) for pair in self._pairs) else Outcome.CANNOT_TELL

    @property
    def implicated(self) -> str:
        """Return the operation that is wrong, in words; empty where all agree."""
        if self.outcome is Outcome.ROUNDING:
            return ""
        agreeing = [pair for pair in self._pairs if self.t(*pair) <= 1]
        if len(agreeing) == 1:
            (odd,) = set(self.sides) - set(agreeing[0])
            return f"{self._made(odd)}: the other two agree"
        if len(self.sides) == 2:
            return " or ".join(self._made(name) for name in self.sides)
        return f"at least two operations of {self.layer}, or a tensor that all three use"

    def _made(self, side: str) -> str:
        """The operation that makes a side; of a gradient that is a sum all that make it."""
        layers = (self.layer, *self.others) if side == DATA else (self.layer,)
        return f"{MADE_BY[side]} of {' or '.join(layers)}"

    @property
    def _pairs(self) -> list[tuple[str, str]]:
        return list(combinations(self.sides, 2))

    def _certain(self, one: str, other: str) -> bool:
        a, b = self.sides[one], self.sides[other]
        return not abs(a.value - b.value) <= a.certain + b.certain
