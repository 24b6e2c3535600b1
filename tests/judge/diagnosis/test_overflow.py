# SPDX-License-Identifier: MIT
"""Exponentials of what is too large are named by where NaN and infinity are; other NaN is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from bridge.judge.diagnosis.faults.overflow import overflow
from bridge.judge.diagnosis.predictions.formulas import Criterion, Formula
from bridge.judge.diagnosis.predictions.operations import Predicted, Prediction
from bridge.judge.oracle.error_model import Arithmetic, total_roundoff
from bridge.operations.losses import CrossEntropy
from bridge.operations.softmax import LogSoftmax, Softmax

U = total_roundoff("float32")
#: Of some pixels only the logits are too large, or all of them too small
X = torch.from_numpy(np.random.default_rng(2).uniform(-120, 120, (3, 5, 6, 7)).astype(np.float32))


def said(right: Prediction, found: torch.Tensor | np.ndarray) -> str:
    truth = right.full(Arithmetic(U))
    explanation = overflow(right, truth, np.asarray(found, np.float64).reshape(truth.value.shape), U)
    return "" if explanation is None else explanation.detail


def softmax(node: Softmax | LogSoftmax, x: torch.Tensor = X) -> Formula:
    return Formula(tuple(x.shape), node, (Predicted(x.double().numpy()),), {})


def test_exponentials_that_overflow_are_named() -> None:
    powers = X.exp()
    shares = powers / powers.sum(1, keepdim=True)
    assert "exp(x)/sum(exp(x)) without the largest" in said(softmax(Softmax("it")), shares)
    assert "the logarithm of softmax without" in said(softmax(LogSoftmax("it")), shares.log())
    assert "x - log(sum(exp(x))) without" in said(softmax(LogSoftmax("it")), X - powers.sum(1, keepdim=True).log())


def test_a_cross_entropy_that_overflows_is_named() -> None:
    target = torch.nn.functional.one_hot(X.argmin(1), 5).movedim(-1, 1).double().numpy()
    right = Criterion((1,), CrossEntropy(), Predicted(X.double().numpy()), target)
    assert "without the largest" in said(right, np.full(1, np.nan))
    assert not said(replace(right, y=Predicted(X.double().numpy() / 4)), np.full(1, np.nan))


@pytest.mark.parametrize("spoil", ["another NaN", "a wrong number", "a NaN less"])
def test_other_nan_is_something_else(spoil: str) -> None:
    found = (X.exp() / X.exp().sum(1, keepdim=True)).flatten()
    nan, rest = (torch.nonzero(one)[0] for one in (found.isnan(), found > 0.01))
    found[nan if spoil == "a NaN less" else rest] = 0.5 if spoil != "another NaN" else torch.nan
    assert not said(softmax(Softmax("it")), found)


def test_nan_of_numbers_that_do_not_overflow_is_something_else() -> None:
    found = (X / 4).softmax(1)
    found[0, 0, 0, 0] = torch.nan
    assert not said(softmax(Softmax("it"), X / 4), found)
