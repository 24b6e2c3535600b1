# SPDX-License-Identifier: MIT
"""Right programs among subnormal numbers: PyTorch's operations, losses and optimisers are inside the bounds there, too.

A product of two numbers that are that small is rounded to a whole multiple of the smallest one, whatever its size: no
relative error bounds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bridge.exchange.optimizers import Adam, AdamW, Optimizer, Sgd
from bridge.judge.measure.error_statistics import measure
from bridge.judge.measure.updates import OTHER_ORDER
from bridge.judge.oracle import update
from bridge.judge.oracle.error_model import SMALLEST, SMALLEST_NORMAL, Arithmetic, total_roundoff
from tests.helpers.loops import looped

Array = np.ndarray
DTYPES = ("float32", "float64")
ELEMENTS = 400

# --- what optimisers remember ---------------------------------------------------------------------------------------

RULES: list[Optimizer] = [
    Sgd(1e-4, 0.9), Sgd(0.1, 0.9, 0.3), Sgd(0.5, 0.8, 0.0, 0.02, True), Sgd(1e-3, 0.9, 0.0, 0.1, True),
    Sgd(0.1, 0, 0, 0.1),
    Adam(1e-4), Adam(0.1, 0.5, 0.9, 1e-3, 0.2), Adam(1e-3, eps=1e-30), AdamW(0.001, weight_decay=0.01),
]


def of_torch(settings: Optimizer, w: Array, memory: dict[str, Array]
             ) -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
    """A parameter, and its optimiser after 1000 steps."""
    parameter = torch.nn.Parameter(torch.from_numpy(w.copy()))
    state: dict[str, Any] = {name: torch.from_numpy(one.copy()) for name, one in memory.items()}
    if isinstance(settings, Adam):
        kind = torch.optim.AdamW if isinstance(settings, AdamW) else torch.optim.Adam
        made: torch.optim.Optimizer = kind([parameter], settings.lr, (settings.beta1, settings.beta2), settings.eps,
                                           settings.weight_decay)
        made.state[parameter] = state | {"step": torch.tensor(1000.0)}
        return parameter, made
    made = torch.optim.SGD([parameter], settings.lr, settings.momentum, settings.dampening, settings.weight_decay,
                           settings.nesterov)
    made.state[parameter] = {"momentum_buffer": state["momentum"]}
    return parameter, made


def remembered(settings: Optimizer, optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter
               ) -> dict[str, Array]:
    """By the names of exchange files."""
    state = optimizer.state[parameter]
    return {name: state["momentum_buffer" if name == "momentum" else name].numpy().copy() for name in settings.memory}


def small(rng: np.random.Generator, dtype: str, units: int) -> Array:
    """Whole multiples of the smallest number, of either sign, some of them 0."""
    return (rng.integers(-units, units + 1, ELEMENTS) * SMALLEST[dtype]).astype(dtype)


@looped("dtype", DTYPES)
@looped("settings", RULES)
def test_memory_that_decays_to_subnormal_numbers_is_inside_the_bounds(settings: Optimizer, dtype: str) -> None:
    """From a known memory and from one that is followed, without gradients (a dead filter) and with tiny ones."""
    arithmetic, most = Arithmetic(total_roundoff(dtype)), 0.0
    for seed, (units, gradient, weight) in enumerate((
            (20, 0, 1.0), (3000, 0, 0.0), (3000, 50, 2 * SMALLEST[dtype]), (10**6, 10**6, SMALLEST_NORMAL[dtype]))):
        rng = np.random.default_rng(seed)
        w = (weight * rng.integers(-20, 20, ELEMENTS)).astype(dtype)
        memory = {name: small(rng, dtype, units) for name in settings.memory}
        if "exp_avg_sq" in memory:
            memory["exp_avg_sq"] = np.abs(memory["exp_avg_sq"])
        parameter, optimizer = of_torch(settings, w, memory)
        followed = update.memory_of(settings, {"a": update.Remembered(
            {name: one.astype(float) for name, one in memory.items()}, 1000)})
        for k in range(3):
            known = update.memory_of(settings, {"a": update.Remembered(
                {name: one.astype(float) for name, one in memory.items()}, 1000 + k)})
            g, none = small(rng, dtype, gradient), np.zeros(ELEMENTS)
            parameter.grad = torch.from_numpy(g)
            optimizer.step()
            after, memory = parameter.detach().numpy().copy(), remembered(settings, optimizer, parameter)
            for one in (known, followed):
                direction = one.direction(settings, "a", w.astype(float), (g.astype(float), none), arithmetic)
                assert measure(after, *update.new_weights(settings, w.astype(float), direction, arithmetic)).t <= 1
                seen = update.taken(settings, w, after, direction, arithmetic)
                assert measure(seen.step, seen.expected, seen.bound).t <= 1
                for name, right in one.bounded("a").items():
                    most = max(most, measure(memory[name], *right).t)
            w = after
    assert most <= 1, most
    # In float64 the oracle rounds as the program does
    assert most > 0.1 * min(1.0, settings.lr) or dtype == "float64" or not settings.remembers, most


@looped("settings", [one for one in RULES if one.remembers])
def test_memory_that_does_not_decay_is_a_bug(settings: Optimizer) -> None:
    """What is remembered of a dead filter, of the sizes that float32 has all digits of: left as it is, by another
    factor, or forgotten."""
    arithmetic, zero = Arithmetic(total_roundoff("float32")), np.zeros(ELEMENTS)
    for size in (2.0**-110, 2.0**-60, 1.0):
        old = size * np.random.default_rng(1).uniform(1, 2, ELEMENTS)
        memory = update.memory_of(settings, {"a": update.Remembered(dict.fromkeys(settings.memory, old), 1000)})
        memory.direction(settings, "a", zero, (zero, zero), arithmetic)
        for value, bound in memory.bounded("a").values():
            assert measure(value.astype("f"), value, bound).t <= 1
            for wrong in (old, 0 * old, value * (1 + 1e-5)):
                assert measure(wrong.astype("f"), value, bound).t > OTHER_ORDER


def test_a_weight_that_never_had_a_gradient_stays() -> None:
    """Where nothing is multiplied nothing is lost."""
    arithmetic, zero, w = Arithmetic(total_roundoff("float32")), np.zeros(3), np.ones(3)
    for settings in (Sgd(0.1, 0.9, nesterov=True), Adam(0.1)):
        memory = update.memory_of(settings)
        for _ in range(2):
            direction = memory.direction(settings, "a", w, (zero, zero), arithmetic)
            _, bound = update.new_weights(settings, w, direction, arithmetic)
            assert not bound.any() and not any(e.any() for _, e in memory.bounded("a").values())


def test_flushed_memory_is_inside_the_bounds_of_flushing_alone() -> None:
    """A program whose processor flushes: the average of the squares of a dead filter is 0 at once."""
    zero, old = np.zeros(ELEMENTS), np.full(ELEMENTS, SMALLEST_NORMAL["float32"])
    for settings in (Sgd(0.1, 0.9), Adam(1e-3)):
        for flushes in (False, True):
            arithmetic = Arithmetic(total_roundoff("float32"), flushes=flushes)
            memory = update.memory_of(settings, {"a": update.Remembered(dict.fromkeys(settings.memory, old), 1000)})
            memory.direction(settings, "a", zero, (zero, zero), arithmetic)
            worst = max(measure(zero, *right).t for right in memory.bounded("a").values())
            assert worst <= 1 if flushes else worst > OTHER_ORDER
