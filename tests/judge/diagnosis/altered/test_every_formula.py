# SPDX-License-Identifier: MIT
"""Every alteration of every operation and loss can be computed, with a bound, and has the shape of the right tensor.

One that raises an exception would take all else that the search finds with it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from bridge.gradcheck.cases import CASES, Setup
from bridge.judge.diagnosis.altered.engine import altered_formulas
from bridge.judge.diagnosis.altered.formulas import Evaluated
from bridge.judge.diagnosis.altered.numbers import Target
from bridge.judge.diagnosis.predictions.formulas import Criterion, Formula
from bridge.judge.diagnosis.predictions.operations import Predicted
from bridge.judge.oracle.error_model import Arithmetic
from bridge.operations.losses import LOSSES
from tests.helpers.tiers import few

Array = np.ndarray
#: What has hypotheses of its own
OTHERS = {"conv2d", "relu", "mse"}
OFTEN = {"avg_pool2d", "concat", "divide", "max", "smooth_l1"}
EXACT = Arithmetic(0.0)
#: From so many alterations on, which only the spline's formula has, so many are drawn: all would take half an hour
MANY, SOME = 1500, 100


def tensors(setup: Setup) -> Iterator[Formula]:
    """Everything that an operation makes: its output, its state, its gradients."""
    rng = np.random.default_rng(0)
    inputs = tuple(Predicted(setup.draw(rng, shape).astype(float)) for shape in setup.shapes)
    node = setup.node if len(inputs) == 1 else replace(setup.node, inputs=tuple("abcdef"[:len(inputs)]))
    parameters = {name: rng.normal(size=shape) for name, shape in node.parameter_shapes().items()}
    parameters |= {name: rng.uniform(0.5, 2, shape) for name, shape in node.state_shapes().items()}
    if node.has_mask:
        parameters["mask"] = (rng.random(node.mask_shape(setup.shapes[0])) > 0.25).astype(float)
    forward = Formula((), node, inputs, parameters)
    dy = Predicted(rng.normal(size=forward._computed(EXACT).value.shape))
    yield forward
    yield from (replace(forward, state=name) for name in node.new_state_shapes())
    yield from (replace(forward, dy=dy, gradient=one) for one in (*range(len(inputs)), *node.parameter_shapes()))


def check(right: Formula | Criterion) -> int:
    """Compute all alterations of a formula, or of very many some; how many they are."""
    shape = right._computed(EXACT).value.shape
    right = right.replaced(shape=shape)
    # Nothing is fitted to so few numbers
    target = Target(np.arange(2), np.zeros(2), np.zeros(2), np.ones(2), 2.0**-24)
    with np.errstate(all="ignore"):
        made = [one for stage in altered_formulas(Evaluated(right), target) for one in stage]
        for one in made if len(made) <= MANY else random.Random(0).sample(made, SOME):
            found = one.operation.full(Arithmetic(2.0**-24))
            assert found.value.shape == shape and found.error is not None, one.detail
            # By what the calls before gave
            assert np.allclose(one.operation.values(), found.value, rtol=1e-12, equal_nan=True), one.detail
    return len(made)


@pytest.mark.parametrize("kind", few(sorted(set(CASES) - OTHERS), OFTEN.__contains__))
def test_alterations_of_an_operation_can_be_computed(kind: str) -> None:
    assert sum(check(right) for setup in CASES[kind] for right in tensors(setup)) > 10


@pytest.mark.parametrize("kind", few(sorted(set(LOSSES) - OTHERS), OFTEN.__contains__))
def test_alterations_of_a_loss_can_be_computed(kind: str) -> None:
    rng = np.random.default_rng(0)
    y, target = rng.uniform(0.1, 0.9, (2, 2, 3, 4, 5))
    for gradient in (False, True):
        assert check(Criterion((), LOSSES[kind](), Predicted(y), target, gradient)) > 50
