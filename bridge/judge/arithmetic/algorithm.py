# SPDX-License-Identifier: MIT
"""Recognise convolutions by an algorithm that is no sum of products, by running it.

A convolution or a data gradient that is outside the bound of sums of products, computed from the candidate's own
inputs, is computed by every algorithm that applies to it, in the candidate's precision. The candidate's errors must
look like those of one of them: inside its bound, as large in all and in each channel, and no more related to the right
values or to a constant than those are, as errors of a fault of layout, scale or sign would be. Of several algorithms
it is the one whose errors agree with the candidate's, element by element: the same roundings are made in the same
places. Algorithms and bounds are in `bridge.judge.oracle.algorithms`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bridge.common.number_format import short
from bridge.judge.arithmetic.recognised import OtherAlgorithm, Recognised
from bridge.judge.arithmetic.samples import Sample, samples
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison
from bridge.judge.measure.outcome import Outcome
from bridge.judge.oracle import convolution
from bridge.judge.oracle.algorithm import Algorithm
from bridge.judge.oracle.algorithms import Direct, known, summed, title
from bridge.judge.oracle.error_model import Arithmetic

Array = np.ndarray

#: How far a size may be from that of the algorithm's errors, which depend on points, tiles and orders of sums
ALIKE, ALIKE_IN_A_CHANNEL = 4.0, 8.0
#: Cosine of errors with right values, or with a constant, that is no accident of many numbers
RELATED = 0.75
#: Elements of a channel of which that can be said
FEWEST = 8
#: Correlation of errors that different algorithms do not have: of few elements, or where errors are hardly larger than
#: the last digit that all of them round, it is 0.3; that of two programs of one algorithm may be as small
CORRELATED = 0.5
#: In place of a size 0 in a quotient
TINY = 1e-300
#: Algorithms by whose bounds everything is compared, and convolutions, the smallest, by which these are chosen
MOST_COMPARED, MOST_ASKED = 3, 4


@dataclass(frozen=True)
class Likeness:
    """How the candidate's errors compare with an algorithm's: T by its bound, the ratio of sizes, the correlation."""

    algorithm: Algorithm
    t: float
    ratio: float
    correlation: float

    @property
    def agrees(self) -> bool:
        """Return whether the same roundings were made in the same places."""
        return self.correlation > CORRELATED

    @property
    def order(self) -> tuple[float, float]:
        """Return a key: the most alike first."""
        return -self.correlation, abs(math.log(self.ratio))


def recognise(pair: FilePair, comparison: Comparison, allowed: frozenset[str] = frozenset()) -> Recognised | None:
    """Return the algorithm that explains the first convolution that looks like one, and the comparison by its bounds.

    In that comparison convolutions whose errors are not like the algorithm's keep the bound of sums of products. None
    where no convolution shows an algorithm, and where the first weights are wrong. One of the families that are
    `allowed` comes first, and is rounding.
    """
    if any(judged.given for judged in comparison.failures):
        # What is computed from other weights has errors of its own
        return None
    seen = [Errors.of(sample) for sample in samples(pair, comparison)]
    for errors in seen:
        alike = errors.alike(pair.u)
        if alike:
            meant = [one for one in alike if one.algorithm.family in allowed]
            likeness, compared = _best(pair, comparison, meant or alike, seen)
            found = _found(comparison, errors, likeness, alike)
            return _recognised(found, pair.computed_by(found.algorithm), compared, allowed=bool(meant))
    return None


def _recognised(found: OtherAlgorithm, pair: FilePair, compared: Comparison, *, allowed: bool) -> Recognised:
    """The record; `allowed`: the algorithm was declared, or asked for."""
    family = found.algorithm.family
    price = f"at a price of {found.digits:.1f} digits" if found.digits >= 0.05 else "at no price in digits"
    like = f"like those of {found.name}{''.join(f' or {other}' for other in found.others)}"
    shown = (
        f"the errors of {found.layer} are {like}, {short(found.declared_t)} x the bound of direct sums "
        f"(by its own bound: T = {short(found.t)}), {price}"
    )
    besides = f"Besides, {shown}. All this is judged by the bounds of that algorithm."
    if allowed:
        words = f"rounding of {found.name}: {shown}"
        return Recognised(Outcome.ROUNDING, words, pair, compared, besides=besides, algorithms=(found,))
    words = f"OTHER ALGORITHM than direct sums: {shown}, and nothing is further off than that explains."
    hint = (
        f"That is rounding where it is meant: declare it in the file (conv_algorithm = '{family}'), or say "
        f"--allow {family}{', or which of them it is' if found.others else ''}. A bug smaller than its rounding cannot "
        "be excluded."
    )
    return Recognised(Outcome.PRECISION, words, pair, compared, (hint,), besides, algorithms=(found,))


@dataclass(frozen=True)
class Errors:
    """How far a sample is from the right result.

    Attributes
    ----------
    sample : what was computed
    right, absolute : the right result, and the same sum with absolute values, (k, p, q), float64
    n : number of roundings in each element
    error : of the candidate
    """

    sample: Sample
    right: Array
    absolute: Array
    n: Array
    error: Array

    @classmethod
    def of(cls, sample: Sample) -> Errors:
        """Compute what is right in float64."""
        x, w, layer = sample.x.astype(np.float64), sample.w.astype(np.float64), sample.layer
        right = sample.cut(summed(x, w, layer)) + sample.b
        absolute = sample.cut(summed(np.abs(x), np.abs(w), layer)) + np.abs(sample.b)
        n = convolution.products_forward(layer, x.shape[1:], layer.output_shape((1, *x.shape))[2:])
        return cls(sample, right, absolute, sample.cut(n) + layer.bias, sample.found - right)

    def alike(self, u: float) -> list[Likeness]:
        """Return the algorithms whose errors look like the candidate's, the most alike first.

        None where the candidate's own inputs make it a right sum of products: only its inputs are wrong.
        """
        if not np.isfinite(self.error).all() or self._t(Direct("", ""), u) <= 1:
            return []
        found = [self._likeness(one, u) for one in known() if one.applies(self.sample.kernel)]
        return sorted((one for one in found if one is not None), key=lambda one: one.order)

    def like(self, algorithm: Algorithm, u: float) -> bool:
        """Return whether the errors are such as sums of products make, or this algorithm."""
        if self._t(Direct("", ""), u) <= 1:
            return True
        return bool(np.isfinite(self.error).all()) and self._likeness(algorithm, u) is not None

    def of_direct(self) -> float:
        """Return the decimal digits by which the errors are larger than those of a sum of products."""
        direct = _norm(self._computed(Direct("", "")) - self.right)
        return max(0.0, math.log10(_norm(self.error) / direct)) if direct > 0 else math.inf

    def _likeness(self, algorithm: Algorithm, u: float) -> Likeness | None:
        t = self._t(algorithm, u)
        if not t <= 1:
            return None
        theirs = self._computed(algorithm) - self.right
        chance = min(0.9, RELATED + 4 / math.sqrt(self.error[0].size))
        if (self._related(self.error) > chance + 2 * self._related(theirs)).any():
            return None
        ratio = _ratio(self.error, theirs)
        if ratio is None or self._is_fault(theirs, u):
            return None
        correlation = float(np.vdot(self.error, theirs)) / (_norm(self.error) * _norm(theirs))
        return Likeness(algorithm, t, ratio, correlation)

    def _is_fault(self, theirs: Array, u: float) -> bool:
        """Whether a factor and a constant of each channel leave errors of sums of products.

        They must explain more of the errors of all channels than half the way from their share of an algorithm's to
        all: its own may be such in a part. Of few numbers a factor and a constant explain much by chance.
        """
        if self.error[0].size < FEWEST:
            return False
        share = [math.sqrt(max(0.0, 1 - (_norm(self._rest(one)) / _norm(one)) ** 2)) for one in (self.error, theirs)]
        if not share[0] > (1 + share[1]) / 2:
            return False
        return self._t(Direct("", ""), u, self._rest(self.error)) <= 1

    def _rest(self, error: Array) -> Array:
        """What a factor of the right values and a constant leave in each channel."""
        rest = np.empty_like(error)
        for k, (one, right) in enumerate(zip(error, self.right, strict=True)):
            columns = np.stack([right.ravel(), np.ones(right.size)], 1)
            rest[k] = (one.ravel() - columns @ np.linalg.lstsq(columns, one.ravel(), rcond=None)[0]).reshape(one.shape)
        return rest

    def _t(self, algorithm: Algorithm, u: float, error: Array | None = None) -> float:
        """T of the candidate, or of other errors, by the bound of an algorithm."""
        x, w = (np.abs(one.astype(np.float64)) for one in (self.sample.x, self.sample.w))
        noise = algorithm.forward_bound(x, w, self.sample.layer)
        bound = Arithmetic(u, algorithm.operand).factor(self.n) * self.absolute
        bound = bound + u * (noise if noise.size == 1 else self.sample.cut(noise)) + self.sample.spare
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.abs(self.error if error is None else error) / bound
        return float(np.nan_to_num(ratio, nan=0.0, posinf=math.inf).max())

    def _computed(self, algorithm: Algorithm) -> Array:
        """What an algorithm gives in the candidate's precision."""
        one = self.sample
        z = algorithm.forward_of(one.image, one.images, one.w, one.layer)
        z = one.cut(algorithm.forward(one.x, one.w, one.layer) if z is None else z)
        return (z + one.b.astype(z.dtype)).astype(np.float64)

    def _related(self, error: Array) -> Array:
        """How much the errors of each channel are a part of the right values, and a constant, (2, k), from 0 to 1."""
        size = np.sqrt((error * error).sum((1, 2)))
        cosine = np.abs((error * self.right).sum((1, 2))) / np.sqrt((self.right * self.right).sum((1, 2)) + TINY)
        return np.stack([cosine, np.abs(error.sum((1, 2))) / math.sqrt(error[0].size)]) / np.maximum(size, TINY)


def _ratio(error: Array, theirs: Array) -> float | None:
    """Size of the candidate's errors over that of an algorithm's; None where they are not alike."""
    if not theirs.any() or float(np.abs(error).max()) > ALIKE_IN_A_CHANNEL * float(np.abs(theirs).max()):
        return None
    ratio = _norm(error) / _norm(theirs)
    each, its = (np.sqrt((one * one).mean((1, 2))) for one in (error, theirs))
    alike = (each <= ALIKE_IN_A_CHANNEL * its) & (its <= ALIKE_IN_A_CHANNEL * each)
    return ratio if 1 / ALIKE <= ratio <= ALIKE and alike.all() else None


def _norm(a: Array) -> float:
    return float(np.linalg.norm(a))


def _best(
    pair: FilePair, direct: Comparison, alike: list[Likeness], seen: list[Errors]
) -> tuple[Likeness, Comparison]:
    """The one by whose bounds the fewest tensors fail, of those that are like the most convolutions: errors of few
    elements are like those of many algorithms, and agree with some by chance."""
    asked = sorted(seen, key=lambda one: one.error.size)[:MOST_ASKED]
    unlike = [sum(not errors.like(one.algorithm, pair.u) for errors in asked) for one in alike]
    by_bounds = []
    for _, one in sorted(zip(unlike, alike, strict=True), key=lambda both: both[0])[:MOST_COMPARED]:
        compared = compare(pair.computed_by(one.algorithm))
        _keep_unlike(direct, compared, [errors for errors in seen if not errors.like(one.algorithm, pair.u)])
        by_bounds.append((one, compared))
        if not compared.failures:
            break
    return min(by_bounds, key=lambda both: len(both[1].failures))


def _keep_unlike(direct: Comparison, compared: Comparison, unlike: list[Errors]) -> None:
    """What the algorithm does not explain is judged as before, although it is inside the algorithm's bound."""
    before = {(judged.name, judged.step): judged for judged in direct.judged}
    names = {(one.sample.name, one.sample.step) for one in unlike}
    compared.judged = [
        before[judged.name, judged.step] if judged.passed and (judged.name, judged.step) in names else judged
        for judged in compared.judged
    ]


def _found(comparison: Comparison, errors: Errors, likeness: Likeness, alike: list[Likeness]) -> OtherAlgorithm:
    sample, algorithm = errors.sample, likeness.algorithm
    others = dict.fromkeys(one.algorithm.family for one in alike)
    others.pop(algorithm.family)
    return OtherAlgorithm(
        algorithm, title(algorithm, sample.kernel), sample.name, likeness.t,
        comparison.t(sample.name, sample.step), errors.of_direct(), () if likeness.agrees else tuple(others))
