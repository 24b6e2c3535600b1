# SPDX-License-Identifier: MIT
"""Network.update and Network.step against torch.optim.SGD."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import bridge
from bridge.judge.oracle.error_model import total_roundoff
from tests.helpers.cases import Array, batch, three_layers

Settings = dict[str, Any]
COMBINATIONS: tuple[Settings, ...] = (
    {"lr": 0.0},
    {"lr": 0.1},
    {"lr": 0.1, "weight_decay": 0.03},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.1, "momentum": 0.9, "dampening": 0.3},
    {"lr": 0.1, "momentum": 0.9, "dampening": 1.0},
    {"lr": 0.1, "momentum": 0.9, "dampening": -0.5},
    {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    {"lr": 0.07, "momentum": 0.8, "weight_decay": 0.05},
    {"lr": 0.07, "momentum": 0.8, "dampening": 0.4, "weight_decay": 0.05},
    {"lr": 0.07, "momentum": 0.8, "weight_decay": 0.05, "nesterov": True},
    {"lr": 0.07, "momentum": 1.5, "weight_decay": 2.0},
    {"lr": 0.07, "dampening": 0.5},
)
#: Settings that change between steps: torch makes its buffer at the first step with momentum, and keeps it
SCHEDULES: tuple[tuple[Settings, ...], ...] = (
    *((one,) * 5 for one in COMBINATIONS),
    ({"lr": 0.1}, {"lr": 0.1}, *({"lr": 0.1, "momentum": 0.9, "dampening": 0.4},) * 3),
    ({"lr": 0.1, "momentum": 0.9}, {"lr": 0.1}, {"lr": 0.1}, *({"lr": 0.1, "momentum": 0.5},) * 2),
    ({"lr": 0.1, "momentum": 0.9}, *({"lr": 0.1, "momentum": 0.9, "nesterov": True},) * 2, {"lr": 0.1}, {"lr": 0.2}),
    ({"lr": 0.4}, {"lr": 0.2, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.0, "momentum": 0.7},
     {"lr": 0.05, "momentum": 0.7, "weight_decay": 0.1}),
)
FULL = {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False}


class Limit:
    """How far rounding alone can carry one parameter from torch float64 with the same gradients.

    Every setting is rounded once, every product and sum once; errors are carried on in absolute values.
    """

    def __init__(self, w: Array, u: float) -> None:
        self.u, self.e_w = u, np.zeros(w.shape)
        self.v: Array | None = None
        self.e_v: Array = np.zeros(w.shape)

    def step(self, w: Array, g: Array, lr: float, momentum: float, dampening: float, weight_decay: float,
             nesterov: bool) -> Array:
        """The bound after a step from weights w with gradient g."""
        u, keep = self.u, abs(1 - dampening)
        d, e = np.abs(g), np.zeros(g.shape)
        if weight_decay:
            d = d + weight_decay * np.abs(w)
            e = weight_decay * self.e_w + 3 * u * d
        if momentum:
            if self.v is None:
                self.v, self.e_v = d, e
            else:
                self.v = momentum * self.v + keep * d
                self.e_v = momentum * self.e_v + keep * e + 3 * u * self.v
            d, e = (d + momentum * self.v, e + momentum * self.e_v) if nesterov else (self.v, self.e_v)
            e = e + 3 * u * d if nesterov else e
        self.e_w = self.e_w + lr * e + 3 * u * lr * d + u * (np.abs(w) + lr * d)
        # What was neglected is of second order
        return self.e_w * (1 + 1000 * u)


def network(dtype: torch.dtype, reduction: str = "mean") -> bridge.Network:
    """A small network with three convolutions."""
    return bridge.Network.from_torch(three_layers(4, 3, dtype), reduction=reduction)


def gradients(net: bridge.Network, seed: int) -> None:
    """Gradients of a random batch."""
    net.forward(batch((2, 1, 5, 7), net.dtype, seed))
    net.loss(batch((2, 1, 5, 7), net.dtype, seed + 1000))
    net.backward()


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda steps: "-".join(map(str, steps[0].values())))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_five_steps_as_torch(schedule: tuple[Settings, ...], dtype: torch.dtype) -> None:
    """Five updates with the library's own gradients stay within rounding of torch.optim.SGD in float64."""
    net = network(dtype)
    learned = {name: torch.from_numpy(array.astype(np.float64)) for name, array in net.parameters.items()}
    optimizer = torch.optim.SGD(list(learned.values()), lr=0.5)
    limits = {name: Limit(array, total_roundoff(net.dtype)) for name, array in net.parameters.items()}
    for number, given in enumerate(schedule):
        setting = FULL | given
        optimizer.param_groups[0].update(setting)
        gradients(net, number)
        for name, one in learned.items():
            one.grad = torch.from_numpy(net.gradients[name].astype(np.float64))
        bounds = {name: limits[name].step(one.numpy(), one.grad.numpy(), **setting) for name, one in learned.items()}
        optimizer.step()
        net.update(**given)
        for name, one in learned.items():
            error = np.abs(net.parameters[name].astype(np.float64) - one.numpy())
            assert np.all(error <= bounds[name]), f"step {number}, {name}: {np.max(error / bounds[name])} bounds"


def test_five_steps_move_the_weights() -> None:
    """The bound of the test above is thousands of times smaller than what a wrong update would show."""
    net = network(torch.float32)
    limit = Limit(net.parameters["conv2.weight"], total_roundoff("float32"))
    for number in range(5):
        gradients(net, number)
        before = net.parameters["conv2.weight"].copy()
        bound = limit.step(before, net.gradients["conv2.weight"], 0.1, 0.9, 0.3, 0.05, False)
        net.update(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.05)
        assert np.median(np.abs(net.parameters["conv2.weight"] - before)) > 1000 * np.median(bound)


def test_learning_rate_zero_changes_nothing() -> None:
    """lr = 0 leaves every bit, momentum or not."""
    net = network(torch.float32)
    before = {name: array.copy() for name, array in net.parameters.items()}
    for number in range(3):
        gradients(net, number)
        net.update(lr=0, momentum=0.9)
    assert all(np.array_equal(before[name], net.parameters[name]) for name in before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("setting", COMBINATIONS, ids=str)
def test_step_is_forward_loss_backward_update(setting: Settings, dtype: torch.dtype) -> None:
    """One call does the same as four, bit for bit, for three steps."""
    one, four = network(dtype), network(dtype)
    for number in range(3):
        x, target = batch((2, 1, 5, 7), one.dtype, number), batch((2, 1, 5, 7), one.dtype, number + 9)
        loss = one.step(x, target, **setting)
        four.forward(x)
        assert loss == four.loss(target)
        four.backward()
        four.update(**setting)
        for name in one.parameters:
            assert np.array_equal(one.parameters[name], four.parameters[name])
            assert np.array_equal(one.gradients[name], four.gradients[name])


BAD: tuple[tuple[str, Settings], ...] = (
    ("lr", {"lr": -0.1}),
    ("momentum", {"lr": 0.1, "momentum": -0.9}),
    ("weight_decay", {"lr": 0.1, "weight_decay": -1e-9}),
    ("nesterov", {"lr": 0.1, "nesterov": True}),
    ("nesterov", {"lr": 0.1, "nesterov": True, "momentum": 0.9, "dampening": 0.1}),
    ("nesterov", {"lr": 0.1, "nesterov": True, "momentum": 0.9, "dampening": -0.1}),
)
NOT_FINITE: tuple[tuple[str, Settings], ...] = tuple(
    (name, {"lr": 0.1} | {name: value}) for name in ("lr", "momentum", "dampening", "weight_decay")
    for value in (float("nan"), float("inf")))


@pytest.mark.parametrize(("name", "setting"), BAD)
def test_torch_refuses_the_same(name: str, setting: Settings) -> None:
    """What the library refuses below is what torch refuses."""
    with pytest.raises(ValueError, match=r"learning rate|momentum|weight_decay|Nesterov"):
        torch.optim.SGD([torch.zeros(1)], **setting)


@pytest.mark.parametrize(("name", "setting"), BAD + NOT_FINITE)
def test_bad_settings_are_refused_and_change_nothing(name: str, setting: Settings) -> None:
    """The message names the setting; weights keep every bit, and the right update is still possible."""
    net = network(torch.float32)
    gradients(net, 1)
    before = {name: array.copy() for name, array in net.parameters.items()}
    with pytest.raises(bridge.EngineError, match=rf"sgd: {name}.*(expected|needs|finite)"):
        net.update(**setting)
    x = batch((2, 1, 5, 7), "float32", 5)
    with pytest.raises(bridge.EngineError, match=rf"sgd: {name}"):
        net.step(x, x, **setting)
    assert all(np.array_equal(before[name], net.parameters[name]) for name in before)
    net.update(lr=0.1)
    assert not np.array_equal(before["conv1.weight"], net.parameters["conv1.weight"])


@pytest.mark.parametrize("name", ["lr", "momentum", "dampening", "weight_decay"])
@pytest.mark.parametrize("value", ["0.1", None, True, 1j, [0.1]], ids=str)
def test_settings_are_numbers(name: str, value: object) -> None:
    """Anything but a number is a type error that names the setting."""
    net = network(torch.float32)
    gradients(net, 1)
    with pytest.raises(bridge.ArgumentTypeError, match=rf"^{name}: .*expected a number"):
        net.update(**({"lr": 0.1} | {name: value}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sum_is_mean_times_elements(dtype: torch.dtype) -> None:
    """With a number of elements that is a power of two, sum and mean differ by exactly that factor."""
    mean, total = network(dtype, "mean"), network(dtype, "sum")
    x, target = batch((2, 1, 4, 8), mean.dtype, 1), batch((2, 1, 4, 8), mean.dtype, 2)
    losses = []
    for net in (mean, total):
        net.forward(x)
        losses.append(net.loss(target))
        net.backward()
    assert losses[1] == 64 * losses[0]
    for name in mean.gradients:
        assert np.array_equal(total.gradients[name], 64 * mean.gradients[name])
    mean.update(lr=0.5)
    total.update(lr=0.5 / 64)
    assert all(np.array_equal(mean.parameters[name], total.parameters[name]) for name in mean.parameters)
