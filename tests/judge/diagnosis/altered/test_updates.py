# SPDX-License-Identifier: MIT
"""Mistakes in the rules of optimisers are named by altering the rule; numpy makes them in float64, for three steps."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bridge.exchange.optimizers import Adam, AdamW, Optimizer, Sgd
from bridge.judge.diagnosis.altered.updates import Update
from bridge.judge.diagnosis.candidates import Case
from bridge.judge.diagnosis.clock import now
from bridge.judge.diagnosis.predictions.updating import Updating
from bridge.judge.diagnosis.records import Explanation
from bridge.judge.diagnosis.search import Search
from bridge.judge.oracle.error_model import Arithmetic

Array = np.ndarray
Kept = dict[str, Any]
Rule = Callable[[Array, Array, Kept, int], Array]

ARITHMETIC = Arithmetic(2.0**-24)
SHAPE = (5, 4, 3, 3)
ADAM, DECAYING, SGD = Adam(0.01, 0.9, 0.999, 1e-3), AdamW(0.01, 0.8, 0.99, 1e-3, 0.25), Sgd(0.1, 0.9, 0.0, 0.01)


def trained(settings: Optimizer, rule: Rule) -> Updating:
    """Three updates by a rule, whose new weights are rounded to float32."""
    rng = np.random.default_rng(0)
    weights, gradients, kept = [rng.normal(size=SHAPE).astype(np.float32).astype(float)], [], Kept()
    for number in range(1, 4):
        gradients.append((rng.normal(size=SHAPE) / 8).astype(np.float32).astype(float))
        new = rule(weights[-1], gradients[-1], kept, number)
        weights.append(np.asarray(new, np.float32).astype(float))
    none = [np.zeros(SHAPE)] * 3
    return Updating(settings, "conv/weight", weights[:-1], gradients, none, {}, weights[-1], ARITHMETIC)


def explained(known: Updating) -> list[Explanation]:
    """What altered rules alone say of the last update."""
    graph: Any = SimpleNamespace(arithmetic=ARITHMETIC, step=2)
    search = Search(Case("optimizer/conv/weight", graph, known.right(), known.found, updating=known), now() + 120)
    assert search.t > 1
    with np.errstate(all="ignore"):
        search._altered()
        return search._accepted()


def adam(of: Adam, eps: float | None = None, root: bool = True, corrected: bool = True, size: Callable[[Array], Array]
         = np.square, decay: float = 0.0) -> Rule:
    """Adam, with parts that are wrong."""

    def rule(w: Array, g: Array, kept: Kept, number: int) -> Array:
        kept["m"] = of.beta1 * kept.get("m", 0) + (1 - of.beta1) * g
        kept["v"] = of.beta2 * kept.get("v", 0) + (1 - of.beta2) * size(g)
        m, v = kept["m"] / (1 - of.beta1**number), kept["v"] / ((1 - of.beta2**number) if corrected else 1)
        return np.asarray(w - of.lr * (m / ((np.sqrt(v) if root else v) + (eps or of.eps)) + decay * w))

    return rule


def sgd(of: Sgd, momentum: float | None = None, dampening: float = 0.0, decay: float | None = None) -> Rule:
    """Stochastic gradient descent by other settings."""

    def rule(w: Array, g: Array, kept: Kept, number: int) -> Array:
        d = g + (of.weight_decay if decay is None else decay) * w
        kept["v"] = (momentum or of.momentum) * kept["v"] + (1 - dampening) * d if kept else d
        return np.asarray(w - of.lr * kept["v"])

    return rule


@pytest.mark.parametrize(("settings", "rule"), [
    (ADAM, adam(ADAM)), (DECAYING, adam(DECAYING, decay=0.25)), (SGD, sgd(SGD)),
    (Sgd(0.1), lambda w, g, kept, number: w - 0.1 * g)])
def test_the_formula_is_the_rule(settings: Optimizer, rule: Rule) -> None:
    known = trained(settings, rule)
    found, right = Update(SHAPE, known).full(ARITHMETIC), known.right()
    assert right.error is not None and found.error is not None
    assert np.allclose(found.value, right.value, rtol=1e-14, atol=1e-15)
    assert (np.abs(known.found - found.value) <= found.error).all()


@pytest.mark.parametrize(("settings", "rule", "said"), [
    (ADAM, adam(ADAM, eps=0.01), "eps is 0.01 in place of 0.001"),
    (ADAM, adam(ADAM, size=np.abs), "the absolute value of the gradient in place of its square"),
    (ADAM, adam(ADAM, root=False), "the corrected average of squared gradients in place of its root"),
    (ADAM, adam(ADAM, corrected=False), "the average of squared gradients is not divided by 1 - beta2**t"),
    (DECAYING, adam(DECAYING, decay=-0.25), "weight_decay is -0.25 in place of 0.25"),
    (SGD, sgd(SGD, momentum=0.8), "momentum is 0.8 in place of 0.9"),
    (SGD, sgd(SGD, dampening=0.125), "dampening is 0.125 in place of 0"),
    (SGD, sgd(SGD, decay=0.0), "weight_decay is 0 in place of 0.01"),
])
def test_a_mistake_is_named(settings: Optimizer, rule: Rule, said: str) -> None:
    explanations = explained(trained(settings, rule))
    assert explanations and explanations[0].detail == said and explanations[0].t <= 1


def test_noise_is_not_named() -> None:
    rng = np.random.default_rng(1)
    for settings, rule in ((ADAM, adam(ADAM)), (SGD, sgd(SGD))):
        def noisy(w: Array, g: Array, kept: Kept, number: int, rule: Rule = rule) -> Array:
            return rule(w, g, kept, number) + 1e-3 * rng.normal(size=w.shape)
        assert explained(trained(settings, noisy)) == []


def test_what_is_remembered_by_another_rule_is_named() -> None:
    """Adam's first step does not depend on beta2, what it remembers does."""
    known = trained(ADAM, adam(ADAM))
    found = sum((0.1 * 0.9 ** (2 - k) * g * g for k, g in enumerate(known.gradients)), np.zeros(SHAPE))
    graph: Any = SimpleNamespace(arithmetic=ARITHMETIC, step=2)
    right = Update(SHAPE, known, memory="exp_avg_sq")
    search = Search(Case("memory/conv/weight/exp_avg_sq", graph, right, found.astype(np.float32).astype(float)),
                    now() + 60)
    assert search.t > 1
    with np.errstate(all="ignore"):
        search._altered()
    assert [one.detail for one in search._accepted()] == ["beta2 is 0.9 in place of 0.999"]
