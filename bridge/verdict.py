# SPDX-License-Identifier: MIT
"""From a comparison to a decision: rounding, lower precision, a bug, or cannot tell.

============  =========  ==================================================================================
verdict       exit code  decided when
============  =========  ==================================================================================
rounding      0          every judged tensor has T <= 1
bug           1          a tensor has T > 10, T > 1 where the bound is a theorem, or is not finite
bad input     2          (raised as `BridgeError` before anything is decided)
precision     3          the first convolution is what operands rounded to a lower precision give
cannot tell   4          the largest T lies between 1 and 10, or an update is hidden by a small lr and its
                         gradient is missing
============  =========  ==================================================================================

Between 1 and 10 the bound of long sums is only probabilistic (a strictly sequential float32 sum of millions of
terms of one sign can get there): that is never a pass, and not yet a proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from bridge.judged import Comparison, Judged
from bridge.model import Conv2d, Model
from bridge.precision import Recognised

#: T from here on is a bug also where the bound is probabilistic
CERTAIN_T = 10.0


class Outcome(Enum):
    """The verdicts; the value is the exit code."""

    ROUNDING = 0
    BUG = 1
    BAD_INPUT = 2
    PRECISION = 3
    CANNOT_TELL = 4

    @property
    def label(self) -> str:
        """The name in JSON."""
        return self.name.lower()


@dataclass(frozen=True)
class Verdict:
    """A decision in one word, one sentence, and what to look at."""

    outcome: Outcome
    words: str
    hints: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 rounding, 1 bug, 2 bad input, 3 precision, 4 cannot tell."""
        return self.outcome.value


def decide(comparison: Comparison, recognised: Recognised | None = None) -> Verdict:
    """Draw the conclusion.

    Parameters
    ----------
    comparison : what `bridge.comparison.compare` found
    recognised : the lower precision that explains the first convolution, if there is one
    """
    failures = [judged for judged in comparison.judged if not judged.passed]
    if not failures:
        return _right(comparison)
    if recognised is not None:
        return Verdict(Outcome.PRECISION, (
            f"LOWER PRECISION than declared: {recognised.layer} is exactly what {recognised.name} operands give "
            f"(T = {recognised.t:.2g}; as {comparison.precision}: T = {recognised.declared_t:.3g})."),
            [f"A bug smaller than the rounding of {recognised.name} cannot be excluded: "
             f"run in {comparison.precision} (cuDNN: FMA math; PyTorch: allow_tf32 = False), then compare again."])
    first = failures[0]
    certain = [judged for judged in failures if judged.certain or not judged.t <= CERTAIN_T]
    if not certain:
        worst = max(failures, key=lambda judged: judged.t)
        return Verdict(Outcome.CANNOT_TELL, (
            f"CANNOT TELL: {_count(len(failures), 'tensor')} of {len(comparison.judged)} outside the bound, but none "
            f"far (largest T = {worst.t:.2g}, {worst.name}, step {worst.step}; a bug is certain from T = {CERTAIN_T:g})."),
            ["A long strictly sequential float32 sum can do this, and so can a small bug: "
             "run the candidate in float64, or sum in blocks, and compare again."])
    return Verdict(Outcome.BUG, f"BUG: {_describe(first)}", _hints(comparison, first, failures))


def _right(comparison: Comparison) -> Verdict:
    worst = max(comparison.judged, key=lambda judged: judged.t)
    hidden = [skipped for skipped in comparison.not_judged if "gradient is not in the file" in skipped.reason]
    if hidden:
        return Verdict(Outcome.CANNOT_TELL, (
            f"CANNOT TELL: what could be judged is right, but {hidden[0].name} of step {hidden[0].step} could not be: "
            f"{hidden[0].reason}."))
    words = (f"RIGHT: every difference is rounding. {_count(len(comparison.judged), 'tensor')} of "
             f"{_count(comparison.steps, 'step')} inside the {comparison.precision} bounds; "
             f"largest T = {short(worst.t)} ({worst.name}, step {worst.step}; 1 is the limit).")
    if comparison.not_judged:
        words += f" Not judged: {len(comparison.not_judged)}, listed below."
    return Verdict(Outcome.ROUNDING, words)


def _describe(judged: Judged) -> str:
    s = judged.statistic
    if s.nonfinite:
        return (f"{judged.name} of step {judged.step} holds {s.nonfinite} values that are NaN or infinite, "
                f"the first at {s.at}.")
    what = f"{s.error:.3g} too far" if s.bound == 0 else f"T = {s.t:.3g}"
    return (f"{judged.name} of step {judged.step} is wrong, {what}: at {s.at} it is {s.found:.8g}, "
            f"right is {s.expected:.8g} with at most {s.bound:.2g} of rounding.")


def _hints(comparison: Comparison, first: Judged, failures: list[Judged]) -> list[str]:
    """What to look at: the operation that made the first wrong tensor, and a common factor."""
    before = comparison.judged[:comparison.judged.index(first)]
    missing = [skipped for skipped in comparison.not_judged if skipped.step <= first.step]
    hints = [f"It is the first wrong tensor in the order of computation; the {len(before)} before it are right"
             + (f" ({len(missing)} could not be judged)." if missing else ".")
             + f" Look at {operation(comparison.model, first.name)}."]
    if factor := _factor(first):
        hints.append(factor)
    if len(failures) > 1:
        hints.append(f"{len(failures) - 1} more tensors are wrong; most follow from the first.")
    return hints


def _factor(judged: Judged) -> str | None:
    """The tensor is the right one times a number: sums in place of means, a wrong lr, a factor 2."""
    s = judged.statistic
    if not s.norm_expected > 0 or not math.isfinite(s.dot) or s.elements < 2:
        return None
    slope = s.dot / s.norm_expected
    residual = s.norm_found - slope * s.dot
    if slope == 0 or not residual <= 1e-8 * s.norm_found:
        return None
    return f"It is the right tensor times {slope:.6g} (1/{1 / slope:.6g}): a scale is wrong, not the layout."


def operation(model: Model, name: str) -> str:
    """The operation that makes a tensor, in words.

    >>> from bridge.model import Relu
    >>> operation(Model((Relu("r"),)), "forward/r")
    'the ReLU r (forward)'
    """
    kind, _, rest = name.partition("/")
    layers = {layer.name: layer for layer in model.layers}
    if kind == "forward":
        layer = layers[rest]
        return f"the {'convolution' if isinstance(layer, Conv2d) else 'ReLU'} {rest} (forward)"
    if kind == "grads":
        return _backward_operation(model, rest)
    return {
        "loss": "the loss",
        "weights": "how the weights are read: the candidate did not start from the fixture's",
        "optimizer": "the optimiser: the new weights do not follow from the candidate's own gradients",
        "update": "the update: the weights moved by something else than the gradient",
    }[kind]


def _backward_operation(model: Model, rest: str) -> str:
    names = [layer.name for layer in model.layers]
    if rest == "input":
        following = model.layers[0]
    else:
        layer, _, what = rest.partition("/")
        if what == "weight":
            return f"the filter gradient of {layer}"
        if what == "bias":
            return f"the bias gradient of {layer}"
        if layer == names[-1]:
            return "the gradient of the loss with respect to the output"
        following = model.layers[names.index(layer) + 1]
    if isinstance(following, Conv2d):
        return f"the data gradient of {following.name}"
    return f"the backward pass (the mask) of the ReLU {following.name}"


def short(value: float) -> str:
    """A number in few characters; below 1 it is never rounded up to 1, the limit of T.

    >>> short(0.99996), short(12345.0)
    ('0.999', '1.2e+04')
    """
    if value == 0:
        return "0"
    if 0.95 <= value < 1:
        return f"{math.floor(value * 1000) / 1000:.3f}"
    return f"{value:.2g}" if 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
