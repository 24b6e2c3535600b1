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
from bridge.judge.measure.walk import walk
from bridge.judge.oracle.reductions import Truth

Array = np.ndarray
#: The candidate's elements, the right ones, the bounds
Parts = tuple[Array, Array, Array]

#: Dimensions of images (n, c, h, w)
IMAGES = 4
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
        return _kept(pair, judged, exact)


def _kept(pair: FilePair, judged: Judged, weights: Parameters) -> ErrorMap:
    """From the candidate's own inputs, where that says more."""
    kept: list[Parts] = []
    shape = pair.shapes[judged.name]
    image = None if judged.of_parameter or len(shape) != IMAGES else judged.statistic.at[0]

    def look(name: str, truth: Truth, local: Truth | None, part: int | None, /) -> Array | None:
        path = f"steps/{judged.step}/{name}"
        if not pair.candidate.has(path):
            return None
        found = pair.candidate.read(path, pair.shapes[name], part)
        if name == judged.name:
            known = [one for one in (truth, local) if one is not None and np.isfinite(one.value).all()]
            kept.extend(_copied(found, one, image if part is None else None) for one in known or [truth])
        return found if np.isfinite(found).all() else None

    walk(pair, judged.step, weights, look, images=None if image is None else [image])
    return ErrorMap(judged, image, *max(kept, key=_largest))


def _copied(found: Array, right: Truth, image: int | None) -> Parts:
    """The oracle uses its arrays again; of a whole batch one image is kept."""
    whole = ... if image is None else image
    bound = np.broadcast_to(right.bound, right.value.shape)
    return found[whole].astype(np.float64), np.array(right.value[whole]), np.array(bound[whole])


def _largest(parts: Parts) -> float:
    found, right, bound = parts
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        error = np.abs(found - right)
        ratio = np.where(error == 0, 0.0, error / bound)
    return float(np.nanmax(ratio, initial=0.0))
