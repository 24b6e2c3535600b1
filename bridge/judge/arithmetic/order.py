# SPDX-License-Identifier: MIT
"""Recognise a gradient of the loss that is computed as c*y - c*t: a legal order of evaluation that loses digits.

With c = 2/N the gradient is c*(y - t). Where y is near t that difference is exact (Sterbenz' lemma), but the products
are rounded before they are subtracted, and what is left are their roundings. It is computed again from the candidate's
own output, in its precision, and must give its numbers; everything else must be right with those.

Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 1.7 (cancellation), 2.1 (Sterbenz).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bridge.common.number_format import short
from bridge.judge.arithmetic.recognised import Recognised
from bridge.judge.measure.comparison import compare
from bridge.judge.measure.file_pair import FilePair
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.outcome import Outcome
from bridge.operations.losses import MeanSquaredError

Array = np.ndarray


def recognise(pair: FilePair, comparison: Comparison) -> Recognised | None:
    """Return that the gradient of the loss is computed as c*y - c*t; None where that does not explain everything.

    Parameters
    ----------
    pair, comparison : the two files, and what was found
    """
    if pair.model.loss != MeanSquaredError.kind:
        return None
    failures, name = comparison.failures, _gradient(pair)
    failed = [one for one in failures if one.name == name]
    if not failed or failures[0] is not failed[0]:
        return None
    if not all(_is_difference_of_products(pair, one.step) for one in failed):
        return None
    cancelling = pair.judged_with(cancels=True)
    cancelled = compare(cancelling)
    if cancelled.failures:
        return None
    words = _words(max(failed, key=lambda one: one.statistic.relative_error), pair.u)
    hint = "Write c*(y - t), with c = 2/N for a mean: subtract before you scale."
    return Recognised(Outcome.PRECISION, words, cancelling, cancelled, (hint,))


def _gradient(pair: FilePair) -> str:
    return f"grads/{pair.model.layers[-1].name}/output"


def _is_difference_of_products(pair: FilePair, step: int) -> bool:
    """Whether the numbers of all images are those of one way to write c*y - c*t."""
    shape, (gradient, output) = pair.output_shape, (_gradient(pair), f"forward/{pair.model.layers[-1].name}")
    if not all(pair.candidate.has(f"steps/{step}/{name}") for name in (gradient, output)):
        return False
    left: set[int] | None = None
    for image in range(shape[0]):
        found, y = (pair.candidate.read(f"steps/{step}/{name}", shape, image) for name in (gradient, output))
        t = pair.batch(step, "target", image).astype(pair.dtype)
        if not found.dtype == y.dtype == pair.dtype:
            return False
        same = {i for i, one in enumerate(_differences(y, t, pair.loss_scale)) if np.array_equal(one, found)}
        left = same if left is None else left & same
        if not left:
            return False
    return True


def _differences(y: Array, t: Array, scale: float) -> Iterator[Array]:
    """2*scale*y - 2*scale*t with c rounded or divided by, each rounded by itself or one of them in an FMA."""
    one = y.dtype.type
    c, n = one(2 * scale), one(1 / scale)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        yield c * y - c * t
        yield 2 * y / n - 2 * t / n
        if y.dtype == np.float32:
            # Products of two float32 are exact in float64
            exact = [float(c) * x.astype(np.float64) for x in (y, t)]
            yield (exact[0] - c * t).astype(np.float32)
            yield (c * y - exact[1]).astype(np.float32)


def _words(worst: Judged, u: float) -> str:
    error = worst.statistic.relative_error
    digits = math.log10(error / u) if error > u else 0.0
    return (
        f"LOWER PRECISION than declared: the gradient of the loss ({worst.name}) is computed as c*y - c*t: legal, but "
        f"it loses {digits:.1f} digits where y is near t (step {worst.step}, T = {short(worst.t)}). Everything else is "
        "right with that gradient."
    )
