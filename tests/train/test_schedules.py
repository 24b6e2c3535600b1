# SPDX-License-Identifier: MIT
"""Schedules are torch's, as functions of the step."""

from __future__ import annotations

import math

import pytest
import torch
from torch.optim import lr_scheduler

from bridge.common.errors import ArgumentError
from bridge.train import Schedule
from bridge.train.schedules import SCHEDULES, OneCycle, Step

STEPS = 40


def torch_rates(make: object, lr: float = 0.5) -> list[float]:
    """Of each step, by one of torch's schedulers."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr)
    scheduler = make(optimizer)  # type: ignore[operator]
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(("text", "make"), [
    ("step step_size=7 gamma=0.3", lambda o: lr_scheduler.StepLR(o, 7, 0.3)),
    (f"cosine steps={STEPS} least=0.1", lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS, 0.05)),
    (f"one_cycle steps={STEPS}", lambda o: lr_scheduler.OneCycleLR(o, 0.5, STEPS)),
    (f"one_cycle steps={STEPS} pct_start=0.5 div_factor=10 final_div_factor=100",
     lambda o: lr_scheduler.OneCycleLR(o, 0.5, STEPS, pct_start=0.5, div_factor=10, final_div_factor=100)),
    ("constant warm_up=9", lambda o: lr_scheduler.LinearLR(o, 0.1, 1.0, 9)),
])
def test_schedules_are_torchs(text: str, make: object) -> None:
    schedule = Schedule.of_text(text)
    for step, expected in enumerate(torch_rates(make)):
        assert math.isclose(0.5 * schedule.factor(step), expected, rel_tol=1e-9, abs_tol=1e-12), step


def test_a_warm_up_comes_before_the_rest() -> None:
    with_it, without = Schedule.of_text("step step_size=3 warm_up=4"), Schedule.of_text("step step_size=3")
    assert [with_it.factor(step) for step in range(4)] == [0.2, 0.4, 0.6, 0.8]
    assert [with_it.factor(4 + step) for step in range(9)] == [without.factor(step) for step in range(9)]


@pytest.mark.parametrize("text", ["constant", "constant warm_up=3", "step step_size=2 gamma=0.25", "cosine steps=5",
                                  "one_cycle warm_up=2 steps=9 pct_start=0.4"])
def test_a_schedule_is_what_its_text_says(text: str) -> None:
    assert Schedule.of_text(text).text == text
    assert {Schedule.of_text(text).name} <= SCHEDULES.keys()


@pytest.mark.parametrize(("text", "said"), [
    ("", "expected one of constant"), ("linear", "'linear', expected one of constant, step, cosine, one_cycle"),
    ("cosine", "no steps=, expected one"), ("cosine steps=0", "steps=0, expected more than 0"),
    ("cosine steps=1.5", "'steps=1.5', expected numbers"), ("step step_size=2 x=1", "'x=1', expected numbers"),
    ("one_cycle steps=9 pct_start=1.5", "pct_start=1.5, expected 0 to 1"),
    ("one_cycle steps=9 div_factor=0", "div_factor=0, expected more than 0"),
    ("one_cycle steps=9 final_div_factor=0", "final_div_factor=0, expected more than 0"),
    ("constant warm_up=-1", "warm_up=-1, expected 0 or more"), ("step step_size=3 gamma=nan", "gamma=nan"),
])
def test_bad_schedules_are_refused(text: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Schedule.of_text(text)


def test_the_ends_of_one_cycle_hold() -> None:
    """Also where it is all rise, or of one step; a warm-up of no width begins at the top, as torch's does."""
    for steps in (2, 10, 100):
        one = OneCycle(steps=steps, pct_start=1 / steps)
        assert one.factor(0) == 1 and one.factor(steps - 1) == pytest.approx(1 / 25e4)
        assert one.factor(1) == pytest.approx(OneCycle(steps=steps, pct_start=1.000001 / steps).factor(1), rel=1e-4)
    assert OneCycle(steps=1).factor(0) == OneCycle(steps=1).factor(7)
    assert math.isclose(OneCycle(steps=4, pct_start=1.0).factor(3), 1.0)
    assert Step(step_size=1).factor(3) == pytest.approx(1e-3)
