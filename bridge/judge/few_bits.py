# SPDX-License-Identifier: MIT
"""A loss that was stored in fewer bits than its precision has: inside its bound, and yet evidence.

The bound of a sum of a million squares is as wide as the last bit of a float16. But a float32 loss ends in zeros by
chance alone: twice as rarely for every bit, and in every step anew.
"""

from __future__ import annotations

import math

from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.outcome import Outcome
from bridge.judge.verdict import Verdict

#: Significant bits of the types, the fewest first, and what they are called
TYPES = {8: "bf16", 11: "fp16 or TF32"}
#: Significant bits of float32
FULL = 24
#: Of the oracle, whose own rounding is far behind them
ORACLE = 40
#: The probability of a false alarm is at most 2 to the power of minus so many
ENOUGH = 30


def few_bits(pair: FilePair, comparison: Comparison) -> Verdict | None:
    """Return the verdict on a right float32 result whose losses have the digits of 16 bits; None where they have more.

    Where the oracle's own loss needs few bits (zero, small integers, exact data) they are no evidence.

    Parameters
    ----------
    pair : the two files
    comparison : nothing in it fails
    """
    losses = [judged for judged in comparison.judged if judged.name == "loss"]
    if pair.precision != "float32" or not all(_stored_whole(pair, one.step) for one in losses):
        return None
    terms = math.prod(pair.output_shape)
    for bits, name in TYPES.items():
        if all(significant_bits(one.statistic.found) <= bits for one in losses):
            evidence = sum(_free_bits(one, bits, terms) for one in losses)
            if evidence >= ENOUGH:
                return _verdict(len(losses), bits, name, evidence)
    return None


def significant_bits(x: float, precision: int = FULL) -> int:
    """Return how many bits the fraction of a number needs, from its first to its last 1, rounded to `precision`.

    >>> [significant_bits(x) for x in (0.0, 1.0, 0.625, 1 + 2.0**-10, 1 + 2.0**-23)]
    [0, 1, 3, 11, 24]
    """
    if not math.isfinite(x):
        return precision
    fraction = round(abs(math.frexp(x)[0]) * 2**precision)
    return fraction.bit_length() - (fraction & -fraction).bit_length() + 1 if fraction else 0


def _stored_whole(pair: FilePair, step: int) -> bool:
    """The file's own number type has all bits of a float32."""
    return pair.candidate.read(f"steps/{step}/loss", ()).dtype.itemsize >= 4


def _free_bits(loss: Judged, bits: int, terms: int) -> int:
    """Bits beyond `bits` that a right loss would fill at random.

    Sums of squares do not cancel, so the last bit of a float32 loss is its own. Only differences y - t that are a few
    units in the last place of y have common factors; then E is about as large as the loss, for E holds what an error of
    y changes: squares of differences that are multiples of E_y are multiples of about E*E/loss over their number.
    """
    s = loss.statistic
    if not (s.expected > 0 and s.bound > 0):
        return 0
    spacing = 2.0 ** (math.frexp(s.expected)[1] - bits)
    grid = 64 * s.bound**2 / (terms * s.expected)
    known = math.floor(math.log2(spacing / grid))
    # What the oracle's loss needs, and one bit less, as the last rounding may be to even
    needed = min(significant_bits(s.expected, ORACLE), FULL) - bits - 1
    return max(0, min(needed, known))


def _verdict(steps: int, bits: int, name: str, evidence: int) -> Verdict:
    words = (
        f"LOWER PRECISION than declared: the loss is stored in {name}. It has at most {bits} significant bits in each "
        f"of {steps} steps, which a float32 number has by chance once in 2^{evidence}; everything is inside its bound."
    )
    hint = "Look at what the loss is converted to before it is summed or written: it has 24 bits in float32."
    return Verdict(Outcome.PRECISION, words, [hint])
