# SPDX-License-Identifier: MIT
"""Sums that were stored in fewer bits than their precision has: inside their bounds, and yet evidence.

The bound of a sum of a million terms is as wide as the last bit of a float16. But a float32 sum ends in zeros by chance
alone: twice as rarely for every bit, and in every element and step anew. Where the data make it so (zeros, small
integers, exact sums) the reference's sum ends in zeros too, and counts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bridge.common.number_format import count
from bridge.exchange.model import Conv2d, Model, Relu
from bridge.judge.arithmetic.recognised import Recognised
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.outcome import Outcome
from bridge.operations.losses import MeanSquaredError

Array = np.ndarray

#: Significant bits of the types, the fewest first, and what they are called
TYPES = {8: "bf16", 11: "fp16 or TF32"}
#: Significant bits of float32
FULL = 24
#: The probability of a false alarm is at most 2 to the power of minus so many
ENOUGH = 30


def recognise(pair: FilePair, comparison: Comparison) -> Recognised | None:
    """Return that a sum of a float32 result has the digits of 16 bits; None where none has.

    Nothing else may be wrong: no tensor fails, or the loss alone, by no more than its rounding to 16 bits.

    Parameters
    ----------
    pair, comparison : the two files, and what was found
    """
    failures = comparison.failures
    if pair.precision != "float32" or any(one.name != "loss" for one in failures):
        return None
    for name, shape in pair.shapes.items():
        # What is not summed over the image shows fewer bits by its error
        if name == "loss" or (name.endswith(("/weight", "/bias")) and _have_all_digits(pair.model)):
            paths = [f"steps/{k}/{name}" for k in range(pair.steps)]
            known = [path for path in paths if pair.candidate.has(path) and pair.reference.has(path)]
            both = [(pair.candidate.read(path, shape), pair.reference.read(path, shape)) for path in known]
            found = _few(name, both)
            if found is not None and all(_rounded(one, found.bits) for one in failures):
                judged = [one if one.passed else _stored(one, found.bits) for one in comparison.judged]
                return found.recognised(pair, replace(comparison, judged=judged), outside=bool(failures))
            if failures:
                # The loss comes before all gradients, and is none of them
                return None
    return None


def _have_all_digits(model: Model) -> bool:
    """Whether gradients of parameters have the digits of sums of products: before a normalisation one may be the
    rounding of 0, and the slopes of other losses may be a few numbers.
    """
    return isinstance(model.criterion, MeanSquaredError) and model.graph.consists_of(Conv2d, Relu)


@dataclass(frozen=True)
class Few:
    """A sum of so many bits, which float32 has by chance once in 2 to the power of `evidence`."""

    name: str
    steps: int
    bits: int
    evidence: int

    def recognised(self, pair: FilePair, compared: Comparison, *, outside: bool) -> Recognised:
        """Return the record, with the sum judged so; `outside`: rounded to so few bits it leaves its bound."""
        rest = "everything else is inside its bound" if outside else "everything is inside its bound"
        words = (
            f"LOWER PRECISION than declared: {self.name} is stored in {TYPES[self.bits]}. It has at most {self.bits} "
            f"significant bits in {count(self.steps, 'step')}, which float32 numbers have by chance once in "
            f"2^{self.evidence}; {rest}."
        )
        hint = "Look at what it is converted to before it is summed or written: it has 24 bits in float32."
        return Recognised(Outcome.PRECISION, words, pair, compared, (hint,))


def _rounded(judged: Judged, bits: int) -> bool:
    """The error is at most that of a number of so many bits, besides the bound."""
    return judged.statistic.error <= _bound(judged, bits)


def _bound(judged: Judged, bits: int) -> float:
    return judged.statistic.bound + 2.0**-bits * abs(judged.statistic.expected)


def _stored(judged: Judged, bits: int) -> Judged:
    """The same tensor, judged as one of so many bits."""
    bound = _bound(judged, bits)
    return replace(judged, statistic=replace(judged.statistic, bound=bound, t=judged.statistic.error / bound))


def _few(name: str, steps: list[tuple[Array, Array]]) -> Few | None:
    """Of one sum in all steps: the candidate's and the reference's."""
    if not steps or any(found.dtype.itemsize < 4 for found, _ in steps):
        return None
    found, right = (np.concatenate([np.ravel(both[i]) for both in steps]) for i in (0, 1))
    if not (np.isfinite(found).all() and np.isfinite(right).all()):
        return None
    used, needed = significant_bits(found), significant_bits(right)
    for bits in TYPES:
        # One bit less: the last one may be 0 by rounding to even
        evidence = int(np.maximum(0, needed - bits - 1)[found != 0].sum())
        if (used <= bits).all() and evidence >= ENOUGH:
            return Few(name, len(steps), bits, evidence)
    return None


def significant_bits(x: Array) -> Array:
    """Return how many bits the fraction of each float32 number needs, from its first to its last 1.

    >>> significant_bits(np.float32([0.0, 1.0, 0.625, 1 + 2.0**-10, 1 + 2.0**-23])).tolist()
    [0, 1, 3, 11, 24]
    """
    fraction = np.rint(np.abs(np.frexp(x.astype(np.float64))[0]) * 2.0**FULL).astype(np.int64)
    lowest = fraction & -fraction
    return np.where(fraction == 0, 0, FULL - np.frexp(np.maximum(lowest, 1).astype(np.float64))[1] + 1)

