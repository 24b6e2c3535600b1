# SPDX-License-Identifier: MIT
"""Mistakes in single operations are named by altering the formula; numpy makes them, in float32, by other formulas."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bridge.judge.diagnosis.altered import engine  # noqa: F401
from bridge.judge.diagnosis.altered.alteration import MAKERS, WITHOUT
from bridge.judge.diagnosis.altered.numbers import Target, fitted
from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.predictions.formulas import Criterion, Joined
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.diagnosis.search import Search
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.primitives import PRIMITIVES
from bridge.operations.losses import BinaryCrossEntropy, CrossEntropy, Huber, Loss, MeanAbsoluteError
from bridge.operations.normalization import BatchNorm2d, GroupNorm, LayerNorm
from bridge.operations.pointwise import Elu, Softplus
from bridge.operations.pooling import AvgPool2d, MaxPool2d
from bridge.operations.products import Linear
from bridge.operations.reductions import Mean
from bridge.operations.softmax import Softmax
from tests.helpers.judged.single_operations import BIAS, DY, LAYERS, RNG, SHAPE, TARGET, WEIGHT, X, explained, formula
from tests.helpers.tiers import few

Array = np.ndarray

WIDE, SHIFT = (one[None, :, None, None] for one in (WEIGHT, BIAS))
AXES = (0, 2, 3)
MEAN = X.mean(AXES, keepdims=True, dtype=float)
VARIANCE = ((X - MEAN) ** 2).mean(AXES, keepdims=True)
SCALE = 1 / np.sqrt(VARIANCE + 1e-5)
NORMAL = (X - MEAN) * SCALE
MEAN_DY, ALONG = (one.mean(AXES, keepdims=True, dtype=float) for one in (DY, DY * NORMAL))
OF_BATCH = {"weight": WEIGHT, "bias": BIAS}
POWERS = np.exp(X.astype(float))
SHARES = POWERS / POWERS.sum(1, keepdims=True)
CLASSES = np.eye(4)[RNG.integers(0, 4, (3, 6, 5))].transpose(0, 3, 1, 2)
ROWS, MATRIX, SENT = (RNG.normal(size=shape).astype(np.float32) for shape in ((6, 20), (7, 20), (6, 7)))
OF_LINEAR = {"weight": MATRIX, "bias": RNG.normal(size=7).astype(np.float32)}
RUNNING = {"running_mean": RNG.normal(size=4).astype(np.float32), "running_var": np.ones(4, np.float32)}


def gradient_of(loss: Loss, y: Array, target: Array) -> Criterion:
    """The gradient of a loss."""
    return Criterion(y.shape, loss, Predicted(y.astype(float)), np.asarray(target, float), True)


def deviations(x: Array) -> Array:
    """Of rows of numbers."""
    return np.asarray(np.sqrt(x.var(-1, keepdims=True, dtype=float) + 1e-5))


def of_rows(x: Array) -> Array:
    """Means of rows."""
    return np.asarray(x.mean(-1, keepdims=True, dtype=float))


def pooled(x: Array, rows: slice = slice(None), count: int = 6) -> Array:
    """Sums of windows of 3 x 2, by 2 x 2, padded by one row, without some of their rows."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))[:, :, ::2, ::2]
    return np.asarray(windows[..., rows, :].sum((-2, -1), dtype=float) / count)


BATCH, LAYER, GROUP = BatchNorm2d("it", 4), LayerNorm("it", (5,)), GroupNorm("it", 2, 4)
FORWARD, BACK = formula(BATCH, X, OF_BATCH), formula(BATCH, X, OF_BATCH, DY, 0)
OF_WEIGHT = formula(BATCH, X, OF_BATCH, DY, "weight")
STATE = formula(BatchNorm2d("it", 4, track_running_stats=True), X, OF_BATCH | RUNNING, state="running_mean")
OF_LAYER, LAYER_BACK = formula(LAYER, X, LAYERS), formula(LAYER, X, LAYERS, DY, 0)
GROUPS = X.reshape(3, 2, -1)
IN_GROUPS = ((GROUPS - np.roll(of_rows(GROUPS), 1, 1)) / deviations(GROUPS)).reshape(SHAPE)
THROUGH = DY * LAYERS["weight"]
LAYER_NORMAL = (X - of_rows(X)) / deviations(X)
DISTANCE = X - TARGET
SIGMOID = 1 / (1 + np.exp(-X.astype(float)))
PROBABLE = SIGMOID.astype(np.float32)
OF_HUBER = gradient_of(Huber(delta=0.75), X, TARGET)

#: The right formula, what is computed in its place, and what has to be said
PLANTED: dict[str, tuple[Prediction, Array, str]] = {
    "eps": (FORWARD, (X - MEAN) / np.sqrt(VARIANCE + 3e-3) * WIDE + SHIFT, "eps is 0.003 in place of 1e-05"),
    "sign of eps": (FORWARD, (X - MEAN) / np.sqrt(VARIANCE - 1e-5) * WIDE + SHIFT,
                    "eps is subtracted from the variance, not added"),
    "mean of a part": (FORWARD, (X - X[:, :, :-1].sum(AXES, keepdims=True, dtype=float) / 90) * SCALE * WIDE + SHIFT,
                       "the sum of the input leaves out the last row"),
    "next channel": (FORWARD, (X - MEAN) * np.roll(SCALE, -1, 1) * WIDE + SHIFT, "is that of the next channel"),
    "bias subtracted": (FORWARD, NORMAL * WIDE - SHIFT,
                        "the bias is subtracted from the normalised input * the weight"),
    "rolled": (FORWARD, NORMAL * np.roll(WIDE, 1, 1) + SHIFT, "the weight one before, around the end"),
    "mean of dy twice": (BACK, (DY - 2 * MEAN_DY - NORMAL * ALONG) * SCALE * WIDE,
                         "the mean of dy is subtracted from dy twice"),
    "no weight": (BACK, (DY - MEAN_DY - NORMAL * ALONG) * SCALE,
                  "batch_norm2d without the weight"),
    "scale twice": (BACK, (DY - MEAN_DY - NORMAL * ALONG) * SCALE**2 * WIDE,
                    "the weight is multiplied by the inverse deviation twice"),
    "both counts": (BACK, (DY - 3 * MEAN_DY - 3 * NORMAL * ALONG) * SCALE * WIDE,
                    "divided by rows * columns = 30 in place of 90"),
    "last image": (BACK, (DY - DY[-1:].mean(AXES, keepdims=True, dtype=float)
                          - NORMAL * (DY * NORMAL)[-1:].mean(AXES, keepdims=True)) * SCALE * WIDE,
                   "of the last image, times 3"),
    "a column": (OF_WEIGHT, (DY * NORMAL)[..., :-1].sum(AXES), "leaves out the last column"),
    "a lane": (OF_WEIGHT, np.where(np.arange(6)[:, None] % 3 != 2, DY * NORMAL, 0).sum(AXES), "j mod 3 = 2"),
    "momentum": (STATE, 0.7 * RUNNING["running_mean"] + 0.3 * MEAN.ravel(), "momentum is 0.3 in place of 0.1"),
    "group before": (formula(GROUP, X, OF_BATCH), IN_GROUPS * WIDE + SHIFT, "is that of the group before"),
    "variance of a part": (OF_LAYER, (X - of_rows(X)) / np.sqrt(((X - of_rows(X))**2)[..., :-1].sum(
        -1, keepdims=True) / 5 + 1e-5) * LAYERS["weight"] + LAYERS["bias"], "leaves out the last number"),
    "one mean": (LAYER_BACK, (THROUGH - LAYER_NORMAL * of_rows(THROUGH * LAYER_NORMAL)) / deviations(X),
                 "the mean of dy times the weight is not subtracted"),
    "a channel": (formula(Softmax("it"), X), POWERS / POWERS[:, :-1].sum(1, keepdims=True),
                  "leaves out the last channel"),
    "binary": (formula(Softmax("it"), X), 2.0**X / (2.0**X).sum(1, keepdims=True), "2**x in place of the exp"),
    "outer factor": (formula(Softmax("it"), X, {}, DY, 0), DY * SHARES - (DY * SHARES).sum(1, keepdims=True),
                     "the sum of dy * y is not multiplied by y"),
    "alpha": (formula(Elu("it", 1.0), X), np.where(X > 0, X, 1.25 * np.expm1(X)), "alpha is 1.25 in place of 1"),
    "twice inside": (formula(Softplus("it"), X), np.log1p(np.exp(2 * X.astype(float))), "softplus of twice its input"),
    "absolute": (formula(MaxPool2d("it", (1, 5), (1, 5)), X), np.abs(X).max(-1, keepdims=True),
                 "the largest absolute value of the input"),
    "count": (formula(AvgPool2d("it", (3, 2), (2, 2), (1, 0)), X), pooled(X, count=4), "= 4 in place of 6"),
    "row of windows": (formula(AvgPool2d("it", (3, 2), (2, 2), (1, 0)), X), pooled(X, slice(0, 2)),
                       "leaves out the last row of each window"),
    "last term": (formula(Linear("it", 20, 7), ROWS, OF_LINEAR), ROWS[:, :-1] @ MATRIX[:, :-1].T + OF_LINEAR["bias"],
                  "leaves out the last of 20 terms"),
    "previous": (formula(Linear("it", 20, 7), ROWS, OF_LINEAR, SENT, "weight"), SENT.T @ np.roll(ROWS, 1, 0),
                 "the input of the previous sample"),
    "other mean": (formula(Mean("it", (2, 3), True), X), X.sum((2, 3), keepdims=True, dtype=float) / 24,
                   "= 24 in place of 30"),
    "smoothing": (gradient_of(CrossEntropy(label_smoothing=0.1), X, CLASSES), (SHARES - 0.85 * CLASSES - 0.15 / 4) / 90,
                  "label_smoothing is 0.15 in place of 0.1"),
    "classes counted": (gradient_of(CrossEntropy(), X, CLASSES), (SHARES - CLASSES) / 360,
                        "images * channels * rows * columns = 360 in place of 90"),
    "delta": (OF_HUBER, np.clip(DISTANCE, -0.5, 0.5) / 360, "delta is 0.5 in place of 0.75"),
    "slope": (OF_HUBER, np.where(abs(DISTANCE) < 0.75, DISTANCE, np.sign(DISTANCE)) / 360,
              "is not multiplied by delta"),
    "order of eps": (formula(BatchNorm2d("it", 4, eps=0.01), X, OF_BATCH),
                     (X - MEAN) / (np.sqrt(VARIANCE) + 1e-2) * WIDE + SHIFT, "eps is added to the root of"),
    "not normalised": (OF_WEIGHT, (DY * X).sum(AXES, dtype=float), "the input in place of the normalised input"),
    "both terms": (BACK, DY * SCALE * WIDE, "the mean of dy is not subtracted from dy and"),
    "bias thrice": (FORWARD, NORMAL * WIDE + 3 * SHIFT, "is added to the normalised input * the weight is 3 in"),
    "each image": (FORWARD, (X - X.mean((2, 3), keepdims=True, dtype=float)) / np.sqrt(
        X.var((2, 3), keepdims=True, dtype=float) + 1e-5) * WIDE + SHIFT, "each image by itself"),
    "other groups": (formula(GROUP, X, OF_BATCH), ((X.reshape(3, 4, -1) - of_rows(X.reshape(3, 4, -1))) / deviations(
        X.reshape(3, 4, -1))).reshape(SHAPE) * WIDE + SHIFT, "num_groups is 4 in place of 2"),
    "other function": (formula(Elu("it", 1.0), X), np.tanh(X), "tanh in place of elu"),
    "other axis": (formula(Softmax("it"), X), POWERS / POWERS.sum(2, keepdims=True),
                   "dim is 2 in place of 1"),
    "without a bias": (formula(Linear("it", 20, 7), ROWS, OF_LINEAR), ROWS @ MATRIX.T, "linear without the bias"),
    "eps in a logarithm": (gradient_of(BinaryCrossEntropy(), PROBABLE, CLASSES), (
        (1 - CLASSES) / (1 - PROBABLE + 1e-3) - CLASSES / (PROBABLE + 1e-3)) / 360, "is 0.001 in place of 0"),
    "sigmoid first": (gradient_of(MeanAbsoluteError(), X, TARGET), np.sign(SIGMOID - TARGET) * SIGMOID * (
        1 - SIGMOID) / 360, "the loss of sigmoid of the outputs"),
    "a part of a sum": (Joined(SHAPE, (BACK, formula(Softmax("it"), X, {}, DY, 0)), ("norm", "softmax")),
                        (DY - 2 * MEAN_DY - NORMAL * ALONG) * SCALE * WIDE + SHARES * (DY - (DY * SHARES).sum(
                            1, keepdims=True)), "through norm: the mean of dy is subtracted from dy twice"),
}


#: One of each kind of alteration
OFTEN = ("sign of eps", "mean of a part", "next channel", "rolled", "mean of dy twice", "momentum", "a channel",
         "binary", "absolute", "count", "last term", "previous", "smoothing", "delta", "order of eps", "not normalised",
         "both terms", "bias thrice", "each image", "other function", "other axis", "eps in a logarithm",
         "sigmoid first", "a part of a sum")


@pytest.mark.parametrize("name", few(tuple(PLANTED), OFTEN.__contains__))
def test_a_mistake_is_named(name: str) -> None:
    right, found, said = PLANTED[name]
    explanations = explained(right, found)
    assert explanations, "nothing explains it"
    assert said in explanations[0].detail and explanations[0].t <= 1
    assert len({one.detail for one in explanations}) <= 2


#: Formulas that noise is added to
NOISY = {"softmax": formula(Softmax("it"), X), "running mean": STATE, "forward": FORWARD, "backward": BACK,
         "filter": formula(Linear("it", 20, 7), ROWS, OF_LINEAR, SENT, "weight"), "layer norm": LAYER_BACK}


@pytest.mark.parametrize("name", few(tuple(NOISY), ("softmax", "filter").__contains__))
def test_what_no_altered_call_makes_is_not_named(name: str) -> None:
    """Noise of two sizes, a single element, another order: any explanation would be one by chance."""
    right = NOISY[name]
    value, noise = right._values, RNG.normal(size=right.shape)
    one = np.arange(value.size).reshape(value.shape) == value.size // 2
    shuffled = RNG.permutation(value.reshape(-1)).reshape(value.shape)
    for found in (value * (1 + 0.01 * noise), value + value.std() * noise, np.where(one, 1.5 * value + 0.125, value),
                  shuffled):
        assert explained(right, found) == []


def test_formulas_are_altered_until_time_is_up() -> None:
    """Constants, too, whose fits are many evaluations."""
    right, found, _ = PLANTED["mean of dy twice"]
    graph: Any = SimpleNamespace(arithmetic=Arithmetic(2.0**-24))
    search = Search(Case("forward/it", graph, right, np.asarray(found, np.float32).astype(float)), now())
    search._altered()
    assert search.tried == [] and search.count == 0 and search.cut
    late = Target(np.arange(5), *[X[0, 0, 0]] * 3, 0.0, lambda: True)
    assert fitted(1.0, lambda number: pytest.fail("evaluated"), late) is None


def test_every_primitive_says_what_it_may_do_instead() -> None:
    """A new one declares its alterations, or the reason why nobody alters it."""
    assert set(MAKERS) | set(WITHOUT) == PRIMITIVES
    assert not set(MAKERS) & set(WITHOUT)
