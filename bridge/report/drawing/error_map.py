# SPDX-License-Identifier: MIT
"""A second look at one tensor: every element with its right value and bound, which the comparison measures and forgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bridge.judge.diagnosis.records import Finding
from bridge.judge.measure.file_pair import FilePair, Parameters
from bridge.judge.measure.findings import Comparison, Judged
from bridge.judge.measure.per_batch import limit, run_graph
from bridge.judge.measure.per_image import ImageVisitor
from bridge.judge.oracle import step as bounds
from bridge.judge.oracle.bounded import Bounded
from bridge.judge.oracle.reductions import Sums, gradient_bound, local_gradient_bound

Array = np.ndarray
#: The candidate's elements, the right ones, the bounds
Parts = tuple[Array, Array, Array]

#: Each takes another look at its step, some seconds of large images
MOST_MAPS = 3


@dataclass(frozen=True)
class ErrorMap:
    """One tensor, element by element.

    Attributes
    ----------
    judged : which tensor of which step
    image : of the batch; None for a parameter's gradient, and for what is no image
    found, right, bound : the candidate's elements, the right ones, and E, float64; (c, h, w) of an image, else of the
        tensor's shape
    """

    judged: Judged
    image: int | None
    found: Array
    right: Array
    bound: Array

    @property
    def error(self) -> Array:
        """Return |found - right|."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.abs(self.found - self.right)

    @property
    def ratio(self) -> Array:
        """Return error / E: 0 where both are 0, NaN where something is not finite."""
        error = self.error
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = np.where(error == 0, 0.0, error / self.bound)
        return np.where(np.isfinite(error) & np.isfinite(self.bound), found, np.nan)


def worth_a_map(comparison: Comparison, findings: Sequence[Finding] = ()) -> list[Judged]:
    """Return the tensors of the first findings that have elements to draw; else the first tensor that fails, else the
    image-like one with the largest T.
    """
    drawable = {(one.name, one.step): one for one in comparison.judged
                if one.name.startswith(("forward/", "grads/")) and one.statistic.at}
    wrong = [drawable[key] for one in findings if (key := (one.name, one.step)) in drawable]
    if not wrong:
        wrong = [one for one in drawable.values() if not one.passed][:1]
    images = [one for one in drawable.values() if not one.of_parameter]
    return wrong[:MOST_MAPS] or sorted(images or drawable.values(), key=lambda one: -one.t)[:1]


def error_map(pair: FilePair, judged: Judged) -> ErrorMap | None:
    """Compute a judged tensor once more, and keep its elements; of an un-reduced one only the worst image.

    None where its step cannot be computed, because weights are missing.

    Raises
    ------
    FileError
        If a file cannot be read any more.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        weights = pair.start if judged.step == 0 else pair.parameters(pair.candidate, judged.step)
        if weights is None or not all(np.isfinite(w).all() for w in weights.values()):
            return None
        exact = {name: w.astype(np.float64) for name, w in weights.items()}
        if not pair.model.is_chain:
            return _in_graph(pair, judged, exact)
        if judged.of_parameter:
            return _of_parameter(pair, judged, exact)
        keeper = _Keeper(pair, judged, judged.statistic.at[0])
        _step(pair, exact, keeper)
    return None if keeper.kept is None else ErrorMap(judged, keeper.image, *keeper.kept)


def _in_graph(pair: FilePair, judged: Judged, weights: Parameters) -> ErrorMap:
    """From the candidate's own inputs, where that says more."""
    kept: list[Parts] = []

    def visit(name: str, truth: Bounded, local: Bounded | None, /) -> Array | None:
        path = f"steps/{judged.step}/{name}"
        if not pair.candidate.has(path):
            return None
        found = pair.candidate.read(path, pair.shapes[name])
        if name == judged.name:
            known = [one for one in (truth, local) if one is not None and np.isfinite(one.value).all()]
            kept.extend(_copied(found, one.value, limit(one)) for one in known or [truth])
        return found if np.isfinite(found).all() else None

    run_graph(pair, judged.step, weights, visit)
    parts = max(kept, key=_largest)
    if parts[0].ndim != 4 or judged.of_parameter:
        return ErrorMap(judged, None, *parts)
    image = judged.statistic.at[0]
    return ErrorMap(judged, image, *(one[image] for one in parts))


class _Keeper(ImageVisitor):
    """Keeps one tensor: from the candidate's own inputs, where that says more."""

    def __init__(self, pair: FilePair, judged: Judged, image: int) -> None:
        super().__init__(pair, judged.step, image)
        self.wanted = judged.name
        self.kept: Parts | None = None

    def look(self, name: str, found: Array, value: Array, bound: Array) -> None:
        if name != self.wanted:
            return
        parts = _copied(found, value, bound)
        if self.kept is None or _largest(parts) > _largest(self.kept):
            self.kept = parts


def _step(pair: FilePair, weights: Parameters, visitor: ImageVisitor) -> Sums:
    x, target = (pair.batch(visitor.step, name, visitor.image) for name in ("input", "target"))
    return bounds.step_of_image(pair.model, weights, x, target, pair.loss_scale, pair.arithmetic, visitor)


def _of_parameter(pair: FilePair, judged: Judged, weights: Parameters) -> ErrorMap:
    """Its gradient is a sum over all images of the batch."""
    total = Sums()
    for image in range(pair.batch_shape[0]):
        total.add(_step(pair, weights, _Keeper(pair, judged, image)))
    parts = total.gradients[judged.name.removeprefix("grads/")]
    found = pair.candidate.read(f"steps/{judged.step}/{judged.name}", pair.shapes[judged.name])
    seen = [_copied(found, *gradient_bound(parts, pair.arithmetic))]
    own = local_gradient_bound(parts, pair.arithmetic)
    if own is not None and np.isfinite(own.value).all():
        seen.append(_copied(found, own.value, own.bound))
    return ErrorMap(judged, None, *max(seen, key=_largest))


def _copied(found: Array, right: Array, bound: Array) -> Parts:
    """The oracle uses its arrays again."""
    return found.astype(np.float64), np.array(right), np.array(np.broadcast_to(bound, right.shape))


def _largest(parts: Parts) -> float:
    found, right, bound = parts
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        error = np.abs(found - right)
        ratio = np.where(error == 0, 0.0, error / bound)
    return float(np.nanmax(ratio, initial=0.0))
