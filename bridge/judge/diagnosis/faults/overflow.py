# SPDX-License-Identifier: MIT
"""Probabilities without their largest number taken off: exponentials overflow, and NaN or infinity is what remains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bridge.judge.diagnosis.catalogue import kind
from bridge.judge.diagnosis.predictions.formulas import Criterion, Formula
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.diagnosis.records import Explanation
from bridge.judge.oracle.error_model import UNIT_ROUNDOFF
from bridge.operations.losses import CrossEntropy
from bridge.operations.softmax import LogSoftmax, Softmax

Array = np.ndarray
Way = tuple[str, Callable[[Array], Array]]

#: Probabilities below it have lost digits, or are 0
SMALL = 1e-37


def _shares(x: Array) -> Array:
    found: Array = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    return found


#: How programs write it, in words and in their own precision
OF_LOGARITHMS: tuple[Way, ...] = (
    ("the logarithm of softmax", lambda x: np.log(_shares(x))),
    ("x - log(sum(exp(x)))", lambda x: x - np.log(np.exp(x).sum(1, keepdims=True))),
)
OF_SHARES: tuple[Way, ...] = (("exp(x)/sum(exp(x))", _shares),)
WORDS = "{} without the largest x taken off before: exponentials overflow"


def overflow(right: Prediction, truth: Predicted, found: Array, u: float) -> Explanation | None:
    """Return what explains where a tensor is not finite: exponentials of what is too large, as programs write them.

    Parameters
    ----------
    right : the operation
    truth : what it makes
    found : the candidate's, float64
    u : its unit roundoff
    """
    dtype = np.float32 if u > 4 * UNIT_ROUNDOFF["float64"] else np.float64
    with np.errstate(all="ignore"):
        for said, values in _ways(right):
            naive = values(dtype)
            if naive.shape != truth.value.shape or np.isfinite(naive).all():
                continue
            if _alike(found.reshape(naive.shape), naive.astype(np.float64), truth, u):
                return Explanation((kind("activation"),), WORDS.format(said), 0.0)
    return None


def _ways(right: Prediction) -> list[tuple[str, Callable[[type], Array]]]:
    """Of the operation; each of the precision."""
    if isinstance(right, Formula) and right.dy is None and isinstance(right.node, (Softmax, LogSoftmax)):
        x = right.inputs[0].value
        ways = OF_SHARES if isinstance(right.node, Softmax) else OF_LOGARITHMS
        return [(said, lambda dtype, way=way: way(x.astype(dtype))) for said, way in ways]  # type: ignore[misc]
    if isinstance(right, Criterion) and not right.gradient and isinstance(right.loss, CrossEntropy):
        y, t = right.y.value, right.target
        return [(said, lambda dtype, way=way: np.atleast_1d(-(t * way(y.astype(dtype))).sum()))  # type: ignore[misc]
                for said, way in OF_LOGARITHMS]
    return []


def _alike(found: Array, naive: Array, truth: Predicted, u: float) -> bool:
    """The same is NaN or infinite; what is finite is right, or has as few digits left, or none."""
    room = 8 * u * (1 + np.abs(truth.value)) + (0.0 if truth.error is None else truth.error)
    near = np.minimum(np.abs(found - truth.value), np.abs(found - naive)) <= room
    lost = np.isneginf(naive) | (np.abs(naive) < SMALL) | (naive < np.log(SMALL))
    same = np.where(np.isnan(naive), np.isnan(found), np.where(np.isfinite(naive), near | lost, found == naive))
    return bool((same | (lost & ~np.isnan(found))).all())
