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
    """Return that the gradient of the loss is computed as c*y - c*t, or from the output before its bias is added; None
    where that does not explain everything.

    Parameters
    ----------
    pair, comparison : the two files, and what was found
    """
    if pair.model.loss != MeanSquaredError.kind:
        return None
    name = _gradient(pair)
    gradients = [one for one in comparison.judged if one.name == name]
    failures = comparison.failures
    if not gradients or (failures and failures[0].name != name):
        return None
    if _are_differences_of_products(pair, [one.step for one in gradients]):
        what = "as c*y - c*t: legal, but it"
        hint = "Write c*(y - t), with c = 2/N for a mean: subtract before you scale."
        bias = 0.0
    elif failures and all(_has_bias_less_target(pair, one.step) for one in gradients):
        what = "from acc + (b - t), where y = acc + b: y - t without rounding y is legal, but b - t is rounded and"
        hint = "Write (acc + b) - t: add the bias before you subtract the target."
        bias = _largest_bias(pair)
    else:
        return None
    cancelling = pair.judged_with(cancels=True, bias=bias)
    cancelled = compare(cancelling)
    if cancelled.failures:
        return None
    words = _words(max(gradients, key=lambda one: one.statistic.relative_error), pair.u, what)
    return Recognised(Outcome.PRECISION, words, cancelling, cancelled, (hint,))


def _gradient(pair: FilePair) -> str:
    return f"grads/{pair.model.layers[-1].name}/output"


def _are_differences_of_products(pair: FilePair, steps: list[int]) -> bool:
    """Whether the numbers of all steps are those of a way to write c*y - c*t, and some lose digits by that."""
    losses = [_lost(pair, step) for step in steps]
    return None not in losses and any(loss for loss in losses if loss)


def _lost(pair: FilePair, step: int) -> bool | None:
    """Whether digits are lost; None where the numbers of all images are not those of one way to write c*y - c*t."""
    shape, (gradient, output) = pair.output_shape, (_gradient(pair), f"forward/{pair.model.layers[-1].name}")
    if not all(pair.candidate.has(f"steps/{step}/{name}") for name in (gradient, output)):
        return None
    left: set[int] | None = None
    loses = False
    for image in range(shape[0]):
        found, y = (pair.candidate.read(f"steps/{step}/{name}", shape, image) for name in (gradient, output))
        t = pair.batch(step, "target", image).astype(pair.dtype)
        if not found.dtype == y.dtype == pair.dtype:
            return None
        same = {i for i, one in enumerate(_differences(y, t, pair.loss_scale)) if np.array_equal(one, found)}
        left = same if left is None else left & same
        right = 2 * pair.loss_scale * (y.astype(np.float64) - t)
        loses = loses or bool((np.abs(found - right) > 8 * pair.u * np.abs(right)).any())
        if not left:
            return None
    return loses


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


def _largest_bias(pair: FilePair) -> float:
    """Of the last layer, in all steps."""
    name = f"{pair.model.layers[-1].name}/bias"
    every = [pair.start, *(pair.parameters(pair.candidate, k) for k in range(1, pair.steps))]
    return max(float(np.abs(one[name]).max()) for one in every if one is not None)


def _has_bias_less_target(pair: FilePair, step: int) -> bool:
    """Whether every number of the gradient has the error that the rounding of b - t makes."""
    last, shape = pair.model.layers[-1], pair.output_shape
    paths = [f"steps/{step}/{name}" for name in (_gradient(pair), f"forward/{last.name}")]
    weights = pair.start if step == 0 else pair.parameters(pair.candidate, step)
    known = weights is not None and f"{last.name}/bias" in weights and all(pair.candidate.has(path) for path in paths)
    if len(shape) != 4 or weights is None or not known:
        return False
    b = weights[f"{last.name}/bias"].astype(pair.dtype)[:, None, None]
    for image in range(shape[0]):
        found, y = (pair.candidate.read(path, shape, image).astype(np.float64) for path in paths)
        t = pair.batch(step, "target", image).astype(pair.dtype)
        d = (b - t).astype(np.float64) + (y - b)
        # What the file holds is y rounded
        bound = 2 * pair.loss_scale * (pair.u * np.abs(y) + 4 * pair.u * np.abs(d))
        if not (np.abs(found - 2 * pair.loss_scale * d) <= bound).all():
            return False
    return True


def _words(worst: Judged, u: float, what: str) -> str:
    error = worst.statistic.relative_error
    digits = f"{math.log10(error / u):.1f} digits" if error > 2 * u else "digits"
    return (
        f"LOWER PRECISION than declared: the gradient of the loss ({worst.name}) is computed {what} "
        f"loses {digits} where y is near t (step {worst.step}, T = {short(worst.t)}). Everything else is "
        "right with that gradient."
    )
