# SPDX-License-Identifier: MIT
"""Bounds of Adam's steps: torch's and other right orders are inside, mistakes are outside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from bridge.exchange.optimizers import Adam, AdamW
from bridge.judge.measure.error_statistics import measure
from bridge.judge.oracle import update
from bridge.judge.oracle.error_model import Arithmetic
from bridge.judge.oracle.optimizers.adam import Moments, Rule

ARITHMETIC = Arithmetic(2.0**-24)
F = np.float32
SETTINGS = [Adam(0.01), Adam(0.1, 0.5, 0.9, 1e-3, 0.2), AdamW(0.001, weight_decay=0.01),
            AdamW(0.1, 0.9, 0.99, 1e-8, 0.5)]


def by_torch(settings: Adam, w: np.ndarray) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if isinstance(settings, AdamW) else torch.optim.Adam
    parameter = torch.nn.Parameter(torch.from_numpy(w.copy()))
    return kind([parameter], settings.lr, (settings.beta1, settings.beta2), settings.eps, settings.weight_decay)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("size", [1e-9, 1e-4, 1.0])
def test_steps_of_torch_are_inside_the_bounds(settings: Adam, size: float) -> None:
    rng, memory = np.random.default_rng(3), update.memory_of(settings)
    w = rng.standard_normal(4000).astype(F)
    optimizer = by_torch(settings, w)
    parameter = optimizer.param_groups[0]["params"][0]
    for _ in range(6):
        g = (size * rng.standard_normal(w.size)).astype(F)
        parameter.grad = torch.from_numpy(g)
        direction = memory.direction(settings, "a", w.astype(float), (g.astype(float), np.zeros(w.size)), ARITHMETIC)
        optimizer.step()
        after = parameter.detach().numpy().copy()
        assert measure(after, *update.new_weights(settings, w.astype(float), direction, ARITHMETIC)).t <= 1
        seen = update.taken(settings, w, after, direction, ARITHMETIC)
        assert measure(seen.step, seen.expected, seen.bound).t <= 1
        w = after


@pytest.mark.parametrize("exact", ["nothing", "averages", "corrections"])
@pytest.mark.parametrize("settings", [*SETTINGS, Adam(0.5, 0.956, 0.9999, 1e-30)], ids=str)
def test_a_program_in_float32_is_inside_the_bounds(settings: Adam, exact: str) -> None:
    """Settings and their differences rounded, powers as running products, roots corrected.

    Where averages or corrections alone are of exact settings, the errors of 1 - beta2 do not cancel. The weights are
    small, so that their last digit hides no step.
    """
    rng, memory = np.random.default_rng(4), update.memory_of(settings)
    w = (1e-3 * settings.lr * rng.standard_normal(2000)).astype(F)
    lr, b1, b2, eps, wd = (F(x) for x in (settings.lr, settings.beta1, settings.beta2, settings.eps,
                                          settings.weight_decay))
    m, v, p1, p2, t = np.zeros_like(w), np.zeros_like(w), F(1), F(1), 0
    for _ in range(60):
        g = (1 + 0.1 * rng.standard_normal(w.size)).astype(F)
        direction = memory.direction(settings, "a", w.astype(float), (g.astype(float), np.zeros(w.size)), ARITHMETIC)
        d = g if isinstance(settings, AdamW) else g + wd * w
        keep1, keep2 = (F(1 - settings.beta1), F(1 - settings.beta2)) if exact == "averages" else (F(1) - b1, F(1) - b2)
        m, v, p1, p2, t = m + keep1 * (d - m), b2 * v + keep2 * d * d, p1 * b1, p2 * b2, t + 1
        c1, c2 = F(1) - p1, F(1) - p2
        if exact == "corrections":
            c1, c2 = F(1 - settings.beta1**t), F(1 - settings.beta2**t)
        after = w * (F(1) - lr * wd) if isinstance(settings, AdamW) else w
        after = after - lr / c1 * m / (np.sqrt(v) / np.sqrt(c2) + eps)
        assert after.dtype == F
        assert measure(after, *update.new_weights(settings, w.astype(float), direction, ARITHMETIC)).t <= 1
        for found, kind in ((m, "exp_avg"), (v, "exp_avg_sq")):
            assert measure(found, *memory.bounded("a")[kind]).t <= 1, kind


@pytest.mark.parametrize("rule", [Rule(first=False), Rule(second=False), Rule(ahead=1), Rule(eps="square")], ids=str)
def test_other_rules_are_far_outside(rule: Rule) -> None:
    settings, rng = Adam(2.0**-10), np.random.default_rng(5)
    right, wrong = Moments(), Moments(rule)
    w = 0.1 * rng.standard_normal(500)
    for _ in range(2):
        g = 1e-3 * rng.standard_normal(500), np.zeros(500)
        bound = update.new_weights(settings, w, right.direction(settings, "a", w, g, ARITHMETIC), ARITHMETIC)
        found, _ = update.new_weights(settings, w, wrong.direction(settings, "a", w, g, ARITHMETIC), ARITHMETIC)
    assert measure(found.astype(F), *bound).t > 10


def test_a_gradient_below_its_error_may_have_either_sign_but_no_longer_step() -> None:
    settings = Adam(0.5)
    for steps in (1, 5):
        memory = Moments()
        for _ in range(steps):
            d, e = memory.direction(settings, "a", np.zeros(1), (np.full(1, 1e-6), np.full(1, 1e-3)), ARITHMETIC)
        for sign in (-1, 1):
            other = Moments()
            for _ in range(steps):
                found, _ = other.direction(settings, "a", np.zeros(1), (np.full(1, sign * 9e-4), np.zeros(1)),
                                           Arithmetic(0.0))
            assert abs(found - d) <= e
        assert e < 4


@pytest.mark.parametrize("steps", [1, 4])
def test_the_longest_step_of_float32_is_inside_too(steps: int) -> None:
    """Averages by rounded betas and corrections by exact ones make a step longer than 1."""
    settings, f = Adam(0.5), np.float32
    memory, m, v, g = Moments(), f(0), f(0), f(-1)
    for t in range(1, steps + 1):
        d, e = memory.direction(settings, "a", np.zeros(1), (np.ones(1), np.full(1, 2.0)), ARITHMETIC)
        m, v = m + (1 - f(0.9)) * (g - m), f(0.999) * v + (1 - f(0.999)) * g * g
        found = m / f(1 - 0.9**t) / (np.sqrt(v / f(1 - 0.999**t)) + f(1e-8))
    assert abs(float(found) - d) <= e < 2.1


def test_the_bound_is_no_wider_than_a_thousandth_of_a_step() -> None:
    settings, memory, rng = Adam(2.0**-10), Moments(), np.random.default_rng(6)
    for _ in range(20):
        g = rng.standard_normal(300)
        d, e = memory.direction(settings, "a", np.zeros(300), (g, np.zeros(300)), ARITHMETIC)
        assert np.median(e / np.abs(d)) < 1e-3
    # A rate that is one percent off is seen
    wrong = update.new_weights(replace(settings, lr=1.01 * settings.lr), np.zeros(300), (d, e), ARITHMETIC)[0]
    assert measure(wrong, *update.new_weights(settings, np.zeros(300), (d, e), ARITHMETIC)).t > 10
